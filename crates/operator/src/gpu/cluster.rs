//! The GPU-related state of the cluster, from the cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_api::foreign::{ClusterVersion, ImageStream, Proxy};
use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use capstan_operands::gpu::kernels::{Unsupported, kernel_of};
use capstan_operands::gpu::{Cluster, Fleet, OpenShift};
use capstan_plan::{Gvk, Live, Ref};
use capstan_runtime::kinds::DRIVERS;
use capstan_runtime::{Cache, Change, Key};
use k8s_openapi::api::core::v1::Node;

use super::Cx;

/// The input of GPU plans besides objects. No requests.
pub(super) fn cluster(cx: &Cx) -> Cluster {
    let (cache, settings) = (&cx.runtime.cache, &cx.settings);
    let not_terminating = |live: &Live| live["metadata"]["deletionTimestamp"].is_null();
    let text = |live: &Live, field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    let policies = cache.all(&Gvk::of::<ClusterPolicy>());
    let clusters = cache.all(&Gvk::of::<GpuCluster>());
    Cluster {
        namespace: settings.namespace.clone(),
        images: settings.images.clone(),
        agent: settings.agent.clone(),
        fleet: cx.census.fleet(),
        policies: policies
            .iter()
            .filter(|live| not_terminating(live))
            .map(|live| (text(live, "creationTimestamp"), text(live, "name")))
            .collect(),
        gpu_clusters: clusters.iter().map(|live| text(live, "name")).collect(),
        openshift: openshift(cache),
        unsupported: Vec::new(),
        startup_taint: settings.readiness.taint.clone(),
        upgrades: cx.reports.current(),
        diagnoses: cx.unhealthy.diagnoses(cache, cx.runtime.clock.now()),
    }
}

/// Driver pods without an image for their kernel.
pub(super) fn unsupported(cache: &Cache) -> Vec<Unsupported> {
    let kernel = |node: &str| kernel_of(&*cache.get(&Ref::of::<Node>("", node))?);
    cache.packed_slice(DRIVERS).iter().filter_map(|pod| Unsupported::of(pod, kernel)).collect()
}

/// Whether a change may alter [`unsupported`].
pub(super) fn is_about_kernels(change: &Change<'_>) -> bool {
    let of = |pod: Option<&Live>| pod.and_then(|pod| Unsupported::of(&**pod, |_| None));
    change.kind.slice == DRIVERS && of(change.old) != of(change.new)
}

/// OpenShift, if the cluster is one.
pub(super) fn openshift(cache: &Cache) -> Option<OpenShift> {
    let version = cache.typed::<ClusterVersion>(&Key::new("", "version")).ok().flatten()?;
    let history = version.status.unwrap_or_default().history.unwrap_or_default();
    let done = history.into_iter().find(|update| update.state.as_deref() == Some("Completed"))?;
    let full = done.version.unwrap_or_default();
    let version = full.split('.').take(2).collect::<Vec<_>>().join(".");
    let stream = cache.typed::<ImageStream>(&Key::new("openshift", "driver-toolkit")).ok().flatten();
    let mut broken = false;
    let toolkits = stream.map(|stream| {
        let mut images = BTreeMap::new();
        for tag in stream.spec.tags.unwrap_or_default() {
            let name = tag.name.unwrap_or_default();
            broken |= name.is_empty();
            let image = tag.from.and_then(|from| from.name);
            if let Some(image) = image.filter(|_| !name.is_empty() && name != "latest") {
                images.insert(name, image);
            }
        }
        images
    });
    let proxy = cache.typed::<Proxy>(&Key::new("", "cluster")).ok().flatten().map(|proxy| proxy.spec);
    let proxy = proxy.unwrap_or_default();
    let variables =
        [("HTTPS_PROXY", proxy.https_proxy), ("HTTP_PROXY", proxy.http_proxy), ("NO_PROXY", proxy.no_proxy)];
    Some(OpenShift {
        version,
        toolkits,
        broken,
        proxy: variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|value| !value.is_empty())?)))
            .collect(),
        trusted_ca: proxy.trusted_ca.and_then(|ca| ca.name).filter(|name| !name.is_empty()),
    })
}

/// Whether a change may alter [`openshift`].
pub(super) fn is_about_openshift(change: &Change<'_>) -> bool {
    change.is::<ClusterVersion>() || change.is::<Proxy>() || change.is::<ImageStream>()
}

/// Whether the fleet entry of a node changed.
pub(super) fn is_recounted(change: &Change<'_>) -> bool {
    change.is::<Node>() && counted(change.old) != counted(change.new)
}

/// The fleet entry of a node.
fn counted(node: Option<&Live>) -> Fleet {
    let mut fleet = Fleet::default();
    if let Some(node) = node {
        fleet.add(&**node);
    }
    fleet
}

/// Number of nodes per fleet entry, updated on changes: thousands of nodes have a few distinct entries. Clones share
/// one state.
#[derive(Clone, Default)]
pub(super) struct NodeCensus {
    entries: Arc<Mutex<BTreeMap<Fleet, usize>>>,
}

impl NodeCensus {
    /// Subscribes to node changes. Must be called before its readers subscribe.
    pub(super) fn follow(cache: &Cache) -> Self {
        let census = Self::default();
        let entries = census.entries.clone();
        cache.subscribe(move |change| {
            if !change.is::<Node>() {
                return;
            }
            let (old, new) = (change.old.map(|_| counted(change.old)), change.new.map(|_| counted(change.new)));
            if old == new {
                return;
            }
            let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(old) = old
                && let Some(count) = entries.get_mut(&old)
            {
                *count -= 1;
                if *count == 0 {
                    entries.remove(&old);
                }
            }
            if let Some(new) = new {
                *entries.entry(new).or_default() += 1;
            }
        });
        census
    }

    /// All nodes.
    fn fleet(&self) -> Fleet {
        let mut fleet = Fleet::default();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().for_each(|(kind, count)| fleet.add_all(kind, *count));
        fleet
    }
}
