//! Pod data of the scheduler, parsed once from the object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm};

use super::resources::{Requests, is_sidecar};
use crate::Pod;
use crate::informer::key_of;
use capstan_semantics::{LabelSelector, Labels};

/// A pod with the data that filters and scores read.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// The object, shared with the cache.
    pub pod: Arc<Pod>,
    /// `NAMESPACE/NAME`
    pub key: Arc<str>,
    /// Priority; higher is more important.
    pub priority: i32,
    /// Resource requests.
    pub requests: Requests,
    /// Host ports.
    pub ports: Vec<HostPort>,
    /// Pod affinity and anti-affinity, if any.
    pub affinity: Option<Box<PodAffinity>>,
    /// PersistentVolumeClaims, as `NAMESPACE/NAME`.
    pub volume_claims: Vec<Arc<str>>,
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Whether two ports conflict on one host.
    pub fn conflicts(&self, other: &Self) -> bool {
        let any = |ip: &str| ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// Pod affinity and anti-affinity.
#[derive(Clone, Debug, Default)]
pub struct PodAffinity {
    /// Required affinity.
    pub required: Vec<Arc<Term>>,
    /// Required anti-affinity.
    pub anti: Vec<Arc<Term>>,
    /// Preferred affinity (positive weight) and anti-affinity (negative weight).
    pub preferred: Vec<(i64, Arc<Term>)>,
}

/// An affinity term: a selection of pods and a topology.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    /// Namespaces by name.
    pub namespaces: Vec<String>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Pods by label; `None` selects none.
    pub selector: Option<LabelSelector>,
    /// Topology key: nodes with the same value of this label form a domain.
    pub topology_key: String,
}

impl Term {
    fn new(term: &PodAffinityTerm, pod: &Pod) -> Arc<Self> {
        let labels = pod.metadata.labels.as_ref();
        let value = |key: &String| labels.and_then(|labels| labels.get(key));
        let selector = term.label_selector.as_ref().map(|selector| {
            let mut selector = LabelSelector::new(selector);
            for key in term.match_label_keys.iter().flatten() {
                if let Some(value) = value(key) {
                    selector = selector.and(LabelSelector::of_labels([(key, value)]));
                }
            }
            for key in term.mismatch_label_keys.iter().flatten() {
                if let Some(value) = value(key) {
                    selector = selector.except(key, value);
                }
            }
            selector
        });
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.extend(pod.metadata.namespace.clone());
        }
        namespaces.sort_unstable();
        let namespace_selector = term.namespace_selector.as_ref().map(LabelSelector::new);
        Arc::new(Self { namespaces, namespace_selector, selector, topology_key: term.topology_key.clone() })
    }

    /// Whether a pod matches the term.
    pub fn matches(&self, namespace: &str, namespace_labels: Option<&Labels>, labels: Option<&Labels>) -> bool {
        self.in_namespace(namespace, namespace_labels)
            && self.selector.as_ref().is_some_and(|selector| selector.matches_labels(labels))
    }

    /// Whether a namespace matches the term.
    pub fn in_namespace(&self, namespace: &str, labels: Option<&Labels>) -> bool {
        self.namespaces.iter().any(|mine| mine == namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches_labels(labels))
    }
}

impl PodInfo {
    /// Parses a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let spec = pod.spec.as_deref();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Self {
            key: key_of(&pod.metadata),
            priority: spec.and_then(|spec| spec.priority).unwrap_or(0),
            requests: Requests::of(&pod),
            ports: spec.map(host_ports).unwrap_or_default(),
            affinity: spec.and_then(|spec| spec.affinity.as_ref()).and_then(|affinity| pod_affinity(affinity, &pod)),
            volume_claims: spec.map(|spec| volume_claims(spec, namespace, &pod)).unwrap_or_default(),
            pod,
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The labels.
    pub fn labels(&self) -> Option<&Labels> {
        self.pod.metadata.labels.as_ref()
    }

    /// The spec.
    pub fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
        self.pod.spec.as_deref().unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
    }

    /// Whether the pod fits on every eligible node: it requests nothing that can run out.
    pub fn fits_everywhere(&self) -> bool {
        let spec = self.spec();
        let free = self.requests.exact.is_empty() && self.ports.is_empty() && self.volume_claims.is_empty();
        let alone = self.affinity.is_none() && spec.topology_spread_constraints.is_none();
        let plain = spec.resource_claims.is_none() && spec.scheduling_gates.is_none();
        let usual = spec.scheduler_name.as_deref().is_none_or(|name| name == "default-scheduler");
        free && alone && plain && usual
    }

    /// Whether the pod has a deletion timestamp.
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// `status.nominatedNodeName`.
    pub fn nominated_node(&self) -> Option<&str> {
        self.pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
    }
}

/// Whether a pod has terminated and holds no resources.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some(HostPort { ip, protocol, port: number })
        })
        .collect()
}

fn pod_affinity(affinity: &Affinity, pod: &Pod) -> Option<Box<PodAffinity>> {
    let (near, far) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    let required =
        |terms: Option<&Vec<PodAffinityTerm>>| terms.into_iter().flatten().map(|t| Term::new(t, pod)).collect();
    let preferred = |terms: Option<&Vec<WeightedPodAffinityTerm>>, sign: i64| {
        let terms = terms.into_iter().flatten();
        terms.map(|t| (sign * i64::from(t.weight), Term::new(&t.pod_affinity_term, pod))).collect::<Vec<_>>()
    };
    let mut all = PodAffinity {
        required: required(near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
        anti: required(far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
        preferred: preferred(near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()), 1),
    };
    all.preferred
        .extend(preferred(far.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()), -1));
    let any = !(all.required.is_empty() && all.anti.is_empty() && all.preferred.is_empty());
    any.then(|| Box::new(all))
}

fn volume_claims(spec: &PodSpec, namespace: &str, pod: &Pod) -> Vec<Arc<str>> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let claims = spec.volumes.iter().flatten().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
        claim.or_else(|| volume.ephemeral.as_ref().map(|_| format!("{name}-{}", volume.name)))
    });
    claims.map(|claim| format!("{namespace}/{claim}").into()).collect()
}
