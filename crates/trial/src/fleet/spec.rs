//! File format of a simulated fleet.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use capstan_sim::NodeTemplate;
use k8s_openapi::jiff::SignedDuration;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::Result;

/// A fleet: GPU nodes, jobs and failures.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    pub(super) pools: Vec<Pool>,
    /// Changes to the ClusterPolicy of `capstan up`, under its `spec`.
    pub(super) policy: Value,
    pub(super) pace: Pace,
    pub(super) jobs: Option<Jobs>,
    pub(super) failures: Failures,
    /// Seed of the random choice of failing nodes.
    pub(super) seed: u64,
}

/// A pool of identical nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) nodes: usize,
    #[serde(default = "eight")]
    pub(super) gpus: u16,
    #[serde(default = "product")]
    product: String,
    #[serde(default = "os")]
    os: Os,
    #[serde(default = "kernel")]
    kernel: String,
}

fn eight() -> u16 {
    8
}

fn product() -> String {
    "NVIDIA-H200".into()
}

fn kernel() -> String {
    "6.8.0-45-generic".into()
}

fn os() -> Os {
    Os { id: "ubuntu".into(), version: "24.04".into() }
}

/// An operating system, such as `ubuntu24.04`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Os {
    id: String,
    version: String,
}

/// Durations of operations.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pace {
    /// Build and load of a driver.
    pub(super) driver: Time,
    /// Container toolkit setup.
    pub(super) toolkit: Time,
    /// One validator check.
    pub(super) check: Time,
    /// Image pull.
    pub(super) pull: Time,
    /// Reboot.
    pub(super) reboot: Time,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = |seconds| Time(Duration::from_secs(seconds));
        let guess = crate::plan::PACE;
        Self {
            driver: Time(guess.driver),
            toolkit: Time(guess.toolkit),
            check: Time(guess.check),
            pull: seconds(30),
            reboot: seconds(600),
        }
    }
}

impl Pace {
    pub(super) fn of_operands(&self) -> capstan_gpu_sim::Pace {
        capstan_gpu_sim::Pace { driver: self.driver.0, toolkit: self.toolkit.0, check: self.check.0 }
    }
}

/// Jobs on the GPUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jobs {
    /// Jobs per node.
    pub(super) share: Share,
    /// Average run time: from half of it to one and a half.
    pub(super) length: Time,
    /// GPUs per job.
    #[serde(default = "eight")]
    pub(super) gpus: u16,
}

/// Failures.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Failures {
    /// Share of nodes where a new driver fails to load.
    pub(super) driver: Share,
    /// Share of nodes that do not return from a reboot.
    pub(super) reboot: Share,
    /// Time until they are repaired; never if `None`.
    pub(super) repair: Option<Time>,
}

/// A duration, such as `90s`, `3m` or `4h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.parse::<SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
        read.map(Self).ok_or_else(|| format!("{text:?} is no time: write 90s, 3m or 4h"))
    }
}

/// A share, such as `1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Share(pub(super) f64);

impl std::str::FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(|percent| Self(percent / 100.0)).ok_or_else(|| format!("{text:?} is no share: write 1% or 12.5%"))
    }
}

impl Share {
    /// The share as a count of `total`, at least one if it is not zero.
    pub(super) fn of(self, total: usize) -> usize {
        (self.0 * total as f64).ceil() as usize
    }
}

impl std::str::FromStr for Os {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.find(|letter: char| letter.is_ascii_digit());
        let split = at.map(|at| text.split_at(at)).filter(|(id, _)| !id.is_empty());
        split
            .map(|(id, version)| Self { id: id.into(), version: version.into() })
            .ok_or_else(|| format!("{text:?} is no operating system: write ubuntu24.04 or rhel9.6"))
    }
}

