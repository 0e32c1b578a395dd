//! Checks on fake files and GPUs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use capstan_hw::fake::{Fake, Model, Recording, Root, node};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Hardware, Source};
use clap::Parser;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::super::{Options, World, validate};
use super::{dev_char, driver, workload};
use crate::Cx;
use crate::own_node::NodeFacts;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

/// A node in a directory: `/` of this process, the host below `host`, a driver container below `driver`.
struct Node {
    dir: tempfile::TempDir,
    labels: BTreeMap<String, String>,
    capacity: BTreeMap<String, String>,
    hardware: Option<Arc<Fake>>,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let recording = node(Model::H200, 2);
        Root::write(dir.path(), &recording.inventory).expect("files");
        std::fs::create_dir_all(dir.path().join("host-dev-char")).expect("a directory");
        Self { dir, labels: BTreeMap::new(), capacity: BTreeMap::new(), hardware: Some(Arc::new(Fake::new(recording))) }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        std::fs::write(file, text).expect("a file");
        self
    }

    fn program(&self, name: &str) -> &Self {
        use std::os::unix::fs::PermissionsExt;
        self.file(name, "x");
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).expect("mode");
        self
    }

    fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    fn world(&self, component: &str, more: &[&str]) -> World {
        let at = |flag: &str, path: &str| format!("--{flag}={}", self.path(path).display());
        let mut arguments = vec!["validator".to_owned(), format!("--component={component}"), "--node-name=n".into()];
        arguments.extend([at("output-dir", "validations"), at("host-root-ctr-path", "host")]);
        arguments.extend([at("driver-install-dir-ctr-path", "driver"), "--with-workload=false".into()]);
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let options = Cli::try_parse_from(arguments).expect("arguments").options;
        let facts = NodeFacts {
            labels: self.labels.clone(),
            capacity: self.capacity.clone(),
            allocatable: self.capacity.clone(),
        };
        let hardware = self.hardware.clone();
        let source = Arc::new(Source::of(Arc::new(Fake::new(Recording::h200()))));
        let cx = Cx::new(source, Roots::local(), self.dir.path(), CancellationToken::new());
        World {
            options,
            cx,
            watch: Arc::new(move || futures::stream::iter([Ok(facts.clone())]).boxed()),
            open: Arc::new(move |roots: &Roots| {
                let missing = || capstan_hw::Error::NoLibrary { searched: roots.here.clone() };
                roots.nvml()?;
                hardware.clone().map(|fake| fake as Arc<dyn Hardware>).ok_or_else(missing)
            }),
            node: None,
        }
    }

    async fn check(&self, component: &str, more: &[&str]) -> Result<(), String> {
        validate(&self.world(component, more)).await.map_err(|error| error.to_string())
    }

    fn ready(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.path("validations").join(file)).ok()
    }
}

const LIBRARY: &str = "usr/lib64/libnvidia-ml.so.1";

#[tokio::test]
async fn a_driver_on_the_host_is_found_in_each_of_its_places() {
    for place in ["usr/bin", "usr/sbin", "bin", "sbin", "opt/bin"] {
        let node = Node::new();
        node.program(&format!("host/{place}/nvidia-smi")).file(&format!("host/{LIBRARY}"), "x");
        node.check("driver", &[]).await.expect(place);
        let said = node.ready("driver-ready").expect("a file");
        let wanted = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n";
        assert_eq!(said, wanted);
    }
}

#[tokio::test]
async fn a_driver_in_a_container_says_where_its_devices_are() {
    for (dev, dev_root, dev_here) in [(true, "/run/nvidia/driver", "/driver-root"), (false, "/", "/host")] {
        let node = Node::new();
        node.file(&format!("driver/{LIBRARY}"), "x");
        if dev {
            node.file("driver/dev/null", "");
        }
        node.check("driver", &[]).await.expect("a driver");
        let said = node.ready("driver-ready").expect("a file");
        let wanted = format!(
            "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/run/nvidia/driver\nDRIVER_ROOT_CTR_PATH=/driver-root\nNVIDIA_DEV_ROOT={dev_root}\nDEV_ROOT_CTR_PATH={dev_here}\n"
        );
        assert_eq!(said, wanted);
    }
}

#[tokio::test]
async fn windows_drivers_are_taken_without_running_them() {
    let node = Node::new();
    node.file("host/usr/lib/wsl/lib/nvidia-smi", "x");
    node.check("driver", &[]).await.expect("a driver");
    assert!(node.ready("driver-ready").expect("a file").starts_with("IS_HOST_DRIVER=true"));
    assert_eq!(std::fs::read_dir(node.path("host-dev-char")).expect("listed").count(), 0, "there are no device nodes");
}

