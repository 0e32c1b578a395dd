//! Aggregates over the nodes of a cluster: operating systems, kernels, runtimes, deploy labels.
//!
//! Computed from node labels in one pass, without copying nodes: [`Fleet::add`] reads cached nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use capstan_plan::Tree;

use super::nodes;
use super::upgrade::Unfinished;

/// Whether the node has GPUs to be used.
pub(crate) const PRESENT: &str = capstan_node::labels::GPU_PRESENT;

/// The NVIDIADriver that owns a node's driver.
pub(crate) const OWNER: &str = capstan_node::labels::DRIVER_OWNER;

/// Prefix of deploy labels.
pub(crate) const DEPLOY: &str = capstan_node::labels::DEPLOY_PREFIX;

const NFD: &str = "feature.node.kubernetes.io/";
pub(crate) const OS_ID: &str = "feature.node.kubernetes.io/system-os_release.ID";
pub(crate) const OS_VERSION: &str = "feature.node.kubernetes.io/system-os_release.VERSION_ID";
pub(crate) const KERNEL: &str = "feature.node.kubernetes.io/kernel-version.full";
pub(crate) const OSTREE: &str = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION";

/// An operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Os {
    /// `ubuntu`, `rhel` …
    pub id: String,
    /// `24.04`, `9.6` …
    pub version: String,
}

impl Os {
    /// As in the tags of driver images: `ubuntu24.04`, `rhel9`.
    pub fn tag(&self) -> String {
        let major_only = ["ol", "rocky", "rhel"].contains(&self.id.as_str());
        let version = if major_only { self.version.split('.').next().unwrap_or_default() } else { &self.version };
        format!("{}{version}", self.id)
    }
}

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.id, self.version)
    }
}

/// What selects the driver image of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Operating system.
    pub os: Os,
    /// Kernel, if it is known.
    pub kernel: Option<String>,
    /// RHCOS version, if it is RHCOS.
    pub rhcos: Option<String>,
}

/// Container runtime of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContainerRuntime {
    /// containerd.
    #[default]
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker.
    Docker,
}

impl ContainerRuntime {
    /// Its name in toolkit settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "crio",
            Self::Docker => "docker",
        }
    }

    /// That of a node.
    pub fn of<T: Tree>(node: &T) -> Option<Self> {
        Self::parse(node.at("status").at("nodeInfo").at("containerRuntimeVersion").text()?)
    }

    /// From `containerd://2.1.0`.
    fn parse(version: &str) -> Option<Self> {
        match version.split(':').next()? {
            "containerd" => Some(Self::Containerd),
            "cri-o" => Some(Self::Crio),
            "docker" => Some(Self::Docker),
            _ => None,
        }
    }
}

/// Aggregates over nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fleet {
    /// Number of GPU nodes.
    pub gpu_nodes: usize,
    /// Number of nodes with GPUs by NFD that we have not labelled yet.
    pub unlabelled: usize,
    /// Whether feature discovery has labelled any node.
    pub discovered: bool,
    /// GPU nodes by operating system.
    pub systems: BTreeMap<Os, usize>,
    /// GPU nodes with unknown operating system, by missing label; one example each.
    pub unknown: BTreeMap<&'static str, String>,
    /// Operating systems by kernel, of GPU nodes.
    pub kernels: BTreeMap<String, BTreeSet<Os>>,
    /// A GPU node without a kernel label.
    pub without_kernel: Option<String>,
    /// RHCOS versions of GPU nodes.
    pub rhcos: BTreeSet<String>,
    /// GPU nodes by container runtime.
    pub runtimes: BTreeMap<ContainerRuntime, usize>,
    /// Nodes by deploy label.
    pub deploy: BTreeMap<String, usize>,
    /// GPU nodes by owning NVIDIADriver, if their operating system is known.
    pub owned: BTreeMap<String, BTreeMap<Place, usize>>,
    /// Unfinished upgrades of nodes with an NVIDIADriver.
    pub upgrades: Unfinished,
}

