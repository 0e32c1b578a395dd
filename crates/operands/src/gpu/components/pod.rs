//! Words from which pods of operands are written.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ExecAction, HostPathVolumeSource,
    KeyToPath, LifecycleHandler, ObjectFieldSelector, Probe, SELinuxOptions, SecurityContext, Volume, VolumeMount,
};

/// A container of that name.
pub(crate) fn container(name: &str) -> Container {
    Container { name: name.into(), ..Container::default() }
}

/// What a container is written with, in the order of its fields.
pub(crate) trait Build: Sized {
    /// Command and arguments.
    fn runs(self, command: &[&str], args: &[&str]) -> Self;
    /// A variable.
    fn with(self, name: &str, value: &str) -> Self;
    /// A variable with a field of the pod.
    fn field(self, name: &str, path: &str) -> Self;
    /// The node's name as NODE_NAME.
    fn node_name(self) -> Self;
    /// Mounts.
    fn mounts(self, mounts: Vec<VolumeMount>) -> Self;
    /// All rights on the node.
    fn privileged(self) -> Self;
    /// All rights on the node, with the SELinux level of the host.
    fn privileged_s0(self) -> Self;
    /// What runs before the container is stopped.
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

/// Sets a variable where it stands, or at the end. A field of the pod under that name gives way to the value.
pub(crate) fn set_env(container: &mut Container, name: &str, value: &str) {
    let list = container.env.get_or_insert_default();
    let variable = EnvVar { name: name.into(), value: Some(value.into()), ..EnvVar::default() };
    match list.iter_mut().find(|one| one.name == name) {
        Some(one) => *one = variable,
        None => list.push(variable),
    }
}

/// The literal value of a variable.
pub(crate) fn env_of<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    container.env.iter().flatten().find(|one| one.name == name)?.value.as_deref()
}

/// A volume mounted at `path`.
pub(crate) fn at(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.into(), mount_path: path.into(), ..VolumeMount::default() }
}

/// Further words of a mount.
pub(crate) trait Mount {
    /// Read only.
    fn read_only(self) -> Self;
    /// Mounts of the host show inside.
    fn host_to_container(self) -> Self;
    /// Mounts show both ways.
    fn both_ways(self) -> Self;
    /// Only this file or directory of the volume.
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

    fn both_ways(mut self) -> Self {
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

/// A path of the node, whatever it is.
pub(crate) fn host(name: &str, path: &str) -> Volume {
    host_path(name, path, None)
}

/// A directory of the node that must be there.
pub(crate) fn host_dir(name: &str, path: &str) -> Volume {
    host_path(name, path, Some("Directory"))
}

/// A directory of the node, made when absent.
pub(crate) fn host_make(name: &str, path: &str) -> Volume {
    host_path(name, path, Some("DirectoryOrCreate"))
}

/// A path of the node of that type.
pub(crate) fn host_typed(name: &str, path: &str, type_: &str) -> Volume {
    host_path(name, path, Some(type_))
}

/// A ConfigMap as a volume.
pub(crate) fn config(name: &str, config_map: &str, mode: Option<i32>, items: &[(&str, &str)]) -> Volume {
    let item =
        |(key, path): &(&str, &str)| KeyToPath { key: (*key).into(), path: (*path).into(), ..KeyToPath::default() };
    let source = ConfigMapVolumeSource {
        name: config_map.into(),
        default_mode: mode,
        items: (!items.is_empty()).then(|| items.iter().map(item).collect()),
        ..ConfigMapVolumeSource::default()
    };
    Volume { name: name.into(), config_map: Some(source), ..Volume::default() }
}

/// An empty directory that lives as long as the pod.
pub(crate) fn scratch(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

/// A probe that runs a command: initial delay, period, timeout, failures until it counts.
pub(crate) fn exec_probe(command: &[&str], delay: i32, period: i32, timeout: i32, failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction { command: Some(command.iter().map(|word| (*word).into()).collect()) }),
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        timeout_seconds: Some(timeout),
        failure_threshold: Some(failures),
        ..Probe::default()
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
