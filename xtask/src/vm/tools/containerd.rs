//! containerd 2, which the guest's release does not have: one package of a later one, known by its checksum.

use std::path::Path;

use anyhow::Result;

use super::super::namespace::isolated;
use super::stage::{Stage, logged};

/// Where the package is: in the archive as long as it is current, and in the archive's history for ever.
const SOURCES: [&str; 2] = [
    "http://deb.debian.org/debian/pool/main/c/containerd/containerd_2.1.9+ds1-5_amd64.deb",
    "http://snapshot.debian.org/file/f36c73c3f281a44234b4d507cdfc85d2fcdcd39c",
];
const SHA256: &str = "2dda86ce7033fd612fc50e136679d8174ccad680eb29cd4611e0d2a1b84cf591";

/// Fetches in the tree, whose apt checks the sum, and unpacks beside it.
const FETCH: &str = r#"tree=$1 part=$2 sum=$3
shift 3
mount -t proc proc "$tree/proc"
mount --bind "$part" "$tree/mnt"
mount --bind /etc/resolv.conf "$tree/etc/resolv.conf" || true
for source; do
  if chroot "$tree" /usr/lib/apt/apt-helper download-file "$source" /mnt/containerd.deb "SHA256:$sum"; then
    chroot "$tree" dpkg-deb --extract /mnt/containerd.deb /mnt/layer
    rm "$part/containerd.deb"
    exit 0
  fi
done
exit 1"#;

pub(super) fn stage() -> Result<Stage> {
    Stage::new("containerd", &[SHA256.as_bytes(), FETCH.as_bytes()])
}

pub(super) fn make(tree: &Path, part: &Path) -> Result<()> {
    logged("containerd", isolated("sh").args(["-euc", FETCH, "sh"]).arg(tree).arg(part).arg(SHA256).args(SOURCES))
}
