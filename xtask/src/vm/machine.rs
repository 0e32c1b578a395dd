//! The machine that a guest sees, as QEMU's command line. Paths are relative to the guest's folder.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::accelerator::Accelerator;
use super::tools::Tools;

/// What the guest's root has that runs first.
pub(crate) const INIT: &str = "/usr/sbin/capstan-init";

/// What a test does not need of a boot: a third of its time under emulation.
const QUICK: &str = "mitigations=off nokaslr cryptomgr.notests tsc=reliable no_timer_check rcupdate.rcu_expedited=1";

/// An H100 as the fake bus is told: vendor, device and class.
const GPU: &str = "10de:2330:030200";

/// What a guest has.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Hardware {
    /// NICs with seven virtual functions each, behind an IOMMU, on one wire
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) nics: u8,
    /// GPUs in the PCI tree, without anything behind them
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=32))]
    pub(crate) gpus: u8,
    /// Secure Boot with a key of our own: unsigned modules are refused
    #[arg(long)]
    pub(crate) secure_boot: bool,
    /// Load modules by events of devices, as a host does: some seconds more
    #[arg(long)]
    pub(crate) udev: bool,
    /// Processors
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) cpus: u8,
    /// Memory in MiB
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub(crate) memory: u32,
    /// A second serial line on this terminal.
    #[arg(skip)]
    pub(crate) console: bool,
    /// A network whose other end is this machine, at 10.0.2.2.
    #[arg(skip)]
    pub(crate) network: bool,
    /// A disk without content, `/dev/vda`, which outlives a boot.
    #[arg(skip)]
    pub(crate) disk: bool,
    /// Sockets of a wire to another guest: this end and that one.
    #[arg(skip)]
    pub(crate) wire: Option<(String, String)>,
}

impl Hardware {
    /// What the guest does before it is ready.
    pub(crate) fn boot_script(&self) -> String {
        let mut script = String::from("set -eu\n");
        if self.gpus > 0 {
            let gpus = vec![GPU; self.gpus.into()].join(",");
            script += &format!("insmod /usr/lib/capstan/modules/fakepci.ko devs={gpus}\n");
        }
        if self.nics > 0 || self.wire.is_some() {
            script += "modprobe igb\n";
        }
        script
    }

    /// Everything after QEMU's name.
    pub(crate) fn flags(&self, tools: &Tools, accelerator: Accelerator) -> Result<Vec<String>> {
        let iommu = self.nics > 0;
        let mut machine = String::from("q35");
        if iommu {
            machine += ",kernel-irqchip=split";
        }
        if self.secure_boot {
            machine += ",smm=on";
        }
        let memory = self.memory;
        let mut flags: Vec<String> =
            ["-M", &machine].iter().chain(&accelerator.flags()).map(ToString::to_string).collect();
        flags.extend(words(&format!(
            "-smp {} -m {memory} -object memory-backend-memfd,id=mem,size={memory}M,share=on -numa node,memdev=mem \
             -nodefaults -no-user-config -display none -no-reboot -serial file:console.log \
             -chardev socket,id=root,path=root.sock -device vhost-user-fs-pci,chardev=root,tag=root \
             -chardev socket,id=host,path=host.sock -device vhost-user-fs-pci,chardev=host,tag=host \
             -device virtio-serial-pci -chardev socket,id=control,path=control.sock,server=on,wait=off \
             -device virtserialport,chardev=control,name=capstan",
            self.cpus
        )));
        self.add_devices(&mut flags);
        if self.secure_boot {
            let code = tools.tree.join("usr/share/OVMF/OVMF_CODE_4M.secboot.fd");
            flags.extend(words("-global driver=cfi.pflash01,property=secure,value=on"));
            flags.extend(["-drive".into(), format!("if=pflash,unit=0,format=raw,readonly=on,file={}", code.display())]);
            flags.extend(words("-drive if=pflash,unit=1,format=raw,file=variables.fd"));
        }
        let unpacked = Some(tools.modules.join("vmlinux")).filter(|file| file.is_file());
        let kernel = match unpacked {
            _ if self.secure_boot => tools.modules.join("vmlinuz.signed"),
            Some(unpacked) => unpacked,
            None => tools.kernel()?,
        };
        let mut line =
            format!("console=ttyS0 quiet root=root rootfstype=virtiofs rw init={INIT} panic=-1 net.ifnames=0 {QUICK}");
        for (wanted, word) in [(self.udev, " capstan.udev"), (iommu, " intel_iommu=on")] {
            line += if wanted { word } else { "" };
        }
        flags.extend(["-kernel".into(), kernel.display().to_string(), "-append".into(), line]);
        Ok(flags)
    }

    fn add_devices(&self, flags: &mut Vec<String>) {
        if self.console {
            flags.extend(words("-chardev stdio,id=tty,signal=off -serial chardev:tty"));
        }
        if self.network {
            flags.extend(words("-netdev user,id=outside -device virtio-net-pci,netdev=outside,romfile="));
        }
        if self.disk {
            flags.extend(words("-drive if=virtio,format=raw,file=disk.img"));
        }
        if let Some((here, there)) = &self.wire {
            let last = if here.ends_with('0') { "01" } else { "02" };
            flags.extend(words(&format!(
                "-netdev dgram,id=wire,local.type=unix,local.path={here},remote.type=unix,remote.path={there} \
                 -device igb,netdev=wire,mac=52:54:00:00:ff:{last},romfile="
            )));
        }
        if self.nics > 0 {
            flags.extend(words("-device intel-iommu,intremap=on,caching-mode=on"));
        }
        for number in 1..=self.nics {
            flags.extend(words(&format!(
                "-device pcie-root-port,id=port{number},chassis={number},slot={number} \
                 -netdev hubport,id=nic{number},hubid=1 \
                 -device igb,bus=port{number},netdev=nic{number},mac=52:54:00:00:{number:02x}:00,romfile="
            )));
        }
    }
}

/// QEMU of the tree, with its own firmware and modules.
pub(crate) fn qemu(tools: &Tools) -> Command {
    let mut command = tools.program("usr/bin/qemu-system-x86_64");
    for folder in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        command.arg("-L").arg(tools.tree.join(folder));
    }
    command.env("QEMU_MODULE_DIR", tools.tree.join("usr/lib/x86_64-linux-gnu/qemu"));
    command
}

/// A file system of the host for the guest.
pub(crate) fn virtiofsd(tools: &Tools, socket: &str, folder: &Path, cache: &str) -> Command {
    let mut command = tools.program("usr/libexec/virtiofsd");
    command.arg(format!("--socket-path={socket}")).arg("--shared-dir").arg(folder);
    command.args([&format!("--cache={cache}"), "--sandbox=none", "--xattr", "--log-level=error"]);
    command
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware() -> Hardware {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            hardware: Hardware,
        }
        <Line as clap::Parser>::parse_from(["test"]).hardware
    }

    #[test]
    fn each_nic_has_a_port_of_its_own_behind_an_iommu() {
        let mut flags = Vec::new();
        Hardware { nics: 2, ..hardware() }.add_devices(&mut flags);
        let text = flags.join(" ");
        assert_eq!(text.matches("-device igb,").count(), 2, "{text}");
        assert!(text.contains("bus=port2") && text.contains("intel-iommu"), "{text}");
    }

    #[test]
    fn gpus_are_on_the_bus_before_the_guest_is_ready() {
        let script = Hardware { gpus: 2, ..hardware() }.boot_script();
        assert!(script.ends_with("devs=10de:2330:030200,10de:2330:030200\n"), "{script}");
        assert!(!hardware().boot_script().contains("insmod"));
    }
}
