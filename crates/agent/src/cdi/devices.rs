//! Device nodes of GPUs, MIG devices and others, with their major and minor numbers.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use capstan_cdi::{ContainerEdits, DeviceNode};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Gpu, MigDevice};
use capstan_hw::root::resolve_in;

use super::Settings;
use super::files::names;
use super::hooks::{HookName, hook, links};

/// Collects device nodes and the groups that own them.
pub(super) struct Nodes<'a> {
    roots: &'a Roots,
    settings: &'a Settings,
    edits: ContainerEdits,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(roots: &'a Roots, settings: &'a Settings) -> Self {
        Self { roots, settings, edits: ContainerEdits::default() }
    }

    /// Adds a node if it exists.
    pub(super) fn add(&mut self, path: &str) {
        self.add_or(path, || None);
    }

    /// Adds a node if it exists, or else with these numbers.
    pub(super) fn add_or(&mut self, path: &str, numbers: impl FnOnce() -> Option<(i64, i64)>) {
        let host = self.roots.dev_host.join(path.trim_start_matches('/')).to_string_lossy().into_owned();
        let mut node = DeviceNode {
            path: path.to_owned(),
            host_path: (host != path).then_some(host),
            permissions: Some("rwm".into()),
            ..DeviceNode::default()
        };
        let here = self.roots.dev_here.join(path.trim_start_matches('/'));
        let found = resolve_in(&self.roots.dev_here, &here).and_then(|here| here.symlink_metadata().ok());
        match found {
            Some(meta) if meta.file_type().is_char_device() || meta.file_type().is_block_device() => {
                let kind = if meta.file_type().is_char_device() { "c" } else { "b" };
                node.type_ = Some(kind.into());
                node.major = Some(rustix::fs::major(meta.rdev()).into());
                node.minor = Some(rustix::fs::minor(meta.rdev()).into());
                node.file_mode = Some(meta.mode() & 0o777);
                node.gid = (meta.gid() != 0).then_some(meta.gid());
                let everyone = meta.mode() & 0o006 == 0o006;
                if meta.gid() != 0 && !everyone && !self.settings.flags.no_additional_gids {
                    self.edits.additional_gids.push(meta.gid());
                }
            }
            // Not a device node: let the runtime inspect it.
            Some(_) => node.permissions = None,
            None => match numbers() {
                Some((major, minor)) => {
                    (node.type_, node.major, node.minor) = (Some("c".into()), Some(major), Some(minor));
                    node.file_mode = Some(0o444);
                }
                None => return,
            },
        }
        self.edits.device_nodes.push(node);
    }

    /// Adds every matching node of a directory.
    pub(super) fn add_all(&mut self, dir: &str, wanted: impl Fn(&str) -> bool) {
        let here = self.roots.dev_here.join(dir.trim_start_matches('/'));
        for (name, _) in names(&here) {
            if wanted(&name) && !here.join(&name).is_dir() {
                self.add(&format!("{dir}/{name}"));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.edits.device_nodes.is_empty()
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.edits.device_nodes.iter().any(|node| node.path == path)
    }

    pub(super) fn edits(self) -> ContainerEdits {
        self.edits
    }
}

/// Container edits of a whole GPU.
pub(super) fn gpu(gpu: &Gpu, roots: &Roots, settings: &Settings) -> ContainerEdits {
    let mut nodes = Nodes::new(roots, settings);
    nodes.add(&format!("/dev/nvidia{}", gpu.minor));
    let links = add_drm(gpu, &mut nodes);
    finish(nodes, &links, settings)
}

/// Container edits of a MIG device: the nodes of its GPU, and the capabilities of its GPU and compute instance.
pub(super) fn mig(gpu: &Gpu, part: &MigDevice, minors: &str, roots: &Roots, settings: &Settings) -> ContainerEdits {
    let mut nodes = Nodes::new(roots, settings);
    nodes.add(&format!("/dev/nvidia{}", gpu.minor));
    let instance = format!("gpu{}/gi{}", gpu.minor, part.gi);
    for key in [format!("{instance}/access"), format!("{instance}/ci{}/access", part.ci)] {
        match minor(minors, &key).or_else(|| capability(settings, &key)) {
            Some(minor) => nodes.add_or(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), || {
                Some((major(&settings.root, "nvidia-caps")?, minor.into()))
            }),
            None => tracing::warn!(device = part.uuid, key, "no capability file for MIG device"),
        }
    }
    let graphics = part.profile.contains("gfx");
    let links = if graphics { add_drm(gpu, &mut nodes) } else { Vec::new() };
    let mut edits = nodes.edits();
    if graphics {
        edits.hooks.extend(hooks(&links, settings, &["/dev/dri", "/dev/nvidia-caps"]));
    } else {
        edits.hooks.extend(chmod(settings, &["/dev/nvidia-caps"]));
    }
    edits
}

