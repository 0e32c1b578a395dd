//! Decisions by tables, and the whole plugin against a kubelet for tests.

mod allocate;
mod config;
mod health;
mod layout;
mod prefer;
mod story;

use super::*;
use capstan_hw::fake::{Model, Recording, node as recorded};
use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

/// Settings as a config file makes them.
fn settings(text: &str) -> Settings {
    let config = crate::config::parse(text).expect("a config").config;
    Settings::resolve(Options::default().flags().expect("flags"), config).expect("settings")
}

fn advertised(inventory: &Inventory, text: &str) -> Result<ResourceSet, crate::config::InvalidValue> {
    build_resources(Platform::Nvml, inventory, &settings(text), &KernelFiles::default())
}

/// A node with these GPUs and this config.
fn node_of(recording: &Recording, text: &str) -> Node {
    Node {
        settings: settings(text),
        roots: Roots { host: "/".into(), here: "/".into(), dev_host: "/host".into(), dev_here: "/here".into() },
        resources: advertised(&recording.inventory, text).expect("resources").resources,
        topology: recording.topology.clone(),
        unhealthy: Default::default(),
        channels: Vec::new(),
        classes: Vec::new(),
    }
}

fn gpus(count: u32) -> Recording {
    recorded(Model::H200, count)
}

fn uuid(gpu: u32) -> String {
    gpus(8).inventory.gpus[gpu as usize].uuid.clone()
}