#[tokio::test]
async fn programs_that_cannot_run_are_no_driver() {
    let node = Node::new();
    // Without an execute bit, empty, and behind a link that leaves the root.
    node.file("host/usr/bin/nvidia-smi", "x").file("host/sbin/nvidia-smi", "").file(&format!("host/{LIBRARY}"), "x");
    let error = node.check("driver", &[]).await.expect_err("no driver");
    assert!(error.contains("no driver works"), "{error}");
    assert_eq!(node.ready("driver-ready"), None);
}

#[tokio::test]
async fn a_host_driver_that_fails_is_told_only_if_there_is_no_other() {
    let mut node = Node::new();
    node.hardware = None;
    node.program("host/usr/bin/nvidia-smi").file(&format!("host/{LIBRARY}"), "x");
    let error = node.check("driver", &[]).await.expect_err("no driver");
    assert!(error.contains("on the host:") && error.contains("in a container:"), "{error}");
}

#[tokio::test]
async fn a_driver_pod_of_this_node_is_waited_for() {
    let node = Node::new().label("nvidia.com/gpu.deploy.driver", "true");
    node.file(&format!("driver/{LIBRARY}"), "x");
    let error = node.check("driver", &[]).await.expect_err("not yet");
    assert!(error.contains("the driver's pod is not ready"), "{error}");
    node.file("validations/.driver-ctr-ready", "GDS_ENABLED: false\n");
    node.check("driver", &[]).await.expect("ready");
}

#[tokio::test]
async fn a_node_with_a_driver_of_its_own_waits_for_no_pod() {
    for value in ["false", "pre-installed"] {
        let node = Node::new().label("nvidia.com/gpu.deploy.driver", value);
        node.file(&format!("driver/{LIBRARY}"), "x");
        node.check("driver", &[]).await.expect(value);
    }
}

#[test]
fn what_a_driver_pod_loaded_beside_is_read() {
    let file = Path::new("f");
    let cases: [(&str, Result<&[&str], ()>); 7] = [
        ("", Ok(&[])),
        ("GDRCOPY_ENABLED: false\nGDS_ENABLED: false\n", Ok(&[])),
        ("GDRCOPY_ENABLED: true\n", Ok(&["gdrcopy"])),
        ("GDS_ENABLED: true\n", Ok(&["nvidia-fs"])),
        ("GPU_DIRECT_RDMA_ENABLED: true\nGDRCOPY_ENABLED: true\n", Ok(&["gdrcopy", "nvidia-peermem"])),
        ("OTHER: true\n", Ok(&[])),
        ("GDS_ENABLED: [", Err(())),
    ];
    for (text, wanted) in cases {
        assert_eq!(driver::reported_components(text, file).map_err(|_| ()), wanted.map(<[&str]>::to_vec), "{text}");
    }
}

#[tokio::test]
async fn a_module_that_the_driver_pod_promised_must_be_loaded() {
    let node = Node::new().label("nvidia.com/gpu.deploy.driver", "true");
    node.file(&format!("driver/{LIBRARY}"), "x").file("validations/.driver-ctr-ready", "GDS_ENABLED: true\n");
    let error = node.check("driver", &[]).await.expect_err("not loaded");
    assert_eq!(error, "kernel module nvidia_fs is not loaded");
    node.file("proc/modules", "nvidia_fs 1 0 - Live 0x0\n");
    node.check("driver", &[]).await.expect("loaded");
    assert!(node.ready("nvidia-fs-ready").is_some());
}

#[tokio::test]
async fn a_module_counts_by_its_whole_name() {
    let node = Node::new();
    node.file("proc/modules", "other 1 1 gdrdrv, Live 0x0\ngdrdrv_x 1 0 - Live 0x0\n");
    assert!(node.check("gdrcopy", &[]).await.is_err());
    node.file("proc/modules", "gdrdrv 1 0 - Live 0x0\n");
    node.check("gdrcopy", &[]).await.expect("loaded");
    assert_eq!(node.ready("gdrcopy-ready").as_deref(), Some(""));
}

#[tokio::test]
async fn a_failed_check_takes_back_an_earlier_proof() {
    let node = Node::new();
    node.file("validations/gdrcopy-ready", "");
    assert!(node.check("gdrcopy", &[]).await.is_err());
    assert_eq!(node.ready("gdrcopy-ready"), None);
}

#[tokio::test]
async fn the_runtime_must_have_given_this_container_the_driver() {
    let node = Node::new();
    let error = node.check("toolkit", &[]).await.expect_err("no driver here");
    assert!(error.contains("runtime class"), "{error}");
    node.file(LIBRARY, "x");
    node.check("toolkit", &[]).await.expect("the driver is here");
    assert!(node.ready("toolkit-ready").is_some());
}

