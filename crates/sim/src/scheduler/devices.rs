//! Dynamic resource allocation: free devices, and allocations for a pod on a node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, DeviceConstraint, DeviceSelector, DeviceToleration, ResourceClaim, ResourceSlice,
};

use super::device_search::Search;
use super::device_selector::Selectors;
use super::pod::PodInfo;
use super::state::NodeState;
use super::view::View;
use capstan_semantics::node_selector::NodeTerms;

/// A device by driver, pool and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId {
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
}

/// Published and allocated devices.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Node-local slices.
    pub(super) local: HashMap<String, BTreeMap<String, Arc<ResourceSlice>>>,
    /// Slices of several nodes.
    pub(super) shared: BTreeMap<String, Arc<ResourceSlice>>,
    /// Node of each slice.
    slice_nodes: HashMap<String, Option<String>>,
    claims: HashMap<String, Vec<DeviceId>>,
    used: HashMap<DeviceId, u32>,
    /// Assumed allocations that are not in the claims' status yet.
    pending: HashMap<String, Vec<DeviceId>>,
    pub(super) selectors: Selectors,
}

impl Ledger {
    /// Number of held items: slices, claims, allocated devices.
    pub(super) fn len(&self) -> usize {
        let slices = self.local.values().map(BTreeMap::len).sum::<usize>() + self.shared.len() + self.slice_nodes.len();
        slices + self.claims.len() + self.used.len() + self.pending.len()
    }

    /// A slice was created, updated or deleted.
    pub fn set_slice(&mut self, name: &str, slice: Option<&Arc<ResourceSlice>>) {
        match self.slice_nodes.remove(name) {
            Some(Some(node)) => {
                if let Some(slices) = self.local.get_mut(&node) {
                    slices.remove(name);
                    if slices.is_empty() {
                        self.local.remove(&node);
                    }
                }
            }
            Some(None) => drop(self.shared.remove(name)),
            None => {}
        }
        if let Some(slice) = slice {
            let node = slice.spec.node_name.clone().filter(|node| !node.is_empty());
            match &node {
                Some(node) => self.local.entry(node.clone()).or_default().insert(name.to_owned(), slice.clone()),
                None => self.shared.insert(name.to_owned(), slice.clone()),
            };
            self.slice_nodes.insert(name.to_owned(), node);
        }
    }

    /// A claim was created, updated or deleted.
    pub fn set_claim(&mut self, uid: &str, claim: Option<&ResourceClaim>) {
        let allocation = claim.and_then(|claim| claim.status.as_ref()?.allocation.as_ref());
        if allocation.is_some() || claim.is_none() {
            self.pending.remove(uid);
        }
        for id in self.claims.remove(uid).unwrap_or_default() {
            self.release(&id);
        }
        if let Some(allocation) = allocation {
            let ids = ids(allocation);
            for id in &ids {
                *self.used.entry(id.clone()).or_default() += 1;
            }
            self.claims.insert(uid.to_owned(), ids);
        }
    }

    /// Assumes an allocation before it is written.
    pub fn assume(&mut self, allocation: &Allocation) {
        self.pending.insert(uid(&allocation.claim).to_owned(), ids(&allocation.result));
    }

    /// Reverts an assumed allocation.
    pub fn forget(&mut self, allocation: &Allocation) {
        self.pending.remove(uid(&allocation.claim));
    }

    fn release(&mut self, id: &DeviceId) {
        if let Some(users) = self.used.get_mut(id) {
            *users -= 1;
            if *users == 0 {
                self.used.remove(id);
            }
        }
    }

    pub(super) fn is_used(&self, id: &DeviceId) -> bool {
        self.used.contains_key(id) || self.pending.values().flatten().any(|pending| pending == id)
    }
}

fn ids(allocation: &AllocationResult) -> Vec<DeviceId> {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let taken = results.filter(|result| result.admin_access != Some(true));
    taken
        .map(|result| DeviceId {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        })
        .collect()
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// An allocation of devices to a claim.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The claim.
    pub claim: Arc<ResourceClaim>,
    /// The allocation result.
    pub result: AllocationResult,
}

/// The ResourceClaims of a pod.
#[derive(Debug)]
pub struct Devices<'a> {
    pub(super) ledger: &'a Ledger,
    /// Node selectors of claims that are allocated already.
    at: Vec<NodeTerms>,
    pub(super) open: Vec<UnallocatedClaim>,
    /// All claims: the pod is reserved for each of them.
    claims: Vec<Arc<ResourceClaim>>,
}

#[derive(Debug)]
pub(super) struct UnallocatedClaim {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<DeviceConstraint>,
}

/// A request, or its `firstAvailable` alternatives in order of preference.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) options: Vec<DeviceAlternative>,
}

#[derive(Debug)]
pub(super) struct DeviceAlternative {
    /// `REQUEST`, or `REQUEST/SUBREQUEST`.
    pub(super) name: String,
    pub(super) class: Arc<DeviceClass>,
    pub(super) selectors: Vec<DeviceSelector>,
    pub(super) tolerations: Vec<DeviceToleration>,
    /// `None` for all.
    pub(super) count: Option<usize>,
    pub(super) admin: bool,
}

