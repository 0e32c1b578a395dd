//! Programs of a real cluster: found in PATH, or built from `e2e/tools` with Go and cached.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program and the Go package that it is built from.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    package: &'static str,
    /// Folder of the Go module that pins it.
    module: &'static str,
}

/// Where Kubernetes' own programs are pinned.
const MODULE: &str = "e2e/tools";

pub(crate) const ETCD: Tool = pinned("etcd", "go.etcd.io/etcd/server/v3");
pub(crate) const API_SERVER: Tool = pinned("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
pub(crate) const CONTROLLERS: Tool = pinned("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager");
pub(crate) const SCHEDULER: Tool = pinned("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
pub(crate) const KUBECTL: Tool = pinned("kubectl", "k8s.io/kubernetes/cmd/kubectl");

pub(crate) const KUBELET: Tool = pinned("kubelet", "k8s.io/kubernetes/cmd/kubelet");
pub(crate) const PROXY: Tool = pinned("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");
pub(crate) const HELM: Tool = pinned("helm", "helm.sh/helm/v3/cmd/helm");

/// Gives pods of a guest more than one interface. Its versions of Kubernetes' libraries are older, hence a module of its
/// own.
pub(crate) const MULTUS: Tool =
    Tool { name: "multus", package: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus", module: "e2e/cni" };

const fn pinned(name: &'static str, package: &'static str) -> Tool {
    Tool { name, package, module: MODULE }
}

/// All of them.
pub(crate) const ALL: [&Tool; 8] = [&KUBECTL, &ETCD, &API_SERVER, &CONTROLLERS, &SCHEDULER, &KUBELET, &PROXY, &HELM];

impl Tool {
    /// Path of the program. Builds it if it is not found.
    pub(crate) fn find(&self, root: &Path) -> Result<PathBuf> {
        if let Some(found) = self.present(root)? {
            return Ok(found);
        }
        let built = self.folder(root)?.join(self.name);
        self.build(root, &built)?;
        Ok(built)
    }

    /// Where the program is, unless it would have to be built.
    pub(crate) fn present(&self, root: &Path) -> Result<Option<PathBuf>> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|folder| PathBuf::from(folder).join(self.name));
        if let Some(found) = assets.filter(|file| file.is_file()).or_else(|| in_path(self.name)) {
            return Ok(Some(found));
        }
        Ok(Some(self.folder(root)?.join(self.name)).filter(|file| file.is_file()))
    }

    /// Where built programs of its module are kept: outside the tree, one folder per set of pinned versions.
    fn folder(&self, root: &Path) -> Result<PathBuf> {
        let sums = root.join(self.module).join("go.sum");
        let versions = std::fs::read(&sums).with_context(|| format!("cannot read {}", sums.display()))?;
        let folder = cache()?.join("tools").join(fingerprint(&versions));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn build(&self, root: &Path, to: &Path) -> Result<()> {
        eprintln!("building {} (once; minutes on a small machine)", self.name);
        let version = kubernetes_version(root)?;
        let (major, minor) =
            version.trim_start_matches('v').split_once('.').context("odd version of k8s.io/kubernetes")?;
        let minor = minor.split('.').next().unwrap_or_default();
        // Without a version the server reports v0.0.0, and clients choose outdated APIs.
        let mut flags = String::from("-s -w");
        for place in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            flags +=
                &format!(" -X {place}.gitVersion={version} -X {place}.gitMajor={major} -X {place}.gitMinor={minor}");
        }
        let mut part = to.to_owned();
        part.set_extension("part");
        let status = Command::new("go")
            .args(["build", "-ldflags", &flags, "-o"])
            .arg(&part)
            .arg(self.package)
            .current_dir(root.join(self.module))
            .env("CGO_ENABLED", "0")
            .status();
        match status {
            Ok(status) if status.success() => Ok(std::fs::rename(part, to)?),
            Ok(_) => bail!("building {} failed: see above", self.name),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} is neither in $KUBEBUILDER_ASSETS nor in PATH, and there is no Go to build it: install one of them",
                self.name
            ),
            Err(error) => Err(error).context("cannot run go"),
        }
    }
}

/// Path of a program in PATH, or in the system directories.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A name for content, for folders of caches: what has another content has another name.
pub(crate) fn fingerprint(content: &[u8]) -> String {
    let hash = content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// The project's cache directory.
pub(crate) fn cache() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("capstan"))
}

fn kubernetes_version(root: &Path) -> Result<String> {
    let text = std::fs::read_to_string(root.join("e2e/tools/go.mod")).context("cannot read e2e/tools/go.mod")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = line.and_then(|line| line.split_whitespace().next());
    Ok(version.context("e2e/tools/go.mod does not pin k8s.io/kubernetes")?.to_owned())
}
