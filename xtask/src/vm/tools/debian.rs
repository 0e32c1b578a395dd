//! The guest's root: Debian's stable release, by debootstrap and apt, which check what they fetch against signed lists.

use std::path::Path;

use anyhow::{Context, Result};

use super::super::namespace::isolated;
use super::stage::{Stage, logged};

const RELEASE: &str = "trixie";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Who signs the lists. Other distributions have it in the same package.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Installs in a chroot. Packages that were fetched outlive a run that is cut short.
const INSTALL: &str = r#"tree=$1 debs=$2 script=$3
shift 3
mount -t proc proc "$tree/proc"
mount --bind "$debs" "$tree/var/cache/apt/archives"
cp "$script" "$tree/root/install.sh"
chroot "$tree" sh /root/install.sh "$@"
rm "$tree/root/install.sh""#;

pub(super) fn stage(root: &Path) -> Result<Stage> {
    let script = read(root, "e2e/vm/install.sh")?;
    Stage::new(
        "tree",
        &[RELEASE.as_bytes(), MIRROR.as_bytes(), packages(root)?.join(" ").as_bytes(), script.as_bytes()],
    )
}

pub(super) fn make(root: &Path, part: &Path) -> Result<()> {
    let debs = super::folder()?.join("debs");
    std::fs::create_dir_all(&debs)?;
    let mut bootstrap = isolated("debootstrap");
    bootstrap.arg("--variant=minbase").arg(format!("--keyring={KEYRING}"));
    bootstrap.arg(format!("--cache-dir={}", debs.display())).arg(RELEASE).arg(part).arg(MIRROR);
    logged("debootstrap", &mut bootstrap)?;
    let mut install = isolated("sh");
    install.args(["-euc", INSTALL, "sh"]).arg(part).arg(&debs).arg(root.join("e2e/vm/install.sh"));
    logged("apt", install.args(packages(root)?))?;
    // They are in the tree now.
    Ok(std::fs::remove_dir_all(debs)?)
}

/// Names of the packages, in the order of the file.
fn packages(root: &Path) -> Result<Vec<String>> {
    let text = read(root, "e2e/vm/packages")?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.flat_map(str::split_whitespace).map(str::to_owned).collect())
}

fn read(root: &Path, path: &str) -> Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}