impl Fleet {
    /// Adds a node.
    pub fn add<T: Tree>(&mut self, node: &T) {
        let node = nodes::Node::of(node);
        let (name, labels) = (node.name, node.labels);
        let label = |key: &str| labels.get(key).filter(|value| !value.is_empty());
        self.upgrades.add(&node);
        labels.each(|key, value| {
            self.discovered |= key.starts_with(NFD);
            if let Some(operand) = key.strip_prefix(DEPLOY).filter(|_| value == "true") {
                *self.deploy.entry(operand.into()).or_default() += 1;
            }
        });
        if label(PRESENT) != Some("true") {
            self.unlabelled += usize::from(nodes::has_gpu(labels));
            return;
        }
        self.gpu_nodes += 1;
        let os = match (label(OS_ID), label(OS_VERSION)) {
            (Some(id), Some(version)) => Some(Os { id: id.into(), version: version.into() }),
            (id, _) => {
                let missing = if id.is_none() { OS_ID } else { OS_VERSION };
                self.unknown.entry(missing).or_insert_with(|| name.into());
                None
            }
        };
        if let Some(os) = os {
            if let Some(owner) = label(OWNER) {
                let text = |key: &str| label(key).map(String::from);
                let place = Place { os: os.clone(), kernel: text(KERNEL), rhcos: text(OSTREE) };
                *self.owned.entry(owner.into()).or_default().entry(place).or_default() += 1;
            }
            match label(KERNEL) {
                Some(kernel) => drop(self.kernels.entry(kernel.into()).or_default().insert(os.clone())),
                None => self.without_kernel = Some(name.into()),
            }
            *self.systems.entry(os).or_default() += 1;
        }
        self.rhcos.extend(label(OSTREE).map(String::from));
        if let Some(runtime) = node.runtime {
            *self.runtimes.entry(runtime).or_default() += 1;
        }
    }

    /// Adds `other` that many times.
    pub fn add_all(&mut self, other: &Self, times: usize) {
        fn sum<K: Ord + Clone>(to: &mut BTreeMap<K, usize>, from: &BTreeMap<K, usize>, times: usize) {
            from.iter().for_each(|(key, count)| *to.entry(key.clone()).or_default() += count * times);
        }
        self.gpu_nodes += other.gpu_nodes * times;
        self.unlabelled += other.unlabelled * times;
        self.discovered |= other.discovered;
        sum(&mut self.systems, &other.systems, times);
        for (label, name) in &other.unknown {
            let known = self.unknown.entry(*label).or_insert_with(|| name.clone());
            if *name < *known {
                known.clone_from(name);
            }
        }
        for (kernel, systems) in &other.kernels {
            self.kernels.entry(kernel.clone()).or_default().extend(systems.iter().cloned());
        }
        self.without_kernel = self.without_kernel.take().max(other.without_kernel.clone());
        self.rhcos.extend(other.rhcos.iter().cloned());
        sum(&mut self.runtimes, &other.runtimes, times);
        sum(&mut self.deploy, &other.deploy, times);
        for (owner, places) in &other.owned {
            sum(self.owned.entry(owner.clone()).or_default(), places, times);
        }
        self.upgrades.add_all(&other.upgrades, times);
    }

    /// The main runtime of operands: containerd wherever there is one.
    pub fn runtime(&self) -> ContainerRuntime {
        self.runtimes.keys().next().copied().unwrap_or_default()
    }

    /// The operating system of most GPU nodes.
    pub fn system(&self) -> Option<&Os> {
        self.systems.iter().max_by_key(|(os, count)| (**count, std::cmp::Reverse(*os))).map(|(os, _)| os)
    }

    /// The node kinds of an NVIDIADriver.
    pub fn owned_by(&self, driver: &str) -> impl Iterator<Item = &Place> {
        self.owned.get(driver).into_iter().flat_map(BTreeMap::keys)
    }

    /// Number of nodes with the deploy label of `operand`.
    pub fn wanting(&self, operand: &str) -> usize {
        self.deploy.get(operand).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: Value, runtime: &str) -> Value {
        json!({
            "metadata": {"name": "n", "labels": labels},
            "status": {"nodeInfo": {"containerRuntimeVersion": runtime}},
        })
    }

    #[test]
    fn tags_of_systems_are_those_of_driver_images() {
        let table = [
            ("ubuntu", "22.04", "ubuntu22.04"),
            ("rhel", "9.4", "rhel9"),
            ("rocky", "9.5", "rocky9"),
            ("ol", "9.1", "ol9"),
            ("sles", "15.6", "sles15.6"),
            ("sl-micro", "6.0", "sl-micro6.0"),
            ("talos", "v1.7.6", "talosv1.7.6"),
            ("rhel", "10", "rhel10"),
        ];
        for (id, version, tag) in table {
            assert_eq!(Os { id: id.into(), version: version.into() }.tag(), tag);
        }
    }

