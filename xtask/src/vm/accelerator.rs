//! Hardware virtualisation where it runs the guest's kernel, emulation elsewhere.
//!
//! That `/dev/kvm` exists says little: on some machines QEMU hangs with it instead of failing. So the kernel is booted
//! once, for a short time, and the answer is kept until the machine boots again.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use super::tools::{self, Tools};
use crate::cluster::until;

/// How long the probe may take. Where KVM works, the kernel gives up its search for a root in about a second.
const PROBE: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    Kvm,
    Emulation,
}

impl Accelerator {
    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Emulation => "emulation",
        }
    }

    /// How QEMU is told. A plain processor boots faster under emulation than one with all extensions.
    pub(crate) fn flags(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Emulation => ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem"],
        }
    }
}

/// What this machine has, by a probe or from what the last one found.
pub(crate) fn choose(tools: &Tools) -> Result<Accelerator> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(Accelerator::Emulation);
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").context("this kernel has no boot_id")?;
    let tree = tools.tree.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let key = format!("{} {tree}", boot.trim());
    let file = tools::folder()?.join("accelerator");
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    if let Some((_, name)) = known.trim().rsplit_once(' ').filter(|(before, _)| *before == key) {
        return Ok(if name == Accelerator::Kvm.name() { Accelerator::Kvm } else { Accelerator::Emulation });
    }
    let found = if kvm_boots(tools)? { Accelerator::Kvm } else { Accelerator::Emulation };
    std::fs::write(file, format!("{key} {}\n", found.name()))?;
    Ok(found)
}

/// Whether the kernel gets as far as its panic for want of a root, which ends QEMU.
fn kvm_boots(tools: &Tools) -> Result<bool> {
    let mut command = super::machine::qemu(tools);
    command.args(["-M", "q35", "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(Accelerator::Kvm.flags()).arg("-kernel").arg(tools.kernel()?).args(["-append", "panic=-1 quiet"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot run QEMU")?;
    let mut ended = None;
    until(PROBE, || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    });
    child.kill()?;
    child.wait()?;
    Ok(ended.is_some_and(|status| status.success()))
}
