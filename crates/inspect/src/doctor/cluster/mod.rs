//! Rules about every cluster: the install, nodes, images, volumes, and the conditions of custom resources and pods.

pub(crate) mod crash;
pub(crate) mod crds;
mod images;
mod release;
pub(crate) mod resources;
mod runtime;
pub mod values;
mod version;
mod volumes;
mod webhook;

use super::{AFTER_POD, AFTER_RUNTIME, NOT_READY, Rule};

/// Rules about every cluster.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "helm-values", explains: &[], check: release::check },
    Rule { name: "kubernetes-version", explains: &[], check: version::check },
    Rule { name: "crd-outdated", explains: &[NOT_READY], check: crds::check },
    Rule { name: "webhook-unreachable", explains: &[NOT_READY], check: webhook::check },
    Rule { name: "node-not-ready", explains: AFTER_RUNTIME, check: runtime::node_not_ready },
    Rule { name: "runtime-broken", explains: AFTER_RUNTIME, check: runtime::broken },
    Rule { name: "runtime-class", explains: &[NOT_READY], check: runtime::class_missing },
    Rule { name: "runtime-handler", explains: AFTER_POD, check: runtime::handler_missing },
    Rule { name: "image-pull", explains: AFTER_POD, check: images::pull },
    Rule { name: "registry-secret", explains: AFTER_POD, check: images::secret },
    Rule { name: "volume-pending", explains: &[&["not-ready", "pod-crashes"]], check: volumes::pending },
    Rule { name: "volume-full", explains: &[&["not-ready", "pod-crashes"]], check: volumes::full },
    Rule {
        name: "spec-refused",
        explains: &[&["not-ready", "init-barrier", "plugin-not-running"]],
        check: resources::refused,
    },
    Rule { name: "pod-crashes", explains: &[NOT_READY], check: crash::workloads },
    Rule { name: "not-ready", explains: &[], check: resources::not_ready },
];
