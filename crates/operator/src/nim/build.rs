//! The controller of NIMBuilds.

use capstan_api::nim::{NimBuild, NimBuildStatus, NimCache};
use capstan_operands::nim::nim_build;
use capstan_plan::{Facts, Gvk, Live, Plan, Ref};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Key, Requeue};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct NimBuilds;

impl Controller for NimBuilds {
    type Object = NimBuild;
    type Status = NimBuildStatus;
    type Context = ();

    const NAME: &'static str = "nimbuild";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nimbuild.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> = Some(StateMetric {
        name: "nimBuild_status_total",
        states: &["Failed", "InProgress", "NotReady", "Pending", "Ready", "Started"],
    });

    fn select<'a>(&self, build: &NimBuild, view: View<'a>) -> View<'a> {
        let (namespace, cache) = (build.namespace().unwrap_or_default(), &build.spec.nim_cache.name);
        view.object(&Ref::of::<NimCache>(&namespace, cache))
            .object(&Ref::of::<ConfigMap>(&namespace, &format!("{cache}-manifest")))
    }

    fn context(&self, _: &NimBuild) {}

    fn plan(&self, build: &NimBuild, facts: &Facts, (): &()) -> Plan<NimBuildStatus> {
        nim_build::plan(build, facts)
    }

    fn blocked(&self, build: &NimBuild, facts: &Facts, (): &(), reason: &str, message: &str) -> Plan<NimBuildStatus> {
        nim_build::blocked(build, facts, reason, message)
    }

    /// Changes of a cache affect its builds.
    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        if !change.is::<NimCache>() {
            return Vec::new();
        }
        let all = cache.in_namespace(&Gvk::of::<NimBuild>(), &change.key.namespace);
        let of = |live: &&Live| live["spec"]["nimCache"]["name"].as_str() == Some(&*change.key.name);
        all.iter().filter(of).map(|live| Requeue::now(Key::of(live))).collect()
    }
}
