//! The minimum version of a spec: the oldest that has all features it uses, for compatibility with old runtimes.

use crate::Spec;
use crate::spec::ContainerEdits;

impl Spec {
    /// The oldest version of the specification with all features that this spec uses.
    pub fn minimum_version(&self) -> &'static str {
        let all = || std::iter::once(&self.container_edits).chain(self.devices.iter().map(|d| &d.container_edits));
        let class = self.kind.split_once('/').map_or("", |(_, class)| class);
        let annotated = !self.annotations.is_empty() || self.devices.iter().any(|d| !d.annotations.is_empty());
        let digit = self.devices.iter().any(|d| d.name.starts_with(|first: char| first.is_ascii_digit()));
        match () {
            () if all().any(needs_1_1) => "1.1.0",
            () if all().any(|edits| edits.intel_rdt.is_some() || !edits.additional_gids.is_empty()) => "0.7.0",
            () if annotated || class.contains('.') => "0.6.0",
            () if digit || all().any(|edits| edits.device_nodes.iter().any(|n| n.host_path.is_some())) => "0.5.0",
            () if all().any(|edits| edits.mounts.iter().any(|m| m.type_.is_some())) => "0.4.0",
            () => "0.3.0",
        }
    }
}

fn needs_1_1(edits: &ContainerEdits) -> bool {
    let rdt = edits.intel_rdt.as_ref();
    !edits.net_devices.is_empty() || rdt.is_some_and(|rdt| !rdt.schemata.is_empty() || rdt.enable_monitoring.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Device, DeviceNode, IntelRdt, Mount, NetDevice};

    #[test]
    fn the_version_is_the_oldest_that_has_what_is_used() {
        let rdt = |schemata: &[&str]| {
            Some(IntelRdt { schemata: schemata.iter().map(|s| (*s).to_owned()).collect(), ..IntelRdt::default() })
        };
        type Edit = fn(&mut Spec);
        let cases: [(&str, Edit); 10] = [
            ("0.3.0", |_| {}),
            ("0.4.0", |s| s.container_edits.mounts = vec![Mount { type_: Some("tmpfs".into()), ..Mount::default() }]),
            ("0.5.0", |s| s.devices[0].name = "0".into()),
            ("0.5.0", |s| {
                s.devices[0].container_edits.device_nodes =
                    vec![DeviceNode { host_path: Some("/x".into()), ..DeviceNode::default() }];
            }),
            ("0.6.0", |s| s.kind = "nvidia.com/gpu.coherent".into()),
            ("0.6.0", |s| drop(s.devices[0].annotations.insert("a".into(), "b".into()))),
            ("0.6.0", |s| drop(s.annotations.insert("a".into(), "b".into()))),
            ("0.7.0", |s| s.devices[0].container_edits.additional_gids = vec![44]),
            ("0.7.0", |s| s.container_edits.intel_rdt = Some(IntelRdt::default())),
            ("1.1.0", |s| s.container_edits.net_devices = vec![NetDevice::default()]),
        ];
        for (version, edit) in cases {
            let device = Device { name: "gpu0".into(), ..Device::default() };
            let mut spec = Spec { kind: "nvidia.com/gpu".into(), devices: vec![device], ..Spec::default() };
            edit(&mut spec);
            assert_eq!(spec.minimum_version(), version, "{spec:?}");
        }
        let mut spec = Spec::default();
        spec.container_edits.intel_rdt = rdt(&["L3:0=f"]);
        assert_eq!(spec.minimum_version(), "1.1.0");
    }
}