#[tokio::test]
async fn the_network_driver_is_checked_where_it_is_wanted() {
    let plain = Node::new();
    plain.file("validations/mofed-ready", "");
    plain.check("mofed", &[]).await.expect("skipped");
    assert_eq!(plain.ready("mofed-ready"), None, "a skipped check leaves no earlier proof");
    let node = Node::new().label("feature.node.kubernetes.io/pci-15b3.present", "true");
    let rdma = ["--gpu-direct-rdma-enabled"];
    assert!(node.check("mofed", &rdma).await.expect_err("not ready").contains(".driver-ready"));
    node.file("run/mellanox/drivers/.driver-ready", "");
    node.check("mofed", &rdma).await.expect("ready");
    assert!(node.check("mofed", &[rdma[0], "--use-host-mofed"]).await.expect_err("no module").contains("mlx5_core"));
}

#[tokio::test]
async fn whole_gpus_for_virtual_machines_must_be_bound_to_vfio() {
    let node = Node::new().label("nvidia.com/gpu.workload.config", "vm-passthrough");
    let error = node.check("vfio-pci", &[]).await.expect_err("not bound");
    assert!(error.contains("0000:11:00.0 is bound to no driver"), "{error}");
    for gpu in ["0000:11:00.0", "0000:21:00.0"] {
        let link = node.path(&format!("sys/bus/pci/devices/{gpu}/driver"));
        std::os::unix::fs::symlink("../../../drivers/vfio-pci", link).expect("a link");
    }
    node.check("vfio-pci", &[]).await.expect("bound");
    assert_eq!(node.ready("workload-type").as_deref(), Some("vm-passthrough\n"));
    let container = Node::new().label("nvidia.com/gpu.workload.config", "container");
    container.file("validations/vfio-pci-ready", "");
    container.check("vfio-pci", &[]).await.expect("skipped");
    assert_eq!(container.ready("vfio-pci-ready"), None);
}

#[tokio::test(start_paused = true)]
async fn vgpus_are_ready_when_every_function_is() {
    let set = |node: &Node, gpu: &str, total: u32, enabled: u32| {
        node.file(&format!("sys/bus/pci/devices/{gpu}/sriov_totalvfs"), &total.to_string());
        node.file(&format!("sys/bus/pci/devices/{gpu}/sriov_numvfs"), &enabled.to_string());
    };
    let cases =
        [((16, 0), (16, 0), false), ((16, 8), (16, 16), false), ((16, 16), (16, 0), false), ((16, 16), (16, 16), true)];
    for (first, second, wanted) in cases {
        let node = Node::new().label("nvidia.com/gpu.workload.config", "vm-vgpu");
        set(&node, "0000:11:00.0", first.0, first.1);
        set(&node, "0000:21:00.0", second.0, second.1);
        let start = tokio::time::Instant::now();
        assert_eq!(node.check("vgpu-manager", &[]).await.is_ok(), wanted, "{first:?} {second:?}");
        // VFs appear during the check: it waits five minutes at most.
        let waited = start.elapsed().as_secs();
        assert!(if wanted { waited == 0 } else { (300..310).contains(&waited) }, "{waited} s");
    }
    let node = Node::new().label("nvidia.com/gpu.workload.config", "vm-vgpu");
    node.file("sys/class/mdev_bus/0000:11:00.0/x", "");
    node.check("vgpu-manager", &[]).await.expect("a parent of mdevs");
    assert!(node.ready("vgpu-manager-ready").is_some());
}

#[tokio::test]
async fn vgpu_devices_are_mdevs_or_functions_with_a_type() {
    let node = Node::new().label("nvidia.com/gpu.workload.config", "vm-vgpu");
    assert!(node.check("vgpu-devices", &[]).await.is_err());
    node.file("sys/bus/pci/devices/0000:11:00.0/physfn/x", "");
    node.file("sys/bus/pci/devices/0000:11:00.0/nvidia/current_vgpu_type", "1112\n");
    node.check("vgpu-devices", &[]).await.expect("a typed function");
}

