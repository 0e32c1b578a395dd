//! All GPU labels, one row each: the name and how its value is computed.
//!
//! A row that returns `None` omits its label, so that a node has no label with an unknown value.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::{ComputeCapability, MigSlices};

use super::facts::Facts;
use super::vgpu::HostDriver;

/// Domain of all labels.
const DOMAIN: &str = "nvidia.com/";

/// Labels by full name.
pub type Labels = BTreeMap<String, String>;

/// A label of the node.
struct Row(&'static str, fn(&Facts<'_>) -> Option<String>);

/// A label of each resource; its name follows the resource's.
struct ResourceRow(&'static str, fn(&Resource) -> Option<String>);

/// Node labels, only set if there is a GPU.
const NODE: &[Row] = &[
    Row("gpu.machine", |node| Some(node.machine.clone())),
    Row("cuda.driver-version.major", |node| Some(node.driver().major)),
    Row("cuda.driver-version.minor", |node| Some(node.driver().minor)),
    Row("cuda.driver-version.revision", |node| Some(node.driver().revision)),
    Row("cuda.driver-version.full", |node| Some(node.driver().full)),
    Row("cuda.driver.major", |node| Some(node.driver().major)),
    Row("cuda.driver.minor", |node| Some(node.driver().minor)),
    Row("cuda.driver.rev", |node| Some(node.driver().revision)),
    Row("cuda.runtime-version.major", |node| Some(node.inventory.cuda.major.to_string())),
    Row("cuda.runtime-version.minor", |node| Some(node.inventory.cuda.minor.to_string())),
    Row("cuda.runtime-version.full", |node| Some(node.inventory.cuda.to_string())),
    Row("cuda.runtime.major", |node| Some(node.inventory.cuda.major.to_string())),
    Row("cuda.runtime.minor", |node| Some(node.inventory.cuda.minor.to_string())),
    Row("mig.capable", |node| Some(node.mig_capable().to_string())),
    Row("mps.capable", |node| Some(node.mps_capable().to_string())),
    Row("mig.strategy", |node| node.mig_strategy().map(str::to_owned)),
    Row("gpu.mode", |node| Some(node.mode().to_owned())),
    Row("gpu.clique", |node| node.clique()),
];

/// Node labels that are set even without a driver.
const ALWAYS: &[Row] = &[
    Row("gfd.timestamp", |node| node.timestamp.map(|seconds| seconds.to_string())),
    Row("vgpu.present", |node| node.vgpu.as_ref().map(|vgpu| vgpu.present.to_string())),
    Row("vgpu.host-driver-version", |node| host_driver(node).map(|host| host.version.clone())),
    Row("vgpu.host-driver-branch", |node| host_driver(node).map(|host| host.branch.clone())),
];

/// Labels of a resource: whole GPUs, or MIG devices of a profile.
const RESOURCE: &[ResourceRow] = &[
    ResourceRow("product", |resource| Some(resource.product.clone())),
    ResourceRow("count", |resource| Some(resource.count.to_string())),
    ResourceRow("replicas", |resource| Some(resource.replicas.to_string())),
    ResourceRow("sharing-strategy", |resource| Some(resource.sharing.to_owned())),
    ResourceRow("memory", |resource| resource.memory_mib.map(|mib| mib.to_string())),
    ResourceRow("family", |resource| resource.compute.map(|compute| family(compute).to_owned())),
    ResourceRow("compute.major", |resource| resource.compute.map(|compute| compute.major.to_string())),
    ResourceRow("compute.minor", |resource| resource.compute.map(|compute| compute.minor.to_string())),
    ResourceRow("multiprocessors", |resource| resource.slices.map(|slices| slices.multiprocessors.to_string())),
    ResourceRow("slices.gi", |resource| resource.slices.map(|slices| slices.gpu.to_string())),
    ResourceRow("slices.ci", |resource| resource.slices.map(|slices| slices.compute.to_string())),
    ResourceRow("engines.copy", |resource| resource.slices.map(|slices| slices.copy_engines.to_string())),
    ResourceRow("engines.decoder", |resource| resource.slices.map(|slices| slices.decoders.to_string())),
    ResourceRow("engines.encoder", |resource| resource.slices.map(|slices| slices.encoders.to_string())),
    ResourceRow("engines.jpeg", |resource| resource.slices.map(|slices| slices.jpeg.to_string())),
    ResourceRow("engines.ofa", |resource| resource.slices.map(|slices| slices.ofa.to_string())),
];

/// A resource that the node advertises.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resource {
    /// Prefix of its labels: `gpu`, `mig-1g.18gb`.
    pub name: String,
    /// Model with suffixes for MIG and sharing.
    pub product: String,
    /// Number of devices.
    pub count: usize,
    /// Replicas per device.
    pub replicas: u32,
    /// Sharing strategy.
    pub sharing: &'static str,
    /// Memory of each device.
    pub memory_mib: Option<u64>,
    /// Compute capability.
    pub compute: Option<ComputeCapability>,
    /// Slices of MIG devices.
    pub slices: Option<MigSlices>,
}

