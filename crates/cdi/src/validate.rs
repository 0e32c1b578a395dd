//! Validates specs, by the rules of runtimes.

use std::collections::BTreeSet;

use crate::names::Kind;
use crate::spec::{ContainerEdits, DeviceNode, Hook};
use crate::{Error, Result, Spec};

const HOOKS: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl Spec {
    /// Validates the spec; returns the first error.
    pub fn validate(&self) -> Result<()> {
        let kind: Kind = self.kind.parse()?;
        if self.devices.is_empty() {
            return Err(Error::NoDevices);
        }
        let mut names = BTreeSet::new();
        for device in &self.devices {
            kind.device(&device.name)?;
            if !names.insert(&device.name) {
                return Err(Error::Duplicate(device.name.clone()));
            }
            if device.container_edits.is_empty() {
                return Err(Error::EmptyDevice(device.name.clone()));
            }
            edits(&device.container_edits)
                .map_err(|(what, why)| place(&format!("device '{}'", device.name), &what, why))?;
        }
        edits(&self.container_edits).map_err(|(what, why)| place("all devices", &what, why))
    }
}

fn place(owner: &str, what: &str, why: &str) -> Error {
    Error::Edit { place: format!("{owner}, {what}"), why: why.to_owned() }
}

type Wrong = (String, &'static str);

fn edits(edits: &ContainerEdits) -> Result<(), Wrong> {
    edits.env.iter().try_for_each(|env| variable(env))?;
    edits.device_nodes.iter().try_for_each(node)?;
    edits.hooks.iter().try_for_each(hook)?;
    for mount in &edits.mounts {
        if mount.host_path.is_empty() || mount.container_path.is_empty() {
            return Err((
                format!("mount '{}'", mount.container_path),
                "it needs a path on the host and in the container",
            ));
        }
    }
    let mut moved = BTreeSet::new();
    for device in &edits.net_devices {
        let what = || format!("network device '{}'", device.host_interface_name);
        if device.host_interface_name.is_empty() || device.name.is_empty() {
            return Err((what(), "it needs a name on the host and in the container"));
        }
        if !moved.insert(&device.host_interface_name) {
            return Err((what(), "it is there twice"));
        }
    }
    let path_like =
        |id: &str| id.is_empty() || matches!(id, "." | "..") || id.contains(['/', '\n']) || id.len() >= 4096;
    match edits.intel_rdt.as_ref().and_then(|rdt| rdt.clos_id.as_deref()) {
        Some(id) if path_like(id) => Err((format!("class of service '{id}'"), "it cannot be the name of a directory")),
        _ => Ok(()),
    }
}

fn variable(env: &str) -> Result<(), Wrong> {
    match env.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(()),
        _ => Err((format!("environment '{env}'"), "write it as NAME=value")),
    }
}

fn node(node: &DeviceNode) -> Result<(), Wrong> {
    let why = if node.path.is_empty() {
        "it has no path"
    } else if node.type_.as_deref().is_some_and(|kind| !matches!(kind, "" | "b" | "c" | "u" | "p")) {
        "its type is none of b, c, u and p"
    } else if node.permissions.iter().flat_map(|some| some.chars()).any(|c| !matches!(c, 'r' | 'w' | 'm')) {
        "its permissions are not made of r, w and m"
    } else {
        return Ok(());
    };
    Err((format!("device node '{}'", node.path), why))
}

fn hook(hook: &Hook) -> Result<(), Wrong> {
    let why = if !HOOKS.contains(&hook.hook_name.as_str()) {
        "no such moment in the life of a container"
    } else if hook.path.is_empty() {
        "it has no program"
    } else {
        return hook.env.iter().try_for_each(|env| variable(env));
    };
    Err((format!("hook '{}'", hook.hook_name), why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Device, Mount, NetDevice};

    fn spec() -> Spec {
        let node = DeviceNode { path: "/dev/nvidia0".into(), ..DeviceNode::default() };
        let edits = ContainerEdits { device_nodes: vec![node], ..ContainerEdits::default() };
        let device = Device { name: "0".into(), container_edits: edits, ..Device::default() };
        Spec { kind: "nvidia.com/gpu".into(), devices: vec![device], ..Spec::default() }
    }

    #[test]
    fn what_a_runtime_refuses_is_refused_with_its_place() {
        assert_eq!(spec().validate(), Ok(()));
        type Edit = fn(&mut Spec);
        let cases: [(&str, Edit); 13] = [
            ("the spec has no devices", |s| s.devices.clear()),
            ("device '0' is there twice", |s| s.devices.push(s.devices[0].clone())),
            ("device '0': empty device edits", |s| s.devices[0].container_edits = ContainerEdits::default()),
            ("'nvidia.com' is no kind", |s| s.kind = "nvidia.com".into()),
            ("' ' is no device name", |s| s.devices[0].name = " ".into()),
            ("all devices, environment 'X'", |s| s.container_edits.env.push("X".into())),
            ("device '0', environment '=1'", |s| s.devices[0].container_edits.env.push("=1".into())),
            ("type is none of", |s| s.devices[0].container_edits.device_nodes[0].type_ = Some("x".into())),
            ("not made of r, w and m", |s| {
                s.devices[0].container_edits.device_nodes[0].permissions = Some("rx".into());
            }),
            ("no path", |s| s.devices[0].container_edits.device_nodes[0].path.clear()),
            ("needs a path", |s| s.container_edits.mounts.push(Mount::default())),
            ("no such moment", |s| s.container_edits.hooks.push(Hook::default())),
            ("needs a name", |s| s.container_edits.net_devices.push(NetDevice::default())),
        ];
        for (wanted, edit) in cases {
            let mut spec = spec();
            edit(&mut spec);
            let error = spec.validate().expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
