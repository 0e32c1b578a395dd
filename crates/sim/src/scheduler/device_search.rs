//! Depth-first device allocation on one node: selectors, counts, taints, `matchAttribute` and `distinctAttribute`
//! constraints, and shared counters of partitionable devices.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, Device, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    ResourceSlice,
};

use super::devices::{Allocation, DeviceAlternative, DeviceId, Devices};
use super::state::NodeState;
use capstan_semantics::node_selector::NodeTerms;
use capstan_semantics::quantity::milli;

/// Number of steps after which the search stops.
const MAX_STEPS: usize = 20_000;
/// Maximum number of devices per claim.
const MAX_DEVICES: usize = 32;

/// A device that could be allocated.
struct Candidate<'a> {
    id: DeviceId,
    device: &'a Device,
    slice: &'a ResourceSlice,
    used: bool,
}

/// An allocated device: claim, request, subrequest and device.
#[derive(Clone, Copy)]
struct Taken {
    claim: usize,
    request: usize,
    option: usize,
    device: usize,
}

/// A depth-first search for devices on one node.
pub(super) struct Search<'a> {
    devices: &'a Devices<'a>,
    candidates: Vec<Candidate<'a>>,
    /// Remaining shared counters, by driver, pool, counter set and counter, in thousandths.
    counters: HashMap<(String, String, String, String), i64>,
    taken: Vec<Taken>,
    steps: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(devices: &'a Devices<'a>, node: &NodeState) -> Self {
        let ledger = devices.ledger;
        let labels = node.node.as_ref().and_then(|node| node.metadata.labels.as_ref());
        let selected = |selector: &NodeSelector| NodeTerms::new(selector).matches(&node.name, labels);
        let local = ledger.local.get(&*node.name).into_iter().flat_map(BTreeMap::values);
        let shared = ledger.shared.values().filter(|slice| {
            let spec = &slice.spec;
            spec.all_nodes == Some(true)
                || spec.per_device_node_selection == Some(true)
                || spec.node_selector.as_ref().is_some_and(selected)
        });
        let slices: Vec<&'a Arc<ResourceSlice>> = local.chain(shared).collect();
        // Only the newest generation of a pool counts.
        let mut newest: HashMap<(&str, &str), i64> = HashMap::new();
        for slice in &slices {
            let generation = newest.entry((&slice.spec.driver, &slice.spec.pool.name)).or_insert(i64::MIN);
            *generation = (*generation).max(slice.spec.pool.generation);
        }
        let mut search =
            Self { devices, candidates: Vec::new(), counters: HashMap::new(), taken: Vec::new(), steps: 0 };
        for slice in slices {
            let spec = &slice.spec;
            if newest.get(&(spec.driver.as_str(), spec.pool.name.as_str())) != Some(&spec.pool.generation) {
                continue;
            }
            for set in spec.shared_counters.iter().flatten() {
                for (name, counter) in &set.counters {
                    let key = (spec.driver.clone(), spec.pool.name.clone(), set.name.clone(), name.clone());
                    *search.counters.entry(key).or_default() += milli(&counter.value);
                }
            }
            for device in spec.devices.iter().flatten() {
                let here = spec.per_device_node_selection != Some(true)
                    || device.all_nodes == Some(true)
                    || device.node_name.as_deref() == Some(&*node.name)
                    || device.node_selector.as_ref().is_some_and(selected);
                let id =
                    DeviceId { driver: spec.driver.clone(), pool: spec.pool.name.clone(), device: device.name.clone() };
                if here {
                    let used = ledger.is_used(&id);
                    search.candidates.push(Candidate { id, device, slice, used });
                }
            }
        }
        for at in 0..search.candidates.len() {
            if search.candidates[at].used {
                search.consume(at, 1);
            }
        }
        search
    }

    /// Allocates devices for all requests from this one on.
    pub(super) fn solve(&mut self, claim: usize, request: usize) -> Result<bool, String> {
        let Some(open) = self.devices.open.get(claim) else { return Ok(true) };
        let Some(wanted) = open.requests.get(request) else { return self.solve(claim + 1, 0) };
        for option in 0..wanted.options.len() {
            let found = match self.devices.open[claim].requests[request].options[option].count {
                Some(count) => self.take(Taken { claim, request, option, device: 0 }, count)?,
                None => self.take_all(Taken { claim, request, option, device: 0 })?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Allocates `count` devices, from `next.device` on.
    fn take(&mut self, next: Taken, count: usize) -> Result<bool, String> {
        if count == 0 {
            return self.solve(next.claim, next.request + 1);
        }
        for device in next.device..self.candidates.len() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Ok(false);
            }
            let taken = Taken { device, ..next };
            if self.may_take(taken)? {
                self.push(taken);
                if self.take(Taken { device: device + 1, ..next }, count - 1)? {
                    return Ok(true);
                }
                self.pop();
            }
        }
        Ok(false)
    }

    /// Allocates every device that matches; all must be free.
    fn take_all(&mut self, next: Taken) -> Result<bool, String> {
        let before = self.taken.len();
        for device in 0..self.candidates.len() {
            let taken = Taken { device, ..next };
            if !self.selects(taken)? {
                continue;
            }
            if !self.may_take(taken)? {
                while self.taken.len() > before {
                    self.pop();
                }
                return Ok(false);
            }
            self.push(taken);
        }
        if self.taken.len() > before && self.solve(next.claim, next.request + 1)? {
            return Ok(true);
        }
        while self.taken.len() > before {
            self.pop();
        }
        Ok(false)
    }

    fn wanted(&self, taken: Taken) -> &'a DeviceAlternative {
        &self.devices.open[taken.claim].requests[taken.request].options[taken.option]
    }

    fn may_take(&self, taken: Taken) -> Result<bool, String> {
        let candidate = &self.candidates[taken.device];
        let wanted = self.wanted(taken);
        let in_claim = self.taken.iter().filter(|other| other.claim == taken.claim).count();
        let again = self.taken.iter().any(|other| other.device == taken.device && !self.wanted(*other).admin);
        Ok(in_claim < MAX_DEVICES
            && (wanted.admin || (!candidate.used && !again && self.has_counters(taken.device)))
            && self.selects(taken)?
            && self.constraints_hold(taken))
    }

    fn selects(&self, taken: Taken) -> Result<bool, String> {
        let (candidate, wanted) = (&self.candidates[taken.device], self.wanted(taken));
        let claim = &self.devices.open[taken.claim].claim.metadata;
        let class = wanted.class.spec.iter().flat_map(|spec| spec.selectors.iter().flatten()).enumerate().map(
            |(at, selector)| {
                let name = wanted.class.metadata.name.as_deref().unwrap_or_default();
                (format!("class {name}: selector #{at}"), selector)
            },
        );
        let own = wanted.selectors.iter().enumerate().map(|(at, selector)| {
            let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
            let key = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
            (format!("claim {key}: selector #{at}"), selector)
        });
        for (what, selector) in class.chain(own) {
            let Some(cel) = &selector.cel else { continue };
            let selectors = &self.devices.ledger.selectors;
            let DeviceId { driver, pool, device } = &candidate.id;
            if !selectors
                .matches(&cel.expression, candidate.slice, candidate.device)
                .map_err(|error| format!("{what} on device {driver}/{pool}/{device}: {error}"))?
            {
                return Ok(false);
            }
        }
        let taints = candidate.device.taints.iter().flatten();
        let mut hard = taints.filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        Ok(hard.all(|taint| {
            wanted.tolerations.iter().any(|toleration| {
                let (key, value) = (toleration.key.as_deref(), toleration.value.as_deref());
                let effect = toleration.effect.as_deref();
                let exists = toleration.operator.as_deref() == Some("Exists");
                effect.is_none_or(|effect| effect.is_empty() || effect == taint.effect)
                    && key.is_none_or(|key| key.is_empty() || key == taint.key)
                    && (exists || value.unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
            })
        }))
    }

    fn constraints_hold(&self, taken: Taken) -> bool {
        let open = &self.devices.open[taken.claim];
        open.constraints.iter().all(|constraint| {
            let concerns = |taken: &Taken| {
                let names = constraint.requests.as_ref().filter(|names| !names.is_empty());
                let (request, option) = (&open.requests[taken.request].name, &self.wanted(*taken).name);
                names.is_none_or(|names| names.iter().any(|name| name == request || name == option))
            };
            if !concerns(&taken) {
                return true;
            }
            let mut others = self.taken.iter().filter(|other| other.claim == taken.claim && concerns(other));
            match (&constraint.match_attribute, &constraint.distinct_attribute) {
                (Some(name), _) => match self.attribute(taken.device, name) {
                    Some(value) => others.all(|other| self.attribute(other.device, name).as_ref() == Some(&value)),
                    None => false,
                },
                (None, Some(name)) => match self.attribute(taken.device, name) {
                    Some(value) => others.all(|other| self.attribute(other.device, name).as_ref() != Some(&value)),
                    None => false,
                },
                (None, None) => true,
            }
        })
    }

    /// An attribute by its qualified name; devices omit the domain of their driver.
    fn attribute(&self, device: usize, name: &str) -> Option<serde_json::Value> {
        let candidate = &self.candidates[device];
        let attributes = candidate.device.attributes.as_ref()?;
        let short = name.strip_prefix(candidate.id.driver.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let attribute = attributes.get(name).or_else(|| attributes.get(short?))?;
        serde_json::to_value(attribute).ok()
    }

    fn has_counters(&self, device: usize) -> bool {
        let candidate = &self.candidates[device];
        candidate.device.consumes_counters.iter().flatten().all(|consumption| {
            consumption.counters.iter().all(|(name, counter)| {
                let key = Self::counter(candidate, &consumption.counter_set, name);
                self.counters.get(&key).is_some_and(|left| *left >= milli(&counter.value))
            })
        })
    }

    fn consume(&mut self, device: usize, sign: i64) {
        let candidate = &self.candidates[device];
        for consumption in candidate.device.consumes_counters.iter().flatten() {
            for (name, counter) in &consumption.counters {
                let key = Self::counter(candidate, &consumption.counter_set, name);
                *self.counters.entry(key).or_default() -= sign * milli(&counter.value);
            }
        }
    }

    fn counter(candidate: &Candidate<'_>, set: &str, name: &str) -> (String, String, String, String) {
        (candidate.id.driver.clone(), candidate.id.pool.clone(), set.to_owned(), name.to_owned())
    }

    fn push(&mut self, taken: Taken) {
        if !self.wanted(taken).admin {
            self.consume(taken.device, 1);
        }
        self.taken.push(taken);
    }

    fn pop(&mut self) {
        if let Some(taken) = self.taken.pop()
            && !self.wanted(taken).admin
        {
            self.consume(taken.device, -1);
        }
    }

    pub(super) fn results(&self) -> Vec<Allocation> {
        let open = self.devices.open.iter().enumerate();
        open.map(|(at, open)| Allocation { claim: open.claim.clone(), result: self.result(at) }).collect()
    }

    fn result(&self, claim: usize) -> AllocationResult {
        let taken: Vec<Taken> = self.taken.iter().filter(|taken| taken.claim == claim).copied().collect();
        let results = taken.iter().map(|taken| {
            let (id, wanted) = (&self.candidates[taken.device].id, self.wanted(*taken));
            DeviceRequestAllocationResult {
                request: wanted.name.clone(),
                driver: id.driver.clone(),
                pool: id.pool.clone(),
                device: id.device.clone(),
                admin_access: wanted.admin.then_some(true),
                tolerations: (!wanted.tolerations.is_empty()).then(|| wanted.tolerations.clone()),
                ..DeviceRequestAllocationResult::default()
            }
        });
        let config = self.configuration(claim, &taken);
        AllocationResult {
            allocation_timestamp: None,
            devices: Some(DeviceAllocationResult {
                results: Some(results.collect()),
                config: (!config.is_empty()).then_some(config),
            }),
            node_selector: self.node_selector(&taken),
        }
    }

    /// Configuration of the classes, then of the claim.
    fn configuration(&self, claim: usize, taken: &[Taken]) -> Vec<DeviceAllocationConfiguration> {
        let open = &self.devices.open[claim];
        let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
        let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for taken in taken {
            let wanted = self.wanted(*taken);
            if names.contains(&wanted.name.as_str()) {
                continue;
            }
            names.push(&wanted.name);
            let class = wanted.class.metadata.name.as_deref().unwrap_or_default();
            match classes.iter_mut().find(|(name, _)| *name == class) {
                Some((_, requests)) => requests.push(wanted.name.clone()),
                None => classes.push((class, vec![wanted.name.clone()])),
            }
        }
        for (class, requests) in &classes {
            let wanted = taken.iter().map(|taken| self.wanted(*taken));
            let mut found = wanted.filter(|wanted| wanted.class.metadata.name.as_deref().unwrap_or_default() == *class);
            for config in found
                .next()
                .into_iter()
                .flat_map(|wanted| wanted.class.spec.iter().flat_map(|spec| spec.config.iter().flatten()))
            {
                all.push(DeviceAllocationConfiguration {
                    source: "FromClass".to_owned(),
                    requests: (requests.len() < open.requests.len()).then(|| requests.clone()),
                    opaque: config.opaque.clone(),
                });
            }
        }
        let spec = open.claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
        for config in spec.into_iter().flat_map(|devices| devices.config.iter().flatten()) {
            let concerned = config.requests.as_ref().filter(|requests| !requests.is_empty());
            let base = |name: &str| name.split_once('/').map_or(name.to_owned(), |(base, _)| base.to_owned());
            let known = |request: &String| names.iter().any(|name| *name == request || base(name) == *request);
            if concerned.is_none_or(|requests| requests.iter().any(known)) {
                let all_requests = concerned.is_some_and(|requests| {
                    open.requests.iter().all(|request| requests.iter().any(|name| base(name) == request.name))
                });
                all.push(DeviceAllocationConfiguration {
                    source: "FromClaim".to_owned(),
                    requests: concerned.filter(|_| !all_requests).cloned(),
                    opaque: config.opaque.clone(),
                });
            }
        }
        all
    }

    /// Node selector of the allocation: one node, nodes with certain labels, or all.
    fn node_selector(&self, taken: &[Taken]) -> Option<NodeSelector> {
        let mut term = NodeSelectorTerm::default();
        for taken in taken {
            let Candidate { device, slice, .. } = &self.candidates[taken.device];
            let per_device = slice.spec.per_device_node_selection == Some(true);
            let (name, selector) = if per_device {
                (&device.node_name, &device.node_selector)
            } else {
                (&slice.spec.node_name, &slice.spec.node_selector)
            };
            if let Some(name) = name.as_ref().filter(|name| !name.is_empty()) {
                let named = NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(vec![name.clone()]),
                };
                let term = NodeSelectorTerm { match_fields: Some(vec![named]), ..NodeSelectorTerm::default() };
                return Some(NodeSelector { node_selector_terms: vec![term] });
            }
            if let Some(more) = selector.as_ref().and_then(|selector| selector.node_selector_terms.first()) {
                extend(&mut term.match_expressions, &more.match_expressions);
                extend(&mut term.match_fields, &more.match_fields);
            }
        }
        let says_something = term.match_expressions.is_some() || term.match_fields.is_some();
        says_something.then(|| NodeSelector { node_selector_terms: vec![term] })
    }
}

fn extend(mine: &mut Option<Vec<NodeSelectorRequirement>>, more: &Option<Vec<NodeSelectorRequirement>>) {
    for requirement in more.iter().flatten() {
        let mine = mine.get_or_insert_default();
        if !mine.contains(requirement) {
            mine.push(requirement.clone());
        }
    }
}