fn finish(nodes: Nodes<'_>, links: &[(String, String)], settings: &Settings) -> ContainerEdits {
    let open: &[&str] = if nodes.edits.device_nodes.len() > 1 { &["/dev/dri"] } else { &[] };
    let mut edits = nodes.edits();
    edits.hooks.extend(hooks(links, settings, open));
    edits
}

fn hooks(by_path: &[(String, String)], settings: &Settings, open: &[&str]) -> Vec<capstan_cdi::Hook> {
    let profile = hook(settings, HookName::UpdateApplicationProfile, Vec::new());
    [links(settings, by_path), profile, chmod(settings, open)].into_iter().flatten().collect()
}

fn chmod(settings: &Settings, dirs: &[&str]) -> Option<capstan_cdi::Hook> {
    if dirs.is_empty() {
        return None;
    }
    let paths = dirs.iter().flat_map(|dir| ["--path".to_owned(), (*dir).to_owned()]);
    hook(settings, HookName::Chmod, ["--mode".to_owned(), "755".to_owned()].into_iter().chain(paths).collect())
}

/// Adds the DRM nodes, and returns the `by-path` symlinks to them.
fn add_drm(gpu: &Gpu, nodes: &mut Nodes<'_>) -> Vec<(String, String)> {
    if gpu.integrated() {
        return Vec::new();
    }
    let dir = nodes.settings.root.join(format!("sys/bus/pci/devices/{}/drm", gpu.pci));
    for (name, _) in names(&dir) {
        if name.starts_with("card") || name.starts_with("renderD") {
            nodes.add(&format!("/dev/dri/{name}"));
        }
    }
    let mut links = Vec::new();
    for kind in ["card", "render"] {
        let link = format!("dev/dri/by-path/pci-{}-{kind}", gpu.pci);
        let target = std::fs::read_link(nodes.roots.dev_here.join(&link)).ok();
        let target = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        if let Some(target) = target.filter(|target| nodes.has(&format!("/dev/dri/{target}"))) {
            links.push((format!("../{target}"), format!("/{link}")));
        }
    }
    links
}

/// Minor number of a capability, from lines such as `gpu0/gi1/access 12`. Other lines are skipped.
pub(super) fn minor(text: &str, key: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.next()?.parse().ok())?
    })
}

/// Minor number from the capability file itself: `DeviceFileMinor: 12`.
fn capability(settings: &Settings, key: &str) -> Option<u32> {
    let (gpu, rest) = key.split_once('/')?;
    let path = settings.root.join(format!("proc/driver/nvidia/capabilities/{gpu}/mig/{rest}"));
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("DeviceFileMinor:")?.trim().parse().ok())
}

/// Major number of a character driver, from lines such as `234 nvidia-caps`.
fn major(root: &Path, name: &str) -> Option<i64> {
    let text = std::fs::read_to_string(root.join("proc/devices")).ok()?;
    text.lines().take_while(|line| !line.starts_with("Block")).find_map(|line| {
        let (number, found) = line.trim().split_once(' ')?;
        (found == name).then(|| number.parse().ok())?
    })
}
