//! The Allocate response: what a container needs to use its devices.

use std::collections::HashMap;
use std::path::Path;

use capstan_kubelet::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};

use super::devices::{Device, Resource};
use super::node::Node;
use crate::config::{DeviceIdStrategy, DeviceListStrategy, SharingStrategy};

/// Vendor of the CDI specs that the plugin writes.
pub const CDI_VENDOR: &str = "k8s.device-plugin.nvidia.com";
/// Mount directory whose entries list a container's devices (strategy `volume-mounts`).
const LIST_DIR: &str = "/var/run/nvidia-container-devices";
/// Control device nodes that every GPU container needs.
const CONTROL: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

/// Builds the response for one container. `exists` checks for a device node; `unique` names the annotation.
pub(crate) fn allocate(
    node: &Node,
    resource: &Resource,
    ids: &[String],
    exists: impl Fn(&Path) -> bool,
    unique: impl FnOnce() -> String,
) -> Result<ContainerAllocateResponse, String> {
    let devices = requested(resource, ids)?;
    let settings = &node.settings;
    let mut names: Vec<&str> = Vec::new();
    for device in &devices {
        let name = match settings.device_id {
            DeviceIdStrategy::Uuid => device.id.as_str(),
            DeviceIdStrategy::Index => device.index.as_str(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut response = ContainerAllocateResponse::default();
    if settings.cdi() {
        cdi(node, &names, unique, &mut response);
    }
    if resource.sharing == SharingStrategy::Mps {
        mps(node, resource, &mut response);
    }
    let extras = [("GDRCOPY", settings.gdrcopy), ("GDS", settings.gds), ("MOFED", settings.mofed)];
    for (name, _) in extras.iter().filter(|(_, enabled)| *enabled) {
        response.envs.insert(format!("NVIDIA_{name}"), "enabled".into());
    }
    if settings.only_cdi() {
        return Ok(response);
    }
    list(node, &names, &mut response);
    if settings.pass_device_specs {
        response.devices = specs(node, &devices, exists);
    }
    Ok(response)
}

/// Resolves device IDs; rejects unknown IDs and oversized requests.
fn requested<'a>(resource: &'a Resource, ids: &[String]) -> Result<Vec<&'a Device>, String> {
    let found = ids.iter().map(|id| resource.find(id).ok_or_else(|| format!("{} has no device {id}", resource.name)));
    let devices: Vec<&Device> = found.collect::<Result<_, String>>()?;
    if resource.replicas.is_some() && resource.one_only && ids.len() > 1 {
        return Err(format!("maximum request size for shared resources is 1; found {}", ids.len()));
    }
    Ok(devices)
}

/// Adds CDI device names: GPUs, then IMEX channels, then the other classes.
fn cdi(node: &Node, names: &[&str], unique: impl FnOnce() -> String, response: &mut ContainerAllocateResponse) {
    let gpus = names.iter().map(|name| format!("{CDI_VENDOR}/gpu={name}"));
    let channels = node.channels.iter().map(|channel| format!("{CDI_VENDOR}/imex-channel={channel}"));
    let classes = node.classes.iter().map(|class| format!("{CDI_VENDOR}/{class}=all"));
    let devices: Vec<String> = gpus.chain(channels).chain(classes).collect();
    if devices.is_empty() {
        return;
    }
    if node.settings.uses(DeviceListStrategy::CdiAnnotations) {
        let key = format!("{}nvidia-device-plugin_{}", node.settings.cdi_annotation_prefix, unique());
        response.annotations.insert(key, devices.join(","));
    }
    if node.settings.uses(DeviceListStrategy::CdiCri) {
        response.cdi_devices = devices.into_iter().map(|name| CdiDevice { name }).collect();
    }
}

/// Adds variable and mounts for the MPS daemon of a resource.
fn mps(node: &Node, resource: &Resource, response: &mut ContainerAllocateResponse) {
    let (root, pipe) = (&node.settings.mps_root, format!("{}/pipe", resource.name));
    response.envs.insert("CUDA_MPS_PIPE_DIRECTORY".into(), format!("/mps/{pipe}"));
    let mount = |host: &Path, here: String| Mount {
        container_path: here,
        host_path: host.display().to_string(),
        read_only: false,
    };
    response.mounts.push(mount(&root.join(&pipe), format!("/mps/{pipe}")));
    response.mounts.push(mount(&root.join("shm"), "/dev/shm".into()));
}

/// Adds the device list, for runtimes that read an environment variable or mounts.
fn list(node: &Node, names: &[&str], response: &mut ContainerAllocateResponse) {
    let envs: &mut HashMap<String, String> = &mut response.envs;
    if node.settings.uses(DeviceListStrategy::Envvar) {
        envs.insert("NVIDIA_VISIBLE_DEVICES".into(), names.join(","));
        if !node.channels.is_empty() {
            let channels: Vec<String> = node.channels.iter().map(u32::to_string).collect();
            envs.insert("NVIDIA_IMEX_CHANNELS".into(), channels.join(","));
        }
    }
    if node.settings.uses(DeviceListStrategy::VolumeMounts) {
        envs.insert("NVIDIA_VISIBLE_DEVICES".into(), LIST_DIR.into());
        let channels = node.channels.iter().map(|channel| format!("imex/{channel}"));
        let entries = names.iter().map(|&name| name.to_owned()).chain(channels);
        response.mounts.extend(entries.map(|entry| Mount {
            container_path: format!("{LIST_DIR}/{entry}"),
            host_path: "/dev/null".into(),
            read_only: false,
        }));
    }
}

/// Device nodes, for a kubelet whose CPU manager resets the device cgroup.
fn specs(node: &Node, devices: &[&Device], exists: impl Fn(&Path) -> bool) -> Vec<DeviceSpec> {
    let control = CONTROL.iter().filter(|path| exists(&node.roots.dev_here.join(path.trim_start_matches('/'))));
    let control = control.map(|&path| path.to_owned());
    let own = devices.iter().flat_map(|device| device.paths.iter().cloned());
    let channels = node.channels.iter().map(|channel| channel_path(*channel));
    let mut paths: Vec<String> = Vec::new();
    for path in control.chain(own).chain(channels) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let spec = |path: String| DeviceSpec {
        host_path: node.roots.dev_host.join(path.trim_start_matches('/')).display().to_string(),
        container_path: path,
        permissions: "rw".into(),
    };
    paths.into_iter().map(spec).collect()
}

/// Device node of an IMEX channel.
pub(crate) fn channel_path(channel: u32) -> String {
    format!("/dev/nvidia-caps-imex-channels/channel{channel}")
}
