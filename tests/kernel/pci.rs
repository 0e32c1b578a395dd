//! What roles read of the PCI bus and the kernel, compared with what the kernel's own tools say.

use std::path::Path;

use capstan_hw::pci;
use capstan_node::{FEATURE_DISCOVERY, NODE_STATUS_EXPORTER};

use crate::guest::here;
use crate::here::{Running, gpus, sh, try_sh, until_async};

const LABELS: &str = "/run/features.d/gfd";

#[test]
fn functions_of_the_bus_are_those_that_lspci_lists() {
    let _here = here!(Host);
    let devices = pci::devices(Path::new("/")).expect("the bus is read");
    let list = |text: &str| text.split_whitespace().next().map(str::to_owned);
    let mut listed: Vec<String> = sh("lspci -D -n").lines().filter_map(list).collect();
    let mut read: Vec<String> = devices.iter().map(|device| device.address.as_str().to_owned()).collect();
    listed.sort();
    read.sort();
    assert_eq!(read, listed);
    let found: Vec<_> = devices.iter().filter(|device| device.is_gpu()).collect();
    assert_eq!(found.len(), 8);
    for gpu in found {
        assert_eq!((gpu.vendor, gpu.device, gpu.class), (pci::NVIDIA, 0x2330, 0x03_02_00));
        let config = gpu.config().expect("its configuration space");
        assert_eq!(&config[..4], [0xde, 0x10, 0x30, 0x23], "vendor and device, little end first");
    }
}

#[test]
fn discovery_describes_the_kernel_that_runs() {
    let here = here!(Host);
    here.run(async {
        let output = format!("--output-file={LABELS}");
        let args = ["--oneshot=true", "--node-features=true", "--use-node-feature-api=false", &output];
        Running::start(FEATURE_DISCOVERY.name, &args, gpus(8)).ended().await.expect("labels");
        let text = std::fs::read_to_string(LABELS).expect("the file of labels");
        let label = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            line.unwrap_or_else(|| panic!("no label {name} in\n{text}")).to_owned()
        };
        // A label may not have the plus of Debian's kernels.
        let kernel = sh("uname -r");
        assert!(kernel.contains('+'), "{kernel}");
        assert_eq!(label("feature.node.kubernetes.io/kernel-version.full"), kernel.replace('+', "_"));
        let mut numbers = kernel.split(['.', '+', '-']);
        for part in ["major", "minor", "revision"] {
            let name = format!("feature.node.kubernetes.io/kernel-version.{part}");
            assert_eq!(label(&name), numbers.next().expect("a number"), "{kernel}");
        }
        assert_eq!(label("feature.node.kubernetes.io/system-os_release.ID"), "debian");
        assert_eq!(label("feature.node.kubernetes.io/pci-10de.present"), "true");
        assert_eq!(label("nvidia.com/gpu.count"), "8");
        sh("rm -r /run/features.d");
    });
}

#[test]
fn a_gpu_that_is_removed_and_found_again_is_counted() {
    let here = here!(Host);
    sh("insmod /usr/lib/capstan/modules/nvidia.ko");
    here.run(async {
        let status = Running::start(NODE_STATUS_EXPORTER.name, &["--metrics-port=8001"], gpus(8));
        let counts = |wanted: i64| {
            let line = format!("gpu_operator_nvidia_pci_devices_total{{node=\"\"}} {wanted}");
            move || {
                let page = try_sh("busybox wget -qO- http://127.0.0.1:8001/metrics");
                String::from_utf8_lossy(&page.stdout).contains(&line)
            }
        };
        until_async("eight GPUs are counted", counts(8)).await;
        assert!(Path::new("/dev/nvidia3").exists());
        sh("echo 1 >/sys/bus/pci/devices/0000:60:03.0/remove");
        until_async("seven are left", counts(7)).await;
        assert!(!Path::new("/dev/nvidia3").exists(), "its driver let it go");
        sh("echo 1 >/sys/bus/pci/rescan");
        until_async("eight are counted again", counts(8)).await;
        until_async("its driver has it again", || Path::new("/dev/nvidia3").exists()).await;
        status.stop().await;
    });
    sh("rmmod nvidia");
}
