//! Programs of a real cluster: found in PATH, or built from `e2e/tools` with Go and cached.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program and the Go package that it is built from.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    package: &'static str,
}

pub(crate) const ETCD: Tool = Tool { name: "etcd", package: "go.etcd.io/etcd/server/v3" };
pub(crate) const API_SERVER: Tool = Tool { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" };
pub(crate) const CONTROLLERS: Tool =
    Tool { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" };
pub(crate) const SCHEDULER: Tool = Tool { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" };
pub(crate) const KUBECTL: Tool = Tool { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" };

pub(crate) const KUBELET: Tool = Tool { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet" };
pub(crate) const PROXY: Tool = Tool { name: "kube-proxy", package: "k8s.io/kubernetes/cmd/kube-proxy" };
pub(crate) const HELM: Tool = Tool { name: "helm", package: "helm.sh/helm/v3/cmd/helm" };

/// All of them.
pub(crate) const ALL: [&Tool; 8] = [&KUBECTL, &ETCD, &API_SERVER, &CONTROLLERS, &SCHEDULER, &KUBELET, &PROXY, &HELM];

impl Tool {
    /// Path of the program. Builds it if it is not found.
    pub(crate) fn find(&self, root: &Path) -> Result<PathBuf> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|folder| PathBuf::from(folder).join(self.name));
        if let Some(found) = assets.filter(|file| file.is_file()).or_else(|| in_path(self.name)) {
            return Ok(found);
        }
        let built = folder(root)?.join(self.name);
        if !built.is_file() {
            self.build(root, &built)?;
        }
        Ok(built)
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
            .current_dir(root.join("e2e/tools"))
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

/// Cache of built programs: outside the tree, one directory per set of pinned versions.
fn folder(root: &Path) -> Result<PathBuf> {
    let versions = std::fs::read(root.join("e2e/tools/go.sum")).context("cannot read e2e/tools/go.sum")?;
    let hash = versions
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let folder = cache()?.join("tools").join(format!("{hash:016x}"));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
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
