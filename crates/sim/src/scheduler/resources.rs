//! Resource requests of pods and resources of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Pod;
use capstan_semantics::quantity::{milli, units};

/// Requests that scoring assumes for containers without any.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `cpu`, in thousandths.
    pub milli_cpu: i64,
    /// `memory`, in bytes.
    pub memory: i64,
    /// `ephemeral-storage`, in bytes.
    pub ephemeral_storage: i64,
    /// All others, such as `hugepages-2Mi` or `example.com/device`, ordered by name.
    pub others: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// The amount of one resource: `cpu` in thousandths, all others in units.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            _ => self.find(name).map_or(0, |at| self.others[at].1),
        }
    }

    /// Whether all amounts are zero.
    pub fn is_empty(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.others.is_empty()
    }

    /// Adds amounts.
    pub fn add(&mut self, more: &Self) {
        self.combine(more, |mine, theirs| mine + theirs);
    }

    /// Subtracts amounts.
    pub fn subtract(&mut self, less: &Self) {
        self.combine(less, |mine, theirs| mine - theirs);
    }

    /// Raises each amount to at least that of the other.
    fn raise(&mut self, least: &Self) {
        self.combine(least, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.others {
            match self.others.binary_search_by(|(mine, _)| mine.cmp(name)) {
                Ok(at) => self.others[at].1 = with(self.others[at].1, *amount),
                Err(at) => self.others.insert(at, (name.clone(), with(0, *amount))),
            }
        }
    }

    fn set(&mut self, name: &str, quantity: &Quantity) {
        match name {
            "cpu" => self.milli_cpu = milli(quantity),
            "memory" => self.memory = units(quantity),
            "ephemeral-storage" => self.ephemeral_storage = units(quantity),
            _ => match self.others.binary_search_by(|(mine, _)| (**mine).cmp(name)) {
                Ok(at) => self.others[at].1 = units(quantity),
                Err(at) => self.others.insert(at, (name.into(), units(quantity))),
            },
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.others.binary_search_by(|(mine, _)| (**mine).cmp(name)).ok()
    }

    /// Parses a resource list such as `status.allocatable`, except `pods`.
    pub fn of_list(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            if name != "pods" {
                amounts.set(name, quantity);
            }
        }
        amounts
    }
}

/// Resource requests of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests as given.
    pub exact: Resources,
    /// `cpu` in thousandths with a default for containers without a request.
    pub assumed_milli_cpu: i64,
    /// `memory` in bytes with a default for containers without a request.
    pub assumed_memory: i64,
}

impl Requests {
    /// Effective requests of a pod: the sum of containers and sidecars, or the largest init container with the sidecars
    /// before it.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let exact = total(spec, |container| Resources::of_list(requests(container.resources.as_ref())));
        let assumed = total(spec, assumed);
        let mut all = Self { exact, assumed_milli_cpu: assumed.milli_cpu, assumed_memory: assumed.memory };
        let pod_level = spec.resources.as_ref().and_then(|r| r.requests.as_ref().or(r.limits.as_ref()));
        for (name, quantity) in pod_level.into_iter().flatten() {
            match name.as_str() {
                "cpu" => all.assumed_milli_cpu = milli(quantity),
                "memory" => all.assumed_memory = units(quantity),
                _ if name.starts_with("hugepages-") => {}
                _ => continue,
            }
            all.exact.set(name, quantity);
        }
        let overhead = Resources::of_list(spec.overhead.as_ref());
        all.assumed_milli_cpu += overhead.milli_cpu;
        all.assumed_memory += overhead.memory;
        all.exact.add(&overhead);
        all.exact.others.retain(|(_, amount)| *amount != 0);
        all
    }
}

fn total(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let mut staying = Resources::default();
    let mut most = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut now = of(container);
        if is_sidecar(container) {
            staying.add(&now);
            now = staying.clone();
        } else {
            now.add(&staying);
        }
        most.raise(&now);
    }
    for container in &spec.containers {
        staying.add(&of(container));
    }
    staying.raise(&most);
    staying
}

fn assumed(container: &Container) -> Resources {
    let mut amounts = Resources::default();
    let requested = requests(container.resources.as_ref());
    let find = |name| requested.and_then(|list| list.get(name));
    amounts.milli_cpu = find("cpu").map_or(DEFAULT_MILLI_CPU, milli);
    amounts.memory = find("memory").map_or(DEFAULT_MEMORY, units);
    amounts
}

fn requests(resources: Option<&ResourceRequirements>) -> Option<&BTreeMap<String, Quantity>> {
    resources?.requests.as_ref()
}

/// Whether an init container is a sidecar (`restartPolicy: Always`).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/device": "1"}}})
    }

    #[test]
    fn init_containers_count_while_they_run() {
        let mut sidecar = container("300m");
        sidecar["restartPolicy"] = json!("Always");
        let cases = [
            (json!({"containers": [container("1"), container("500m")]}), 1500, 2),
            (json!({"initContainers": [container("2")], "containers": [container("1")]}), 2000, 1),
            (json!({"initContainers": [sidecar.clone(), container("2")], "containers": [container("1")]}), 2300, 2),
            (json!({"initContainers": [container("2"), sidecar], "containers": [container("1")]}), 2000, 2),
            (json!({"overhead": {"cpu": "250m"}, "containers": [container("1")]}), 1250, 1),
            (json!({"resources": {"requests": {"cpu": "4"}}, "containers": [container("1")]}), 4000, 1),
        ];
        for (spec, cpu, devices) in cases {
            let requests = Requests::of(&pod(spec.clone()));
            assert_eq!((requests.exact.milli_cpu, requests.exact.get("example.com/device")), (cpu, devices), "{spec}");
        }
    }

    #[test]
    fn a_container_that_asks_for_nothing_is_taken_to_need_something() {
        let requests = Requests::of(&pod(json!({"containers": [{"name": "a"}, {"name": "b"}]})));
        assert!(requests.exact.is_empty());
        assert_eq!((requests.assumed_milli_cpu, requests.assumed_memory), (200, 400 << 20));
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let one = Requests::of(&pod(json!({"containers": [container("1")]}))).exact;
        let mut sum = Resources::default();
        sum.add(&one);
        sum.add(&one);
        sum.subtract(&one);
        assert_eq!(sum, one);
    }
}