/// The labels of a node.
pub fn labels(node: &Facts<'_>) -> Labels {
    let mut labels = Labels::new();
    let rows = if node.gpus().is_empty() { &[] } else { NODE };
    for Row(name, value) in ALWAYS.iter().chain(rows) {
        labels.extend(value(node).map(|value| (format!("{DOMAIN}{name}"), value)));
    }
    for resource in node.resources() {
        for ResourceRow(name, value) in RESOURCE {
            let value = value(&resource);
            labels.extend(value.map(|value| (format!("{DOMAIN}{}.{name}", resource.name), value)));
        }
    }
    labels.into_iter().map(|(name, value)| (name, valid(&value))).collect()
}

fn host_driver<'a>(node: &'a Facts<'_>) -> Option<&'a HostDriver> {
    node.vgpu.as_ref().and_then(|vgpu| vgpu.host.as_ref())
}

/// Architecture name of a compute capability.
fn family(compute: ComputeCapability) -> &'static str {
    match (compute.major, compute.minor) {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0..5) => "volta",
        (7, _) => "turing",
        (8, 9) => "ada-lovelace",
        (8, _) => "ampere",
        (9, _) => "hopper",
        (10 | 12, _) => "blackwell",
        (13, _) => "rubin",
        _ => "undefined",
    }
}

/// A model or machine type as a label value: only letters, digits, `-`, `_` and `.`, with `-` for spaces.
pub(super) fn sanitise(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    let kept: String = text.chars().filter(plain).collect();
    kept.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// A model with suffixes. The model is truncated if both exceed the length of a label value.
pub(super) fn product(model: &str, parts: &[&str]) -> String {
    let suffix: String = parts.iter().map(|part| format!("-{part}")).collect();
    let mut model = sanitise(model);
    model.truncate(LONGEST.saturating_sub(suffix.len()));
    format!("{model}{suffix}")
}

/// Maximum length of a label value.
const LONGEST: usize = 63;

/// Makes a valid label value.
fn valid(value: &str) -> String {
    let edge = |c: char| !c.is_ascii_alphanumeric();
    let value = value.get(..LONGEST).unwrap_or(value);
    value.trim_matches(edge).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn models_become_label_values() {
        let cases = [
            ("NVIDIA H200", "NVIDIA-H200"),
            ("A100-SXM4-40GB", "A100-SXM4-40GB"),
            ("Quadro RTX (6000)", "Quadro-RTX-6000"),
            ("Tesla  T4/x", "Tesla-T4x"),
            (" a_b.c ", "a_b.c"),
            ("Größe", "Gre"),
            ("", ""),
        ];
        for (model, wanted) in cases {
            assert_eq!(sanitise(model), wanted);
        }
        let parts = ["MIG-1g.5gb", "SHARED"];
        assert_eq!(product("NVIDIA A100-SXM4-40GB", &parts), "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED");
        assert_eq!(product(&"x".repeat(90), &parts).len(), 63);
        assert!(product(&"x".repeat(90), &parts).ends_with("-MIG-1g.5gb-SHARED"));
    }

    #[test]
    fn capabilities_have_families() {
        let cases = [
            (3, 5, "kepler"),
            (7, 0, "volta"),
            (7, 5, "turing"),
            (8, 0, "ampere"),
            (8, 6, "ampere"),
            (8, 9, "ada-lovelace"),
            (9, 0, "hopper"),
            (10, 0, "blackwell"),
            (12, 1, "blackwell"),
            (13, 0, "rubin"),
            (11, 0, "undefined"),
        ];
        for (major, minor, wanted) in cases {
            assert_eq!(family(ComputeCapability { major, minor }), wanted);
        }
    }

    proptest! {
        #[test]
        fn every_value_is_one_that_kubernetes_takes(text in ".{0,90}") {
            let value = valid(&sanitise(&text));
            let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
            prop_assert!(value.len() <= 63 && edge(value.chars().next()) && edge(value.chars().last()), "{}", value);
        }
    }
}
