//! Roles with their defaults, at the paths that they have on a host.

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_kubelet::fake::Kubelet;
use capstan_node::{CDI_SPECS, DEVICE_PLUGIN, VALIDATOR, validation};

use crate::guest::here;
use crate::here::{Running, gpus, install_libraries, sh, try_sh, until_async};

/// Where kubelets and plugins meet.
pub(crate) const PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// What plugins offer.
pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A kubelet for tests, where real ones are.
pub(crate) fn kubelet() -> Kubelet {
    std::fs::create_dir_all(PLUGINS).expect("a folder");
    Kubelet::start(PLUGINS.as_ref()).expect("a kubelet")
}

#[test]
fn the_device_plugin_offers_gpus_and_hands_them_out() {
    let here = here!(Host);
    here.run(async {
        let kubelet = kubelet();
        let plugin = Running::start(DEVICE_PLUGIN.name, &[], gpus(8));
        let offered = kubelet.until(GPU, |plugin| plugin.healthy().len() == 8).await;
        let wanted: Vec<&str> = offered.healthy()[..2].to_vec();
        let answer = kubelet.allocate(GPU, &wanted).await.expect("an answer");
        assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], wanted.join(","));
        plugin.stop().await;
        kubelet.stop().await;
    });
    assert_eq!(sh(&format!("ls {PLUGINS}")), "kubelet.sock", "no socket of the plugin is left");
}

#[test]
fn the_validator_links_the_nodes_of_a_driver_that_the_kernel_has() {
    let here = here!(Host);
    let check = ["--component=driver", "--host-root-ctr-path=/", "--with-wait=false"];
    sh("mkdir -p /host-dev-char");
    here.run(async {
        sh("mkdir -p /run/nvidia/validations; rm -f /run/nvidia/validations/*");
        let without = Running::start(VALIDATOR.name, &check, gpus(8)).ended().await.expect_err("no module is loaded");
        assert!(without.to_string().contains("/proc/devices has no nvidia"), "{without}");
        sh("cd /usr/lib/capstan/modules && insmod nvidia.ko && insmod nvidia-uvm.ko");
        Running::start(VALIDATOR.name, &check, gpus(8)).ended().await.expect("the driver works");
    });
    // Links name the nodes that the kernel made, by their numbers.
    for node in ["nvidiactl", "nvidia0", "nvidia7", "nvidia-uvm"] {
        let numbers = sh(&format!("stat -c '%Hr:%Lr' /dev/{node}"));
        assert_eq!(sh(&format!("readlink /host-dev-char/{numbers}")), format!("/dev/{node}"));
    }
    assert!(sh("ls /run/nvidia/validations").contains(validation::DRIVER));
    let refused = try_sh("rmmod nvidia");
    assert!(!refused.status.success(), "another module depends on it");
    sh("rmmod nvidia_uvm && rmmod nvidia && rm -r /host-dev-char /run/nvidia");
}

#[test]
fn specs_follow_device_nodes_that_the_kernel_makes_and_takes() {
    let here = here!(Host);
    let recording = gpus(8);
    install_libraries("/".as_ref(), &recording);
    sh("cd /usr/lib/capstan/modules && insmod nvidia.ko && insmod nvidia-uvm.ko");
    let spec = "/var/run/cdi/nvidia.yaml";
    here.run(async {
        let args = ["--resync-seconds=1", "--disable-hook=all"];
        let specs = Running::start_at(CDI_SPECS.name, &args, recording.clone(), Roots::local());
        let names = |text: &'static str| move || std::fs::read_to_string(spec).is_ok_and(|spec| spec.contains(text));
        until_async("the spec names a node", names("/dev/nvidia7")).await;
        for node in sh("ls /dev/nvidia*").split_whitespace() {
            let text = std::fs::read_to_string(spec).expect("the spec");
            assert!(text.contains(node), "no {node} in\n{text}");
        }
        // One GPU goes: containers keep getting the others.
        sh("echo 1 >/sys/bus/pci/devices/0000:60:07.0/remove");
        until_async("the spec is without it", || !names("/dev/nvidia7")() && names("/dev/nvidia6")()).await;
        sh("echo 1 >/sys/bus/pci/rescan");
        until_async("the spec has it again", names("/dev/nvidia7")).await;
        // The driver goes: so does the spec, or containers would be given nodes that nobody serves.
        sh("rmmod nvidia_uvm && rmmod nvidia");
        until_async("the spec goes with the driver", || !std::path::Path::new(spec).exists()).await;
        specs.stop().await;
    });
    sh("rm -r /var/run/cdi");
    sh("rm /usr/lib/x86_64-linux-gnu/libcuda.so.* /usr/lib/x86_64-linux-gnu/libnvidia-*");
}
