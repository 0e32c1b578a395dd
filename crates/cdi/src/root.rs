//! Relocates a spec to another root: files found below `/driver-root` are below `/run/nvidia/driver` for a runtime.
//!
//! Paths are compared by components. A hook's path is on the host, except for `startContainer`, which runs in the
//! container; its arguments are container paths.

use std::path::{Path, PathBuf};

use crate::Spec;
use crate::spec::{ContainerEdits, Hook};

/// Which paths to relocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelativeTo {
    /// Paths on the host.
    Host,
    /// Paths in the container.
    Container,
}

/// A relocation from one root to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootMove {
    /// Current root.
    pub from: PathBuf,
    /// New root.
    pub to: PathBuf,
    /// Which paths.
    pub relative_to: RelativeTo,
}

impl RootMove {
    /// Relocates every path of the spec that is below the root.
    pub fn apply(&self, spec: &mut Spec) {
        if self.from == self.to {
            return;
        }
        self.edits(&mut spec.container_edits);
        spec.devices.iter_mut().for_each(|device| self.edits(&mut device.container_edits));
    }

    fn edits(&self, edits: &mut ContainerEdits) {
        for node in &mut edits.device_nodes {
            match self.relative_to {
                RelativeTo::Host => {
                    let host = self.path(node.host_path.as_deref().unwrap_or(&node.path));
                    node.host_path = Some(host);
                }
                RelativeTo::Container => node.path = self.path(&node.path),
            }
        }
        for mount in &mut edits.mounts {
            let side = match self.relative_to {
                RelativeTo::Host => &mut mount.host_path,
                RelativeTo::Container => &mut mount.container_path,
            };
            *side = self.path(side);
        }
        edits.hooks.iter_mut().for_each(|hook| self.hook(hook));
    }

    fn hook(&self, hook: &mut Hook) {
        let starts = hook.hook_name == "startContainer";
        let prepares = starts || hook.hook_name == "createContainer";
        let (program, arguments) = match self.relative_to {
            RelativeTo::Host => (!starts, !prepares),
            RelativeTo::Container => (starts, prepares),
        };
        if program {
            hook.path = self.path(&hook.path);
        }
        if arguments {
            for argument in &mut hook.args {
                *argument = match argument.split_once("::") {
                    Some((target, link)) => format!("{}::{}", self.path(target), self.path(link)),
                    None => self.path(argument),
                };
            }
        }
    }

    /// Relocates a path, if below the root.
    fn path(&self, path: &str) -> String {
        match Path::new(path).strip_prefix(&self.from) {
            Ok(rest) if rest.as_os_str().is_empty() => self.to.to_string_lossy().into_owned(),
            Ok(rest) => self.to.join(rest).to_string_lossy().into_owned(),
            Err(_) => path.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DeviceNode, Mount};

    fn to(from: &str, to: &str, relative_to: RelativeTo) -> RootMove {
        RootMove { from: from.into(), to: to.into(), relative_to }
    }

    #[test]
    fn whole_components_decide() {
        let cases = [
            ("/root", "/new", "/root/lib/x", "/new/lib/x"),
            ("/root", "/new", "/root", "/new"),
            ("/root", "/new", "/other/x", "/other/x"),
            ("/root", "/new", "/root2/x", "/root2/x"),
            ("/root", "/new", "/ro", "/ro"),
            ("/root/", "/new/", "/root/x", "/new/x"),
            ("/", "/new", "/dev/x", "/new/dev/x"),
            ("/root", "/", "/root/dev/x", "/dev/x"),
            ("/root", "/new", "relative/x", "relative/x"),
        ];
        for (from, new, path, wanted) in cases {
            assert_eq!(to(from, new, RelativeTo::Host).path(path), wanted, "{from} to {new}");
        }
    }

    fn example() -> Spec {
        let hook = |name: &str| Hook {
            hook_name: name.into(),
            path: "/root/bin/hook".into(),
            args: vec!["hook".into(), "/root/a::/root/b".into(), "/root/c".into()],
            ..Hook::default()
        };
        let edits = ContainerEdits {
            device_nodes: vec![DeviceNode { path: "/root/dev/x".into(), ..DeviceNode::default() }],
            mounts: vec![Mount {
                host_path: "/root/lib".into(),
                container_path: "/root/lib".into(),
                ..Mount::default()
            }],
            hooks: ["prestart", "createContainer", "startContainer"].map(hook).into(),
            ..ContainerEdits::default()
        };
        Spec { container_edits: edits, ..Spec::default() }
    }

    fn shown(spec: &Spec) -> Vec<String> {
        let edits = &spec.container_edits;
        let node = &edits.device_nodes[0];
        let mut rows = vec![format!("{} {}", node.path, node.host_path.as_deref().unwrap_or("-"))];
        rows.push(format!("{} {}", edits.mounts[0].host_path, edits.mounts[0].container_path));
        rows.extend(edits.hooks.iter().map(|hook| format!("{} {} {}", hook.path, hook.args[1], hook.args[2])));
        rows
    }

    #[test]
    fn the_side_decides_which_paths_move() {
        let mut spec = example();
        to("/root", "/new", RelativeTo::Host).apply(&mut spec);
        let wanted = [
            "/root/dev/x /new/dev/x",
            "/new/lib /root/lib",
            "/new/bin/hook /new/a::/new/b /new/c",
            "/new/bin/hook /root/a::/root/b /root/c",
            "/root/bin/hook /root/a::/root/b /root/c",
        ];
        assert_eq!(shown(&spec), wanted);
        let mut spec = example();
        to("/root", "/new", RelativeTo::Container).apply(&mut spec);
        let wanted = [
            "/new/dev/x -",
            "/root/lib /new/lib",
            "/root/bin/hook /root/a::/root/b /root/c",
            "/root/bin/hook /new/a::/new/b /new/c",
            "/new/bin/hook /new/a::/new/b /new/c",
        ];
        assert_eq!(shown(&spec), wanted);
    }

    #[test]
    fn moving_to_the_same_place_changes_nothing() {
        let mut spec = example();
        to("/root", "/root", RelativeTo::Host).apply(&mut spec);
        assert_eq!(spec, example());
    }
}
