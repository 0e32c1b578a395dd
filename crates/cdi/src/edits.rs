//! Merges and normalises container edits: no duplicates, nothing in a device that is common to all, a stable order.

use std::cmp::Ordering;
use std::hash::Hash;

use crate::names::is_device_name;
use crate::spec::{ContainerEdits, Device};
use crate::{Error, Result, Spec};

impl ContainerEdits {
    /// Whether it has no edits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Appends other edits.
    pub fn append(&mut self, other: &Self) {
        self.env.extend_from_slice(&other.env);
        self.device_nodes.extend_from_slice(&other.device_nodes);
        self.net_devices.extend_from_slice(&other.net_devices);
        self.hooks.extend_from_slice(&other.hooks);
        self.mounts.extend_from_slice(&other.mounts);
        self.additional_gids.extend_from_slice(&other.additional_gids);
        if self.intel_rdt.is_none() {
            self.intel_rdt.clone_from(&other.intel_rdt);
        }
    }

    /// Removes duplicates.
    pub fn deduplicate(&mut self) {
        unique(&mut self.env);
        unique(&mut self.device_nodes);
        unique(&mut self.net_devices);
        unique(&mut self.hooks);
        unique(&mut self.mounts);
        self.additional_gids.sort_unstable();
        self.additional_gids.dedup();
    }

    /// Sorts by path length, then by name, so that a directory is mounted before its content. Hooks keep their order:
    /// they run in it.
    pub fn sort(&mut self) {
        self.env.sort();
        self.device_nodes.sort_by(|a, b| by_path(&a.path, &b.path));
        self.mounts.sort_by(|a, b| by_path(&a.container_path, &b.container_path));
    }

    /// These edits without those in `common`.
    fn without(&self, common: &Self) -> Self {
        let mut rest = self.clone();
        rest.env.retain(|one| !common.env.contains(one));
        rest.device_nodes.retain(|one| !common.device_nodes.contains(one));
        rest.net_devices.retain(|one| !common.net_devices.contains(one));
        rest.hooks.retain(|one| !common.hooks.contains(one));
        rest.mounts.retain(|one| !common.mounts.contains(one));
        rest.additional_gids.retain(|one| !common.additional_gids.contains(one));
        rest
    }
}

fn unique<T: Eq + Hash + Clone>(list: &mut Vec<T>) {
    let mut seen = std::collections::HashSet::new();
    list.retain(|one| seen.insert(one.clone()));
}

fn by_path(a: &str, b: &str) -> Ordering {
    let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
    depth(a).cmp(&depth(b)).then_with(|| a.cmp(b))
}