macro_rules! from_text {
    ($($kind:ty),+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

from_text!(Time, Share, Os);

impl Fleet {
    /// Reads a fleet file.
    pub fn read(file: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(file).map_err(|source| crate::Error::Read { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|error| crate::Error::Invalid(format!("{}: {error}", file.display())))
    }

    /// Parses a fleet; errors name the field and the fix.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fleet: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if fleet.pools.iter().all(|pool| pool.nodes == 0) {
            return Err("pools: there are no nodes; write for instance pools: [{name: train, nodes: 100}]".into());
        }
        let mut names = BTreeSet::new();
        for pool in &fleet.pools {
            let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            let edges = |letter: char| letter != '-';
            if pool.name.is_empty() || !pool.name.chars().all(fits) || !pool.name.starts_with(edges) {
                let why = "begins no name of a node; write small letters, digits and -";
                return Err(format!("pools: {:?} {why}", pool.name));
            }
            if !names.insert(&pool.name) {
                return Err(format!("pools: there are two pools {:?}; give each its own name", pool.name));
            }
        }
        if !(fleet.policy.is_null() || fleet.policy.is_object()) {
            return Err(format!("policy: {} is no spec of a ClusterPolicy", fleet.policy));
        }
        Ok(fleet)
    }

    /// One pool of this many nodes, with automatic driver upgrades, 5 % at a time.
    pub fn of(nodes: usize) -> Self {
        let pool = Pool { name: "gpu".into(), nodes, gpus: eight(), product: product(), os: os(), kernel: kernel() };
        let upgrade = json!({"autoUpgrade": true, "maxParallelUpgrades": 0, "maxUnavailable": "5%"});
        Self { pools: vec![pool], policy: json!({"driver": {"upgradePolicy": upgrade}}), ..Self::default() }
    }

    pub(super) fn nodes(&self) -> Vec<NodeTemplate> {
        self.pools.iter().flat_map(|pool| (0..pool.nodes).map(move |index| pool.node(index))).collect()
    }
}

impl Pool {
    fn node(&self, index: usize) -> NodeTemplate {
        let mut node = capstan_gpu_sim::gpu_node(&format!("{}-{index}", self.name), self.gpus);
        let labels = [
            ("feature.node.kubernetes.io/system-os_release.ID", &self.os.id),
            ("feature.node.kubernetes.io/system-os_release.VERSION_ID", &self.os.version),
            (KERNEL, &self.kernel),
            ("nvidia.com/gpu.product", &self.product),
            (POOL, &self.name),
        ];
        node.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.clone())));
        node
    }
}

/// Label with the kernel version of a node.
pub(super) const KERNEL: &str = "feature.node.kubernetes.io/kernel-version.full";
/// Label with the pool of a node.
pub(super) const POOL: &str = "sim.capstan.dev/pool";

/// Whether a name is in a share of all names; deterministic for a seed.
pub(super) fn chosen(seed: u64, name: &str, share: Share) -> bool {
    // FNV-1a with a finalizer: names that differ in the last character are far apart.
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = name.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let spread = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((spread >> 11) as f64 / (1_u64 << 53) as f64) < share.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_describes_a_fleet() {
        let fleet = Fleet::parse(include_str!("../../../../examples/sim/fleet.yaml")).unwrap();
        assert_eq!(fleet.nodes().len(), 5000);
        assert_eq!(fleet.failures.driver, Share(0.01));
    }

    #[test]
    fn mistakes_name_the_field_and_the_fix() {
        let said = |text: &str| Fleet::parse(text).unwrap_err().to_string();
        assert!(said("pools: []").starts_with("pools: there are no nodes; write"));
        assert!(said("pools: [{name: a, nodes: 1}, {name: a, nodes: 2}]").contains("two pools \"a\""));
        assert!(said("pools: [{name: A_B, nodes: 1}]").contains("\"A_B\" begins no name of a node"));
        assert!(said("pools: [{name: a, nodes: 1, colour: red}]").contains("colour"));
        assert!(said("pools: [{name: a, nodes: 1}]\npace: {driver: soon}").contains("\"soon\" is no time: write 90s"));
        assert!(said("pools: [{name: a, nodes: 1}]\nfailures: {driver: '200%'}").contains("\"200%\" is no share"));
        assert!(said("pools: [{name: a, nodes: 1, os: plan}]").contains("\"plan\" is no operating system"));
    }

    #[test]
    fn about_the_wanted_share_is_chosen_and_always_the_same() {
        let names: Vec<String> = (0..5000).map(|index| format!("gpu-{index}")).collect();
        let chosen = |seed| names.iter().filter(|name| chosen(seed, name, Share(0.01))).collect::<Vec<_>>();
        assert!((30..=70).contains(&chosen(1).len()), "{}", chosen(1).len());
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
    }
}
