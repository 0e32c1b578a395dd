//! Rules about GPU nodes: discovery, drivers, device plugins, GPU faults, and pods without GPUs.

mod barrier;
mod crash;
mod discovery;
mod driver;
mod fabric;
mod plugin;
mod schedule;
mod upgrade;
mod xid;

use super::{AFTER_POD, DRIVER, MISSING, NOT_READY, PLUGIN, Rule, WAITING};

/// Consequences of a missing device plugin.
const AFTER_PLUGIN: &[&[&str]] = &[WAITING];
/// Consequences of a driver that is installed but not loaded.
const AFTER_LOADING: &[&[&str]] = &[WAITING, PLUGIN, MISSING];
/// Consequences of a failed driver.
const AFTER_DRIVER: &[&[&str]] = &[WAITING, PLUGIN, MISSING, DRIVER];
/// The same, with the missing precompiled driver image.
const AFTER_KERNEL: &[&[&str]] = &[WAITING, PLUGIN, MISSING, DRIVER, &["image-pull"]];

/// Rules about GPU nodes.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: "feature-discovery", explains: &[&["gpus-insufficient", "not-ready"]], check: discovery::check },
    Rule { name: "driver-headers-missing", explains: AFTER_DRIVER, check: driver::headers },
    Rule { name: "driver-nouveau-loaded", explains: AFTER_DRIVER, check: driver::nouveau },
    Rule { name: "driver-secure-boot", explains: AFTER_DRIVER, check: driver::secure_boot },
    Rule { name: "driver-kernel-unsupported", explains: AFTER_KERNEL, check: driver::kernel_unsupported },
    Rule { name: "driver-in-use", explains: AFTER_DRIVER, check: driver::in_use },
    Rule { name: "driver-crashes", explains: AFTER_DRIVER, check: driver::crashes },
    Rule { name: "driver-upgrade", explains: &[NOT_READY], check: upgrade::check },
    Rule { name: "driver-not-loaded", explains: AFTER_LOADING, check: plugin::driver_not_loaded },
    Rule { name: "fabric-manager", explains: AFTER_POD, check: fabric::check },
    Rule { name: "plugin-not-running", explains: AFTER_PLUGIN, check: plugin::not_running },
    Rule { name: "gpus-missing", explains: &[&["gpus-insufficient"]], check: plugin::gpus_missing },
    Rule {
        name: "xid",
        explains: &[&["gpus-missing", "gpus-insufficient", "pod-crashes", "not-ready"]],
        check: xid::check,
    },
    Rule {
        name: "gpu-taint",
        explains: &[&["gpus-insufficient", "plugin-not-running", "not-ready"]],
        check: schedule::taint,
    },
    Rule { name: "gpu-quota", explains: &[NOT_READY], check: schedule::quota },
    Rule { name: "mig-layout", explains: &[&["gpus-insufficient", "gpus-missing", "not-ready"]], check: schedule::mig },
    Rule { name: "gpus-insufficient", explains: &[NOT_READY], check: schedule::insufficient },
    Rule { name: "init-barrier", explains: &[&["gpus-insufficient", "not-ready"]], check: barrier::check },
    Rule { name: "operand-crashes", explains: AFTER_PLUGIN, check: crash::check },
];