#[tokio::test]
async fn confidential_computing_is_waited_for_where_it_is_possible() {
    Node::new().check("cc-manager", &[]).await.expect("not possible here");
    let node = Node::new().label("nvidia.com/cc.capable", "true");
    assert!(node.check("cc-manager", &[]).await.is_err());
    node.file("validations/.cc-manager-ctr-ready", "");
    node.check("cc-manager", &[]).await.expect("ready");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_offers_no_gpu_fails_with_where_to_look() {
    let mut node = Node::new();
    let error = node.check("plugin", &[]).await.expect_err("no resource");
    assert!(error.contains("device plugin's pod"), "{error}");
    node.capacity.insert("nvidia.com/mig-1g.18gb".into(), "7".into());
    node.check("plugin", &[]).await.expect("a resource");
}

#[tokio::test]
async fn an_unknown_component_is_refused_with_all_names() {
    for name in ["", "drvier"] {
        let error = Node::new().check(name, &[]).await.expect_err("unknown");
        assert!(error.contains("choose one of driver, nvidia-fs"), "{error}");
    }
}

#[test]
fn device_links_follow_the_kernel() {
    let devices =
        "Character devices:\n195 nvidia\n234 nvidia-caps\n510 nvidia-uvm\n\nBlock devices:\n195 nvidia-caps\n";
    let minors = "config 1\nmonitor 2\ngpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\ngpu1/gi0/access 138\nnonsense\ngpux/gi0/access 9\n";
    let links = dev_char::links(devices, minors, 1).expect("links");
    let shown: Vec<String> =
        links.iter().map(|((major, minor), node)| format!("{major}:{minor} {}", node.display())).collect();
    let wanted = [
        "195:255 nvidiactl",
        "195:254 nvidia-modeset",
        "510:0 nvidia-uvm",
        "510:1 nvidia-uvm-tools",
        "195:0 nvidia0",
        "234:1 nvidia-caps/nvidia-cap1",
        "234:2 nvidia-caps/nvidia-cap2",
        "234:3 nvidia-caps/nvidia-cap3",
        "234:4 nvidia-caps/nvidia-cap4",
    ];
    assert_eq!(shown, wanted);
    let error = dev_char::links("", "", 1).expect_err("no majors").to_string();
    assert!(error.contains("is the module loaded?"), "{error}");
}

#[tokio::test]
async fn a_link_that_points_elsewhere_is_mended() {
    let node = Node::new();
    node.program("host/usr/bin/nvidia-smi").file(&format!("host/{LIBRARY}"), "x");
    let link = node.path("host-dev-char/195:0");
    std::os::unix::fs::symlink("/old/dev/nvidia0", &link).expect("a link");
    node.check("driver", &[]).await.expect("a driver");
    assert_eq!(std::fs::read_link(link).expect("a link"), Path::new("/dev/nvidia0"));
}

#[test]
fn the_pod_asks_for_a_part_of_a_gpu_before_a_whole_one() {
    let facts = |resources: &[(&str, &str)]| {
        let allocatable = resources.iter().map(|(name, count)| ((*name).to_owned(), (*count).to_owned())).collect();
        NodeFacts { allocatable, ..NodeFacts::default() }
    };
    let chosen = |resources: &[(&str, &str)]| workload::resource(&facts(resources)).ok();
    assert_eq!(chosen(&[("nvidia.com/gpu", "8")]).as_deref(), Some("nvidia.com/gpu"));
    let mixed = [("nvidia.com/gpu", "7"), ("nvidia.com/mig-1g.18gb", "2"), ("nvidia.com/mig-2g.35gb", "3")];
    assert_eq!(chosen(&mixed).as_deref(), Some("nvidia.com/mig-2g.35gb"));
    assert_eq!(chosen(&[("nvidia.com/gpu", "0"), ("cpu", "4")]), None);
}

#[test]
fn a_pod_that_cannot_start_ends_the_wait_with_its_reason() {
    let pod = |status: serde_json::Value| serde_json::from_value(serde_json::json!({"status": status})).expect("a pod");
    let waiting = |reason: &str| {
        serde_json::json!({"phase": "Pending", "initContainerStatuses": [{
            "name": "cuda-validation", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"waiting": {"reason": reason, "message": "m"}},
        }]})
    };
    let unschedulable = serde_json::json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }]});
    let cases = [
        (serde_json::json!({"phase": "Succeeded"}), workload::PodResult::Succeeded),
        (serde_json::json!({"phase": "Running"}), workload::PodResult::Running),
        (
            serde_json::json!({"phase": "Failed", "message": "OutOfnvidia.com/gpu"}),
            workload::PodResult::Failed("OutOfnvidia.com/gpu".into()),
        ),
        (
            waiting("ImagePullBackOff"),
            workload::PodResult::Failed("container cuda-validation: ImagePullBackOff: m".into()),
        ),
        (waiting("PodInitializing"), workload::PodResult::Running),
        (unschedulable, workload::PodResult::AllInUse),
    ];
    for (status, wanted) in cases {
        assert_eq!(workload::pod_result(&pod(status.clone())), wanted, "{status}");
    }
}
