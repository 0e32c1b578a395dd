//! Volume constraints of a pod on nodes, and volumes for its unbound claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::StorageClass;

use super::pod::PodInfo;
use super::state::{NodeState, State};
use super::view::View;
use capstan_semantics::LabelSelector;
use capstan_semantics::node_selector::NodeTerms;
use capstan_semantics::quantity::units;

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Result for a claim with `WaitForFirstConsumer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is bound to this volume.
    Volume(String),
    /// A volume is provisioned for it.
    Provision,
}

/// Why volumes reject a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFailure {
    /// The node affinity of the volume does not match.
    NodeAffinity,
    /// There is no volume, and none can be provisioned.
    NoVolume,
    /// The bound volume does not exist.
    Missing,
    /// The volume is in another zone.
    Zone,
    /// Another pod uses a `ReadWriteOncePod` claim.
    InUse,
}

impl VolumeFailure {
    /// Reason, as in events.
    pub fn message(self) -> &'static str {
        match self {
            Self::NodeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::Missing => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            Self::Zone => "node(s) had no available volume zone",
            Self::InUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod"
            }
        }
    }
}

/// The volumes of a pod.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    bound: Vec<Bound>,
    open: Vec<UnboundClaim>,
    in_use: bool,
}

#[derive(Clone, Debug)]
struct Bound {
    /// `None` if the volume does not exist.
    volume: Option<Arc<PersistentVolume>>,
    affinity: Option<NodeTerms>,
}

#[derive(Clone, Debug)]
struct UnboundClaim {
    key: Arc<str>,
    /// Smallest first.
    candidates: Vec<(String, Option<NodeTerms>)>,
    /// Topologies where a volume can be provisioned, if it can.
    provision: Option<Vec<TopologySelectorTerm>>,
}

impl Volumes {
    /// Looks up the volumes of a pod. An error makes it unschedulable.
    pub fn new(pod: &PodInfo, state: &State, view: &impl View) -> Result<Self, String> {
        let mut all = Self::default();
        let mut unbound = false;
        for key in &pod.volume_claims {
            let claim = find(pod, key, view)?;
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            let alone = modes.into_iter().flatten().any(|mode| mode == "ReadWriteOncePod");
            all.in_use |= alone && state.users_of_claim(key) > 0;
            let spec = claim.spec.as_ref();
            let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).filter(|name| !name.is_empty());
            if let Some(volume) = bound_to(&claim) {
                let volume = view.volume(volume);
                let affinity = volume.as_deref().and_then(node_affinity);
                all.bound.push(Bound { volume, affinity });
                continue;
            }
            match class.and_then(|class| view.storage_class(class)) {
                Some(class) if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") => {
                    all.open.push(open(key, &claim, &class, view));
                }
                _ => unbound = true,
            }
        }
        if unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(all)
    }

    /// Whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.open.is_empty() && !self.in_use
    }

    /// Whether a `ReadWriteOncePod` claim is in use.
    pub fn in_use(&self) -> bool {
        self.in_use
    }

    /// Volumes for the pod's claims on a node.
    pub fn choose(&self, node: &NodeState) -> Result<Vec<(Arc<str>, Choice)>, Vec<VolumeFailure>> {
        let Some(object) = &node.node else { return Err(vec![VolumeFailure::NodeAffinity]) };
        let labels = object.metadata.labels.as_ref();
        let fits = |terms: &Option<NodeTerms>| terms.as_ref().is_none_or(|terms| terms.matches(&node.name, labels));
        let mut failures = Vec::new();
        for bound in &self.bound {
            match &bound.volume {
                None => failures.push(VolumeFailure::Missing),
                Some(_) if !fits(&bound.affinity) => failures.push(VolumeFailure::NodeAffinity),
                Some(volume) if !in_zone(volume, node) => failures.push(VolumeFailure::Zone),
                Some(_) => {}
            }
        }
        let mut choices: Vec<(Arc<str>, Choice)> = Vec::new();
        for open in &self.open {
            let taken = |name: &String| choices.iter().any(|(_, choice)| *choice == Choice::Volume(name.clone()));
            let found = open.candidates.iter().find(|(name, terms)| fits(terms) && !taken(name));
            let reachable =
                |terms: &Vec<TopologySelectorTerm>| terms.is_empty() || terms.iter().any(|t| in_topology(t, node));
            match found {
                Some((name, _)) => choices.push((open.key.clone(), Choice::Volume(name.clone()))),
                None if open.provision.as_ref().is_some_and(reachable) => {
                    choices.push((open.key.clone(), Choice::Provision));
                }
                None => failures.push(VolumeFailure::NoVolume),
            }
        }
        failures.dedup();
        if failures.is_empty() { Ok(choices) } else { Err(failures) }
    }
}

fn find(pod: &PodInfo, key: &str, view: &impl View) -> Result<Arc<PersistentVolumeClaim>, String> {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    let Some(claim) = view.volume_claim(key) else {
        let mut volumes = pod.spec().volumes.iter().flatten();
        let own = volumes.any(|v| v.ephemeral.is_some() && format!("{}-{}", pod.name(), v.name) == name);
        return Err(if own {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
        } else {
            format!("persistentvolumeclaim {name:?} not found")
        });
    };
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    Ok(claim)
}

/// The volume that a claim is bound to.
pub fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let volume = claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())?;
    let annotations = claim.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key("pv.kubernetes.io/bind-completed")).then_some(volume)
}

fn open(key: &Arc<str>, claim: &PersistentVolumeClaim, class: &StorageClass, view: &impl View) -> UnboundClaim {
    let mut candidates: Vec<(i64, Arc<PersistentVolume>)> =
        view.volumes().into_iter().filter_map(|volume| Some((matching_size(&volume, claim, key)?, volume))).collect();
    candidates.sort_by(|(mine, one), (theirs, other)| {
        mine.cmp(theirs).then_with(|| one.metadata.name.cmp(&other.metadata.name))
    });
    let candidates = candidates
        .into_iter()
        .map(|(_, volume)| (volume.metadata.name.clone().unwrap_or_default(), node_affinity(&volume)));
    let topologies = class.allowed_topologies.clone().unwrap_or_default();
    UnboundClaim {
        key: key.clone(),
        candidates: candidates.collect(),
        provision: (class.provisioner != NO_PROVISIONER).then_some(topologies),
    }
}

/// The size of a volume, if it matches a claim.
fn matching_size(volume: &PersistentVolume, claim: &PersistentVolumeClaim, key: &str) -> Option<i64> {
    let (spec, wanted) = (volume.spec.as_ref()?, claim.spec.as_ref()?);
    let size = units(spec.capacity.as_ref()?.get("storage")?);
    let least = wanted.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage")).map_or(0, units);
    let owner = spec.claim_ref.as_ref().map(|owner| {
        format!("{}/{}", owner.namespace.as_deref().unwrap_or_default(), owner.name.as_deref().unwrap_or_default())
    });
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Available");
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let mut modes = wanted.access_modes.iter().flatten();
    let fits = size >= least
        && spec.storage_class_name.as_deref().unwrap_or_default() == wanted.storage_class_name.as_deref()?
        && modes.all(|mode| spec.access_modes.iter().flatten().any(|have| have == mode))
        && mode(&spec.volume_mode) == mode(&wanted.volume_mode)
        && wanted
            .selector
            .as_ref()
            .is_none_or(|s| LabelSelector::new(s).matches_labels(volume.metadata.labels.as_ref()))
        && owner.is_none_or(|owner| owner == key)
        && matches!(phase, "Available" | "Pending" | "")
        && volume.metadata.deletion_timestamp.is_none();
    fits.then_some(size)
}

fn node_affinity(volume: &PersistentVolume) -> Option<NodeTerms> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
    affinity.required.as_ref().map(NodeTerms::new)
}

fn in_zone(volume: &PersistentVolume, node: &NodeState) -> bool {
    let empty = BTreeMap::new();
    let labels = volume.metadata.labels.as_ref().unwrap_or(&empty);
    ZONES.iter().all(|zone| match labels.get(*zone) {
        // Several zones are joined with two underscores.
        Some(zones) => node.label(zone).is_none_or(|mine| zones.split("__").any(|one| one == mine)),
        None => true,
    })
}

fn in_topology(term: &TopologySelectorTerm, node: &NodeState) -> bool {
    let mut expressions = term.match_label_expressions.iter().flatten();
    expressions.all(|e| node.label(&e.key).is_some_and(|value| e.values.iter().any(|mine| mine == value)))
}
