//! One pass of the upgrade controller. No requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use capstan_api::foreign::NodeMaintenance;
use capstan_operands::gpu::upgrade::{
    self, Counts, Maintenance, MaintenanceAction, NodeView, PodView, Report, Requestor, RevisionRejection, State, Step,
};
use capstan_plan::{Gvk, Live};
use capstan_runtime::Cache;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

use super::draining::DrainingPods;
use super::nodes::{self as known, ChangedNodes, KnownNodes};
use crate::gpu::{Cx, nodes};

/// The decisions of a pass.
#[derive(Default)]
pub(super) struct Decided {
    /// Steps on nodes.
    pub(super) steps: Vec<Step>,
    /// Rejected revisions to annotate on DaemonSets.
    pub(super) rejections: Vec<RevisionRejection>,
    /// NodeMaintenances that are no longer needed.
    pub(super) releases: Vec<MaintenanceAction>,
    /// Nodes whose pods must be watched for a drain.
    pub(super) to_drain: BTreeSet<String>,
    /// Progress reports.
    pub(super) reports: BTreeMap<String, Report>,
    /// Node counts; `None` if auto-upgrade is off.
    pub(super) counts: Option<Counts>,
    /// When to run the next pass without a change.
    pub(super) requeue_at: Option<Timestamp>,
}

/// Decides on all nodes that are not idle.
pub(super) fn decide(
    cx: &Cx,
    draining: &DrainingPods,
    fleet: &mut KnownNodes,
    changed: &ChangedNodes,
    now: Timestamp,
) -> Decided {
    let (cache, namespace) = (&cx.runtime.cache, cx.settings.namespace.as_str());
    let requestor = cx.settings.requestor.as_ref();
    let governing_policies = nodes::governing_policies(cache, requestor);
    let maintenances = maintenances(cache, requestor);
    if governing_policies == upgrade::GoverningPolicies::Disabled && maintenances.is_empty() {
        return Decided::default();
    }
    fleet.update(cache, namespace, governing_policies, changed);
    let (governing_policies, driver_revisions) = (&fleet.governing_policies, fleet.driver_revisions());
    let pods = Pods::of(draining);
    let claims = pods.claims(cache);
    let claims: HashMap<_, _> = claims.iter().map(|claim| (name_of(claim), &**claim)).collect();

    let mut decided = Decided::default();
    let mut counts = Counts::default();
    let mut groups: BTreeMap<&str, (Vec<NodeView<'_>>, usize)> =
        fleet.idle().map(|(governing_policy, count)| (governing_policy, (Vec::new(), count))).collect();
    let mut asked_for: BTreeSet<&str> = BTreeSet::new();
    for upgrade_node in fleet.active.values() {
        let mut view = upgrade_node.view(&driver_revisions);
        if known::is_maintenance_requested(&view) {
            asked_for.insert(view.node.name);
        }
        let Some(governing_policy) = governing_policies.of_node(&view.node).filter(|_| known::has_driver(&view)) else {
            continue;
        };
        let state = State::of(view.node.labels);
        if state.needs_pods() {
            decided.to_drain.insert(view.node.name.into());
        }
        let not_started = matches!(state, State::Unset | State::Done | State::Required) && !view.node.unschedulable;
        if !not_started {
            view.validators = upgrade_node.validators();
        }
        view.pods = pods.workload(view.node.name, &claims);
        view.maintenance = maintenances.get(view.node.name).map(Maintenance::of);
        groups.entry(governing_policy).or_default().0.push(view);
    }
    for (governing_policy, (views, idle)) in &groups {
        let Some(settings) = governing_policies.settings(governing_policy) else { continue };
        let pass = upgrade::step(settings, views, *idle, now);
        let held_back: Vec<&str> = driver_revisions.held_back(governing_policy).collect();
        decided.reports.insert((*governing_policy).into(), Report::of(&pass, settings, &held_back));
        counts += pass.counts;
        decided.rejections.extend(pass.roll_back_to.as_deref().and_then(|revision| driver_revisions.reject(revision)));
        decided.requeue_at = decided.requeue_at.into_iter().chain(pass.wake).min();
        decided.steps.extend(pass.steps);
    }
    decided.counts = (*governing_policies != upgrade::GoverningPolicies::Disabled).then_some(counts);
    decided.rejections.extend(driver_revisions.clear_rejections());
    if let Some(us) = requestor {
        let unneeded = maintenances.iter().filter(|(node, _)| !asked_for.contains(node.as_str()));
        decided.releases =
            unneeded.filter_map(|(node, live)| upgrade::release(us, node, Some(&Maintenance::of(live)))).collect();
    }
    decided
}

/// NodeMaintenances by node: only those with our name.
fn maintenances(cache: &Cache, us: Option<&Requestor>) -> BTreeMap<String, NodeMaintenance> {
    let Some(us) = us else { return BTreeMap::new() };
    let all = cache.in_namespace(&Gvk::of::<NodeMaintenance>(), &us.namespace);
    let read = all.iter().filter_map(|live| serde_json::from_value::<NodeMaintenance>((**live).clone()).ok());
    let named = read.filter_map(|one| {
        let node = one.spec.node_name.clone()?;
        (one.metadata.name.as_deref() == Some(us.name(&node).as_str())).then_some((node, one))
    });
    named.collect()
}

/// Namespace and name.
fn name_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

/// The pods on nodes that are being drained.
struct Pods {
    workload: HashMap<String, Vec<Live>>,
    refusals: HashMap<String, String>,
}

impl Pods {
    fn of(draining: &DrainingPods) -> Self {
        Self { workload: draining.pods(), refusals: draining.refusals() }
    }

    /// ResourceClaims, if a pod to be evicted has any.
    fn claims(&self, cache: &Cache) -> Vec<Live> {
        let has = |pod: &Live| pod["spec"]["resourceClaims"].is_array();
        let any = self.workload.values().flatten().any(has);
        if any { cache.all(&Gvk::of::<ResourceClaim>()) } else { Vec::new() }
    }

    fn workload<'a>(&'a self, node: &str, claims: &HashMap<(&'a str, &'a str), &'a Value>) -> Option<Vec<PodView<'a>>> {
        let pods = self.workload.get(node)?.iter().map(|pod| {
            let namespace = name_of(pod).0;
            let find = |name: &str| claims.iter().find(|(known, _)| **known == (namespace, name)).map(|(_, one)| *one);
            let mut view = PodView::of(pod, find);
            view.refused = self.refusals.get(view.pod.uid).map(String::as_str);
            view
        });
        Some(pods.collect())
    }
}