/// Claims of a pod: `NAMESPACE/NAME`.
pub fn claim_keys(pod: &PodInfo) -> Result<Vec<String>, String> {
    let (namespace, name) = (pod.namespace(), pod.name());
    let mut keys = Vec::new();
    for wanted in pod.spec().resource_claims.iter().flatten() {
        let made = || {
            let statuses = pod.pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
            statuses.into_iter().flatten().find(|status| status.name == wanted.name)
        };
        let claim = match (&wanted.resource_claim_name, &wanted.resource_claim_template_name) {
            (Some(claim), _) => Some(claim.clone()),
            (None, Some(_)) => match made() {
                Some(status) => status.resource_claim_name.clone(),
                None => return Err(format!(r#"pod "{namespace}/{name}": ResourceClaim not created yet"#)),
            },
            (None, None) => None,
        };
        keys.extend(claim.map(|claim| format!("{namespace}/{claim}")));
    }
    Ok(keys)
}

impl<'a> Devices<'a> {
    /// Looks up the claims of a pod; `None` if it has none. An error makes the pod unschedulable.
    pub fn new(pod: &PodInfo, view: &impl View, ledger: &'a Ledger) -> Result<Option<Self>, String> {
        let keys = claim_keys(pod)?;
        if keys.is_empty() {
            return Ok(None);
        }
        let mut all = Self { ledger, at: Vec::new(), open: Vec::new(), claims: Vec::new() };
        for key in keys {
            let name = key.split_once('/').map_or(key.as_str(), |(_, name)| name);
            let claim =
                view.resource_claim(&key).ok_or_else(|| format!("resourceclaim.resource.k8s.io {name:?} not found"))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("resourceclaim {name:?} is being deleted"));
            }
            let status = claim.status.as_ref();
            let users = status.and_then(|status| status.reserved_for.as_ref()).map_or(0, Vec::len);
            match status.and_then(|status| status.allocation.as_ref()) {
                Some(_) if users >= 256 => return Err("resourceclaim in use".to_owned()),
                Some(allocation) => all.at.extend(allocation.node_selector.as_ref().map(NodeTerms::new)),
                None if ledger.pending.contains_key(uid(&claim)) => {
                    return Err(format!("resource claim {key} is in the process of being allocated"));
                }
                None => all.open.push(open(&claim, view)?),
            }
            all.claims.push(claim);
        }
        Ok(Some(all))
    }

    /// Allocations of the pod's claims on a node. Allocated claims are listed with their allocation.
    pub fn allocate(&self, node: &NodeState) -> Result<Vec<Allocation>, String> {
        let labels = node.node.as_ref().and_then(|node| node.metadata.labels.as_ref());
        if !self.at.iter().all(|terms| terms.matches(&node.name, labels)) {
            return Err("resourceclaim not available on the node".to_owned());
        }
        let mut made = Vec::new();
        if !self.open.is_empty() {
            let mut search = Search::new(self, node);
            if !search.solve(0, 0)? {
                return Err("cannot allocate all claims".to_owned());
            }
            made = search.results();
        }
        for claim in &self.claims {
            if let Some(result) = claim.status.as_ref().and_then(|status| status.allocation.clone()) {
                made.push(Allocation { claim: claim.clone(), result });
            }
        }
        Ok(made)
    }
}

fn open(claim: &Arc<ResourceClaim>, view: &impl View) -> Result<UnallocatedClaim, String> {
    let spec = claim.spec.as_ref().and_then(|spec| spec.devices.clone()).unwrap_or_default();
    let class = |name: &str, request: &str| {
        view.device_class(name).ok_or_else(|| format!("request {request}: device class {name} does not exist"))
    };
    let count = |mode: &Option<String>, count: Option<i64>| match mode.as_deref() {
        Some("All") => None,
        _ => Some(usize::try_from(count.unwrap_or(1)).unwrap_or(1)),
    };
    let mut requests = Vec::new();
    for request in spec.requests.into_iter().flatten() {
        let mut options = Vec::new();
        if let Some(exact) = request.exactly {
            options.push(DeviceAlternative {
                class: class(&exact.device_class_name, &request.name)?,
                name: request.name.clone(),
                count: count(&exact.allocation_mode, exact.count),
                admin: exact.admin_access == Some(true),
                selectors: exact.selectors.unwrap_or_default(),
                tolerations: exact.tolerations.unwrap_or_default(),
            });
        }
        for option in request.first_available.into_iter().flatten() {
            let name = format!("{}/{}", request.name, option.name);
            options.push(DeviceAlternative {
                class: class(&option.device_class_name, &name)?,
                count: count(&option.allocation_mode, option.count),
                name,
                admin: false,
                selectors: option.selectors.unwrap_or_default(),
                tolerations: option.tolerations.unwrap_or_default(),
            });
        }
        requests.push(Request { name: request.name, options });
    }
    Ok(UnallocatedClaim { claim: claim.clone(), requests, constraints: spec.constraints.unwrap_or_default() })
}