    #[test]
    fn only_nodes_with_gpus_count_for_systems_kernels_and_runtimes() {
        let mut fleet = Fleet::default();
        fleet.add(&node(json!({OS_ID: "debian", OS_VERSION: "12", KERNEL: "k0"}), "cri-o://1"));
        assert!(fleet.discovered && fleet.systems.is_empty() && fleet.kernels.is_empty() && fleet.runtimes.is_empty());
        let labels = json!({PRESENT: "true", OS_ID: "ubuntu", OS_VERSION: "24.04", KERNEL: "k1",
            "nvidia.com/gpu.deploy.driver": "true", "nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade"});
        fleet.add(&node(labels, "containerd://2.1.0"));
        assert_eq!((fleet.gpu_nodes, fleet.wanting("driver"), fleet.wanting("dcgm")), (1, 1, 0));
        assert_eq!(fleet.system().unwrap().tag(), "ubuntu24.04");
        assert_eq!(fleet.kernels.keys().collect::<Vec<_>>(), ["k1"]);
    }

    #[test]
    fn a_node_with_gpus_that_is_not_labelled_yet_is_waited_for() {
        let mut fleet = Fleet::default();
        fleet.add(&node(json!({"feature.node.kubernetes.io/pci-10de.present": "true"}), ""));
        assert_eq!((fleet.gpu_nodes, fleet.unlabelled), (0, 1));
    }

    #[test]
    fn containerd_counts_as_soon_as_one_node_has_it() {
        let gpu = |runtime: &str| node(json!({PRESENT: "true"}), runtime);
        let runtime = |versions: &[&str]| {
            let mut fleet = Fleet::default();
            versions.iter().for_each(|version| fleet.add(&gpu(version)));
            fleet.runtime()
        };
        assert_eq!(runtime(&[]), ContainerRuntime::Containerd);
        assert_eq!(runtime(&["rkt://1"]), ContainerRuntime::Containerd);
        assert_eq!(runtime(&["cri-o://1.30"]), ContainerRuntime::Crio);
        assert_eq!(runtime(&["docker://27"]), ContainerRuntime::Docker);
        assert_eq!(runtime(&["cri-o://1.30", "containerd://1.7"]), ContainerRuntime::Containerd);
    }

    #[test]
    fn nodes_that_are_alike_can_be_counted_at_once() {
        let labels = |number: usize| match number % 4 {
            0 => json!({PRESENT: "true", OS_ID: "ubuntu", OS_VERSION: "24.04", KERNEL: "k1", OWNER: "a",
                "nvidia.com/gpu.deploy.driver": "true"}),
            1 => json!({PRESENT: "true", OS_ID: "rhel", OS_VERSION: "9.4", OSTREE: "9.4.1", OWNER: "b",
                "nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}),
            2 => json!({PRESENT: "true"}),
            _ => json!({"feature.node.kubernetes.io/pci-10de.present": "true"}),
        };
        let (mut one_by_one, mut kinds) = (Fleet::default(), BTreeMap::<Fleet, usize>::new());
        for number in 0..10 {
            let mut node = node(labels(number), "containerd://2");
            node["metadata"]["name"] = format!("n{number}").into();
            one_by_one.add(&node);
            let mut alone = Fleet::default();
            alone.add(&node);
            *kinds.entry(alone).or_default() += 1;
        }
        let mut at_once = Fleet::default();
        kinds.iter().for_each(|(kind, count)| at_once.add_all(kind, *count));
        assert_eq!(at_once, one_by_one);
        assert!(kinds.len() < 8, "{} kinds", kinds.len());
    }

    #[test]
    fn a_node_without_its_system_is_an_example_under_the_label_that_lacks() {
        let mut fleet = Fleet::default();
        fleet.add(&node(json!({PRESENT: "true"}), ""));
        fleet.add(&node(json!({PRESENT: "true", OS_ID: "rhel"}), ""));
        assert_eq!(fleet.unknown.into_iter().collect::<Vec<_>>(), [(OS_ID, "n".into()), (OS_VERSION, "n".into())]);
    }
}