impl Spec {
    /// Normalises the spec: removes duplicates and edits common to all devices, and sorts. A device keeps at least one
    /// edit: without any it would be invalid.
    pub fn simplify(&mut self) {
        self.container_edits.deduplicate();
        self.container_edits.sort();
        for device in &mut self.devices {
            device.container_edits.deduplicate();
            let rest = device.container_edits.without(&self.container_edits);
            if !rest.is_empty() {
                device.container_edits = rest;
            }
            device.container_edits.sort();
        }
        self.devices.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Adds a device that merges all others, unless that name exists or there are none.
    pub fn add_merged(&mut self, name: &str) -> Result<()> {
        if !is_device_name(name) {
            let why = "it starts and ends with a letter or digit";
            return Err(Error::Name { what: "device name", value: name.to_owned(), why });
        }
        if self.devices.is_empty() || self.devices.iter().any(|device| device.name == name) {
            return Ok(());
        }
        let mut all = ContainerEdits::default();
        self.devices.iter().for_each(|device| all.append(&device.container_edits));
        all.deduplicate();
        self.devices.push(Device { name: name.to_owned(), container_edits: all, ..Device::default() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DeviceNode, Hook, Mount};
    use proptest::prelude::*;

    fn node(path: &str) -> DeviceNode {
        DeviceNode { path: path.into(), ..DeviceNode::default() }
    }

    fn mount(path: &str) -> Mount {
        Mount { host_path: path.into(), container_path: path.into(), ..Mount::default() }
    }

    fn device(name: &str, nodes: &[&str]) -> Device {
        let device_nodes = nodes.iter().map(|path| node(path)).collect();
        Device {
            name: name.into(),
            container_edits: ContainerEdits { device_nodes, ..ContainerEdits::default() },
            ..Device::default()
        }
    }

    fn merged(devices: Vec<Device>) -> Vec<(String, usize)> {
        let mut spec = Spec { devices, ..Spec::default() };
        spec.add_merged("all").expect("a name");
        spec.devices.iter().map(|d| (d.name.clone(), d.container_edits.device_nodes.len())).collect()
    }

    #[test]
    fn all_is_every_device_together() {
        let row = |name: &str, nodes| (name.to_owned(), nodes);
        assert_eq!(merged(vec![]), []);
        assert_eq!(merged(vec![device("0", &["/a"])]), [row("0", 1), row("all", 1)]);
        let two = vec![device("0", &["/a", "/c"]), device("1", &["/b", "/c"])];
        assert_eq!(merged(two), [row("0", 2), row("1", 2), row("all", 3)]);
        assert_eq!(merged(vec![device("0", &["/a"]), device("all", &["/x"])]), [row("0", 1), row("all", 1)]);
        assert!(Spec::default().add_merged("-").is_err());
    }

    #[test]
    fn a_hook_of_two_devices_runs_once_for_all() {
        let hook = Hook { hook_name: "createContainer".into(), path: "/hook".into(), ..Hook::default() };
        let mut devices = vec![device("0", &["/a"]), device("1", &["/b"])];
        devices.iter_mut().for_each(|device| device.container_edits.hooks.push(hook.clone()));
        let mut spec = Spec { devices, ..Spec::default() };
        spec.add_merged("all").expect("a name");
        assert_eq!(spec.devices[2].container_edits.hooks, [hook]);
    }

    #[test]
    fn simplifying_takes_what_is_common_but_never_all() {
        let mut spec = Spec {
            devices: vec![device("1", &["/dev/ctl"]), device("0", &["/dev/ctl", "/dev/x/y", "/dev/z", "/dev/z"])],
            container_edits: ContainerEdits {
                env: vec!["B=1".into(), "A=1".into(), "B=1".into()],
                device_nodes: vec![node("/dev/ctl")],
                mounts: vec![mount("/usr/lib/x"), mount("/b"), mount("/a"), mount("/b")],
                ..ContainerEdits::default()
            },
            ..Spec::default()
        };
        spec.simplify();
        let names: Vec<&str> = spec.devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["0", "1"]);
        assert_eq!(spec.devices[0].container_edits.device_nodes, [node("/dev/z"), node("/dev/x/y")]);
        assert_eq!(spec.devices[1].container_edits.device_nodes, [node("/dev/ctl")]);
        assert_eq!(spec.container_edits.env, ["A=1", "B=1"]);
        assert_eq!(spec.container_edits.mounts, [mount("/a"), mount("/b"), mount("/usr/lib/x")]);
    }

    proptest! {
        #[test]
        fn simplifying_twice_changes_nothing_more(
            nodes in proptest::collection::vec(proptest::collection::vec("/[a-c]", 1..4), 1..4),
            common in proptest::collection::vec("/[a-c]", 0..3),
        ) {
            let devices = nodes.iter().enumerate().map(|(index, nodes)| {
                let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
                device(&index.to_string(), &nodes)
            });
            let common = ContainerEdits { device_nodes: common.iter().map(|path| node(path)).collect(), ..ContainerEdits::default() };
            let mut spec = Spec { devices: devices.collect(), container_edits: common, ..Spec::default() };
            spec.simplify();
            prop_assert!(spec.devices.iter().all(|device| !device.container_edits.is_empty()));
            let once = spec.clone();
            spec.simplify();
            prop_assert_eq!(spec, once);
        }
    }
}
