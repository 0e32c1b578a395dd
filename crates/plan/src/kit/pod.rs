//! Short builders for pods: containers, environment, mounts, volumes and affinity.

use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction,
    HostPathVolumeSource, KeyToPath, LifecycleHandler, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, ObjectFieldSelector, SELinuxOptions, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};

/// A container of that name.
pub fn container(name: &str) -> Container {
    Container { name: name.into(), ..Container::default() }
}

/// Builder methods of a container.
pub trait Build: Sized {
    /// Command and arguments.
    fn runs(self, command: &[&str], args: &[&str]) -> Self;
    /// An environment variable.
    fn with(self, name: &str, value: &str) -> Self;
    /// An environment variable from a field of the pod (downward API).
    fn field(self, name: &str, path: &str) -> Self;
    /// The node's name as NODE_NAME.
    fn node_name(self) -> Self;
    /// Mounts.
    fn mounts(self, mounts: Vec<VolumeMount>) -> Self;
    /// Privileged.
    fn privileged(self) -> Self;
    /// Privileged, with the SELinux level of the host.
    fn privileged_s0(self) -> Self;
    /// A preStop hook.
    fn before_stop(self, script: &str) -> Self;
}

impl Build for Container {
    fn runs(mut self, command: &[&str], args: &[&str]) -> Self {
        let list = |words: &[&str]| (!words.is_empty()).then(|| words.iter().map(|word| (*word).into()).collect());
        self.command = list(command);
        self.args = list(args);
        self
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        set_env(&mut self, name, value);
        self
    }

    fn field(mut self, name: &str, path: &str) -> Self {
        let selector = ObjectFieldSelector { field_path: path.into(), ..ObjectFieldSelector::default() };
        let source = EnvVarSource { field_ref: Some(selector), ..EnvVarSource::default() };
        let variable = EnvVar { name: name.into(), value_from: Some(source), ..EnvVar::default() };
        self.env.get_or_insert_default().push(variable);
        self
    }

    fn node_name(self) -> Self {
        self.field("NODE_NAME", "spec.nodeName")
    }

    fn mounts(mut self, mounts: Vec<VolumeMount>) -> Self {
        self.volume_mounts.get_or_insert_default().extend(mounts);
        self
    }

    fn privileged(mut self) -> Self {
        self.security_context.get_or_insert_default().privileged = Some(true);
        self
    }

    fn privileged_s0(mut self) -> Self {
        let context: &mut SecurityContext = self.security_context.get_or_insert_default();
        context.privileged = Some(true);
        context.se_linux_options = Some(SELinuxOptions { level: Some("s0".into()), ..SELinuxOptions::default() });
        self
    }

    fn before_stop(mut self, script: &str) -> Self {
        let exec = ExecAction { command: Some(vec!["/bin/sh".into(), "-c".into(), script.into()]) };
        let handler = LifecycleHandler { exec: Some(exec), ..LifecycleHandler::default() };
        self.lifecycle.get_or_insert_default().pre_stop = Some(handler);
        self
    }
}

/// Sets an environment variable in place, or appends it. It replaces a `valueFrom`.
pub fn set_env(container: &mut Container, name: &str, value: &str) {
    let list = container.env.get_or_insert_default();
    let variable = EnvVar { name: name.into(), value: Some(value.into()), ..EnvVar::default() };
    match list.iter_mut().find(|one| one.name == name) {
        Some(one) => *one = variable,
        None => list.push(variable),
    }
}

/// The literal value of an environment variable.
pub fn env_of<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    container.env.iter().flatten().find(|one| one.name == name)?.value.as_deref()
}

/// A volume mounted at `path`.
pub fn at(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.into(), mount_path: path.into(), ..VolumeMount::default() }
}

/// Builder methods of a mount.
pub trait Mount {
    /// Read only.
    fn read_only(self) -> Self;
    /// Mount propagation HostToContainer.
    fn host_to_container(self) -> Self;
    /// Mount propagation Bidirectional.
    fn bidirectional(self) -> Self;
    /// `subPath`.
    fn sub(self, path: &str) -> Self;
}

impl Mount for VolumeMount {
    fn read_only(mut self) -> Self {
        self.read_only = Some(true);
        self
    }

    fn host_to_container(mut self) -> Self {
        self.mount_propagation = Some("HostToContainer".into());
        self
    }

    fn bidirectional(mut self) -> Self {
        self.mount_propagation = Some("Bidirectional".into());
        self
    }

    fn sub(mut self, path: &str) -> Self {
        self.sub_path = Some(path.into());
        self
    }
}

fn host_path(name: &str, path: &str, type_: Option<&str>) -> Volume {
    let source = HostPathVolumeSource { path: path.into(), type_: type_.map(Into::into) };
    Volume { name: name.into(), host_path: Some(source), ..Volume::default() }
}

/// A hostPath volume of any type.
pub fn host(name: &str, path: &str) -> Volume {
    host_path(name, path, None)
}

/// A hostPath volume of type Directory.
pub fn host_dir(name: &str, path: &str) -> Volume {
    host_path(name, path, Some("Directory"))
}

/// A hostPath volume of type DirectoryOrCreate.
pub fn host_make(name: &str, path: &str) -> Volume {
    host_path(name, path, Some("DirectoryOrCreate"))
}

/// A hostPath volume of that type.
pub fn host_typed(name: &str, path: &str, type_: &str) -> Volume {
    host_path(name, path, Some(type_))
}

/// A ConfigMap as a volume.
pub fn config(name: &str, config_map: &str, mode: Option<i32>, items: &[(&str, &str)]) -> Volume {
    let source = ConfigMapVolumeSource {
        name: config_map.into(),
        default_mode: mode,
        items: (!items.is_empty()).then(|| items.iter().map(to_path).collect()),
        ..ConfigMapVolumeSource::default()
    };
    Volume { name: name.into(), config_map: Some(source), ..Volume::default() }
}

/// Keys of a Secret as a volume: key and file name.
pub fn secret(name: &str, secret: &str, items: &[(&str, &str)]) -> Volume {
    let source = SecretVolumeSource {
        secret_name: Some(secret.into()),
        items: Some(items.iter().map(to_path).collect()),
        ..SecretVolumeSource::default()
    };
    Volume { name: name.into(), secret: Some(source), ..Volume::default() }
}

fn to_path((key, path): &(&str, &str)) -> KeyToPath {
    KeyToPath { key: (*key).into(), path: (*path).into(), ..KeyToPath::default() }
}

/// An emptyDir volume.
pub fn empty_dir_volume(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

/// Node affinity to nodes with any of these labels.
pub fn on_nodes(labels: &[(&str, &str)]) -> Affinity {
    let term = |(key, value): &(&str, &str)| NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: (*key).into(),
            operator: "In".into(),
            values: Some(vec![(*value).into()]),
        }]),
        ..NodeSelectorTerm::default()
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: labels.iter().map(term).collect(),
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_takes_the_place_of_a_field_of_the_pod() {
        let mut one = container("c").with("A", "1").node_name();
        set_env(&mut one, "NODE_NAME", "mine");
        set_env(&mut one, "B", "2");
        let env = one.env.as_deref().unwrap();
        assert_eq!(env.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["A", "NODE_NAME", "B"]);
        assert!(env[1].value_from.is_none() && env[1].value.as_deref() == Some("mine"));
    }
}
