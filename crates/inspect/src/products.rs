//! Products that can be inspected, each in one entry of [`PRODUCTS`]: its custom resources, doctor rules, status
//! section and version table.

use crate::doctor::index::Pod;
use crate::doctor::{self, Rule};
use crate::{status, versions};

/// Contributions of a product.
pub(crate) struct Product {
    /// Custom resources that users write.
    pub(crate) kinds: &'static [Kind],
    /// Doctor rules.
    pub(crate) rules: &'static [Rule],
    /// Status section.
    pub(crate) status: Option<status::Section>,
    /// Version table.
    pub(crate) versions: Option<versions::Table>,
}

/// A kind of custom resource that users write.
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) affects: Affects,
    /// Whether a pod serves an object of that name in its namespace.
    pub(crate) is_served_by: fn(&str, &Pod<'_>) -> bool,
}

/// What an invalid custom resource affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affects {
    /// Nodes, and so all pods on them.
    Nodes,
    /// Only its own workload.
    Itself,
}

const GPU: &[Kind] = &[gpu_kind("ClusterPolicy"), gpu_kind("NVIDIADriver"), gpu_kind("GPUCluster")];
const NIM: &[Kind] = &[
    nim_kind("NIMService", serves_model),
    nim_kind("NIMCache", serves_model),
    nim_kind("NIMPipeline", serves_nothing),
    nim_kind("NIMBuild", serves_model),
];

const NEMO: &[Kind] = &[
    nim_kind("NemoCustomizer", serves_nemo),
    nim_kind("NemoDatastore", serves_nemo),
    nim_kind("NemoEntitystore", serves_nemo),
    nim_kind("NemoEvaluator", serves_nemo),
    nim_kind("NemoGuardrail", serves_nemo),
];

/// All products, in the order of the status.
pub(crate) const PRODUCTS: &[Product] = &[
    Product { kinds: &[], rules: doctor::cluster::RULES, status: None, versions: None },
    Product {
        kinds: GPU,
        rules: doctor::gpu::RULES,
        status: Some(status::gpu::SECTION),
        versions: Some(versions::gpu::TABLE),
    },
    Product { kinds: &[], rules: doctor::network::RULES, status: None, versions: None },
    Product { kinds: NIM, rules: doctor::nim::RULES, status: Some(status::nim::SECTION), versions: None },
    Product { kinds: NEMO, rules: doctor::nemo::RULES, status: Some(status::nemo::SECTION), versions: None },
];

/// The custom resources of all products.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    PRODUCTS.iter().flat_map(|product| product.kinds)
}

const fn gpu_kind(kind: &'static str) -> Kind {
    Kind { group: "nvidia.com", kind, affects: Affects::Nodes, is_served_by: serves_nothing }
}

const fn nim_kind(kind: &'static str, is_served_by: fn(&str, &Pod<'_>) -> bool) -> Kind {
    Kind { group: "apps.nvidia.com", kind, affects: Affects::Itself, is_served_by }
}

/// Operands of nodes belong to their node, not to a custom resource.
fn serves_nothing(_: &str, _: &Pod<'_>) -> bool {
    false
}

/// Model servers have the name as a label; downloads are Jobs and pods named after their resource.
fn serves_model(name: &str, pod: &Pod<'_>) -> bool {
    pod.label("app") == name || pod.job() == Some(&format!("{name}-job")) || pod.name == format!("{name}-pod")
}

/// Pods of NeMo services say what they are a part of.
fn serves_nemo(name: &str, pod: &Pod<'_>) -> bool {
    pod.label("app") == name && pod.label("app.kubernetes.io/part-of").starts_with("nemo-")
}
