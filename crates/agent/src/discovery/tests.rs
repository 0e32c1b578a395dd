//! Labels of recorded and synthetic nodes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_api::nfd::NodeFeature;
use capstan_hw::fake::{Fake, Model, Recording, Root, node};
use capstan_hw::gpu::nvidia::{Fabric, MigMode};
use clap::Parser;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{self, MigStrategy, Sharing};

fn sharing(kind: &str, resource: &str, rename: bool) -> Sharing {
    let text =
        format!("sharing: {{{kind}: {{renameByDefault: {rename}, resources: [{{name: {resource}, replicas: 4}}]}}}}");
    config::parse(&text).expect("a config").config.sharing
}

fn facts<'a>(inventory: &'a Inventory, mig: MigStrategy, sharing: &'a Sharing) -> Facts<'a> {
    Facts {
        inventory,
        classes: inventory.gpus.iter().map(|_| Some(0x03_0200)).collect(),
        machine: "DGX-H200".into(),
        timestamp: Some(1_700_000_000),
        vgpu: Some(Vgpu { present: false, host: None }),
        mig,
        sharing,
        passthrough: false,
    }
}

/// The labels of a node about one resource, without the prefix.
fn of(recording: &Recording, mig: MigStrategy, sharing: &Sharing, resource: &str) -> BTreeMap<String, String> {
    let prefix = format!("nvidia.com/{resource}.");
    let all = labels(&facts(&recording.inventory, mig, sharing));
    all.into_iter().filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), value))).collect()
}

/// Product, count, replicas, strategy.
fn summary(labels: &BTreeMap<String, String>) -> String {
    let get = |name: &str| labels.get(name).map_or("-", String::as_str);
    format!("{} {} {} {}", get("product"), get("count"), get("replicas"), get("sharing-strategy"))
}

#[test]
fn a_kernel_has_its_numbers_whatever_its_distribution_adds() {
    for (release, numbers) in [
        ("6.8.0-45-generic", "6 8 0"),
        ("6.12.107+deb13-amd64", "6 12 107"),
        ("5.14.0-427.el9.x86_64", "5 14 0"),
        ("6.18.44", "6 18 44"),
        ("7.0-rc1", "7 0"),
    ] {
        let values = node::kernel(release);
        let parts: Vec<&str> =
            ["major", "minor", "revision"].iter().filter_map(|key| values.get(*key)).map(String::as_str).collect();
        assert_eq!(parts.join(" "), numbers, "{release}");
    }
}

#[test]
fn the_recorded_h200() {
    let inventory = Recording::h200().inventory;
    insta::assert_yaml_snapshot!(labels(&facts(&inventory, MigStrategy::None, &Sharing::default())));
}

#[test]
fn the_recorded_h200_cut_up_under_names_of_their_own() {
    let inventory = Recording::h200_mig().inventory;
    insta::assert_yaml_snapshot!(labels(&facts(&inventory, MigStrategy::Mixed, &Sharing::default())));
}

#[test]
fn a_node_without_gpus_says_little() {
    let mut inventory = Recording::h200().inventory;
    inventory.gpus.clear();
    let report = labels(&facts(&inventory, MigStrategy::Single, &Sharing::default()));
    let names: Vec<&str> = report.keys().map(String::as_str).collect();
    assert_eq!(names, ["nvidia.com/gfd.timestamp", "nvidia.com/vgpu.present"]);
    let display = Recording::h200();
    let mut inventory = display.inventory;
    inventory.gpus[0].name = "NVIDIA DGX Display".into();
    assert_eq!(labels(&facts(&inventory, MigStrategy::None, &Sharing::default())).len(), 2);
}

#[test]
fn without_mig_gpus_are_whole() {
    let plain = Sharing::default();
    let shared = sharing("timeSlicing", "nvidia.com/gpu", false);
    let renamed = sharing("timeSlicing", "nvidia.com/gpu", true);
    let other = sharing("timeSlicing", "nvidia.com/mig-1g.5gb", false);
    let cases: [(&str, Recording, &Sharing, &str); 8] = [
        ("one", node(Model::A100, 1), &plain, "NVIDIA-A100-SXM4-40GB 1 1 none"),
        ("several", node(Model::A100, 8), &plain, "NVIDIA-A100-SXM4-40GB 8 1 none"),
        ("shared", node(Model::A100, 1), &shared, "NVIDIA-A100-SXM4-40GB-SHARED 1 4 time-slicing"),
        ("several shared", node(Model::A100, 2), &shared, "NVIDIA-A100-SXM4-40GB-SHARED 2 4 time-slicing"),
        ("renamed", node(Model::A100, 1), &renamed, "NVIDIA-A100-SXM4-40GB 1 4 time-slicing"),
        ("another is shared", node(Model::A100, 1), &other, "NVIDIA-A100-SXM4-40GB 1 1 none"),
        ("cut up", node(Model::A100, 1).with_mig_empty(0), &shared, "NVIDIA-A100-SXM4-40GB 1 0 time-slicing"),
        (
            "one of two cut up",
            node(Model::A100, 2).with_mig_empty(0),
            &shared,
            "NVIDIA-A100-SXM4-40GB-SHARED 2 4 time-slicing",
        ),
    ];
    for (case, recording, sharing, wanted) in cases {
        assert_eq!(summary(&of(&recording, MigStrategy::None, sharing, "gpu")), wanted, "{case}");
    }
}

#[test]
fn a_single_profile_stands_for_gpus() {
    let plain = Sharing::default();
    let shared = sharing("timeSlicing", "nvidia.com/gpu", false);
    let a100 = |count| node(Model::A100, count);
    let invalid = "NVIDIA-A100-SXM4-40GB-MIG-INVALID 0 0 ";
    let cases: [(&str, Recording, &Sharing, &str); 9] = [
        ("no MIG", a100(2), &plain, "NVIDIA-A100-SXM4-40GB 2 1 none"),
        ("one cut up", a100(1).with_mig(0, &["1g.5gb", "1g.5gb"]), &plain, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb 2 1 none"),
        (
            "two cut up",
            a100(2).with_mig(0, &["3g.20gb"]).with_mig(1, &["3g.20gb", "3g.20gb"]),
            &plain,
            "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb 3 1 none",
        ),
        (
            "shared",
            a100(1).with_mig(0, &["1g.5gb"]),
            &shared,
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED 1 4 time-slicing",
        ),
        ("empty", a100(1).with_mig_empty(0), &plain, invalid),
        ("two profiles", a100(1).with_mig(0, &["1g.5gb", "2g.10gb"]), &plain, invalid),
        ("cut up and whole", a100(2).with_mig(0, &["1g.5gb"]), &plain, invalid),
        ("cut up and empty", a100(2).with_mig(0, &["1g.5gb"]).with_mig_empty(1), &plain, invalid),
        ("cut up, empty and whole", a100(3).with_mig(0, &["1g.5gb"]).with_mig_empty(1), &plain, invalid),
    ];
    for (case, recording, sharing, wanted) in cases {
        let report = of(&recording, MigStrategy::Single, sharing, "gpu");
        assert_eq!(summary(&report), wanted, "{case}");
        let engines = report.contains_key("engines.copy");
        assert_eq!(engines, wanted.contains("-MIG-") && wanted != invalid, "{case}");
    }
    let report = of(&a100(1).with_mig_empty(0), MigStrategy::Single, &plain, "gpu");
    assert_eq!(report.get("memory").map(String::as_str), Some("0"));
}

#[test]
fn mixed_counts_what_is_offered() {
    let shared = sharing("timeSlicing", "nvidia.com/mig-1g.5gb", false);
    let recording = node(Model::A100, 2).with_mig(1, &["1g.5gb", "1g.5gb", "2g.10gb", "1g.5gb+me", "1c.2g.10gb"]);
    let report = |resource: &str| summary(&of(&recording, MigStrategy::Mixed, &shared, resource));
    assert_eq!(report("gpu"), "NVIDIA-A100-SXM4-40GB 1 1 none", "the one that is whole");
    assert_eq!(report("mig-1g.5gb"), "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED 2 4 time-slicing");
    assert_eq!(report("mig-2g.10gb"), "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb 1 1 none");
    assert_eq!(report("mig-1g.5gb.me"), "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me 1 1 none");
    assert_eq!(report("mig-1c.2g.10gb"), "- - - -", "has no resource");
    let cut = node(Model::A100, 1).with_mig(0, &["1g.5gb"]);
    let report = summary(&of(&cut, MigStrategy::Mixed, &Sharing::default(), "gpu"));
    assert_eq!(report, "NVIDIA-A100-SXM4-40GB 0 0 none", "nothing is offered as a whole");
}

#[test]
fn several_models_each_have_their_labels() {
    let mut recording = node(Model::A100, 2);
    let other = node(Model::L40s, 3).inventory.gpus.split_off(2);
    recording.inventory.gpus.extend(other);
    let plain = Sharing::default();
    assert_eq!(summary(&of(&recording, MigStrategy::None, &plain, "gpu")), "NVIDIA-A100-SXM4-40GB 2 1 none");
    let l40s = of(&recording, MigStrategy::None, &plain, "gpu-NVIDIA-L40S");
    assert_eq!(summary(&l40s), "NVIDIA-L40S 1 1 none");
    let a100 = of(&recording, MigStrategy::None, &plain, "gpu-NVIDIA-A100-SXM4-40GB");
    assert_eq!(summary(&a100), "NVIDIA-A100-SXM4-40GB 2 1 none");
}

fn label(node: &Facts<'_>, name: &str) -> Option<String> {
    labels(node).remove(&format!("nvidia.com/{name}"))
}

#[test]
fn what_gpus_can_do_is_said() {
    let plain = Sharing::default();
    let capable = |recording: &Recording| label(&facts(&recording.inventory, MigStrategy::None, &plain), "mig.capable");
    assert_eq!(capable(&node(Model::L40s, 2)).as_deref(), Some("false"));
    let mut some = node(Model::L40s, 2);
    some.inventory.gpus[1].mig = MigMode::Disabled { pending: false };
    assert_eq!(capable(&some).as_deref(), Some("true"));

    let a100 = node(Model::A100, 1);
    let mps = |sharing: &Sharing| label(&facts(&a100.inventory, MigStrategy::None, sharing), "mps.capable");
    assert_eq!(mps(&plain).as_deref(), Some("false"));
    assert_eq!(mps(&sharing("timeSlicing", "nvidia.com/gpu", false)).as_deref(), Some("false"));
    assert_eq!(mps(&sharing("mps", "nvidia.com/gpu", false)).as_deref(), Some("true"));
    let cut = node(Model::A100, 1).with_mig(0, &["1g.5gb"]);
    let mps = sharing("mps", "nvidia.com/gpu", false);
    let error = facts(&cut.inventory, MigStrategy::Single, &mps).check().expect_err("MPS and MIG").to_string();
    assert!(error.contains("MPS cannot share MIG devices"), "{error}");
}

#[test]
fn the_mode_is_that_of_all_gpus() {
    let inventory = node(Model::A100, 2).inventory;
    let plain = Sharing::default();
    let cases: [(&[Option<u32>], &str); 6] = [
        (&[Some(0x03_0200)], "compute"),
        (&[Some(0x03_0000)], "graphics"),
        (&[Some(0x03_0100)], "unknown"),
        (&[Some(0x03_0200), Some(0x03_0200)], "compute"),
        (&[Some(0x03_0200), Some(0x03_0000)], "unknown"),
        (&[Some(0x03_0200), None], "unknown"),
    ];
    for (classes, wanted) in cases {
        let node = Facts { classes: classes.to_vec(), ..facts(&inventory, MigStrategy::None, &plain) };
        assert_eq!(label(&node, "gpu.mode").as_deref(), Some(wanted), "{classes:?}");
    }
}

#[test]
fn a_clique_is_named_when_all_agree() {
    let plain = Sharing::default();
    let clique = |edit: &dyn Fn(&mut Inventory)| {
        let mut inventory = node(Model::Gb200, 2).inventory;
        edit(&mut inventory);
        label(&facts(&inventory, MigStrategy::None, &plain), "gpu.clique")
    };
    let all = clique(&|_| {}).expect("a clique");
    assert!(all.ends_with(".1"), "{all}");
    assert_eq!(clique(&|inventory| inventory.gpus[1].fabric = None).as_deref(), Some(all.as_str()));
    assert_eq!(clique(&|inventory| inventory.gpus[1].fabric.as_mut().expect("a fabric").clique = 2), None);
    let none = |inventory: &mut Inventory| {
        for gpu in &mut inventory.gpus {
            gpu.fabric =
                Some(Fabric { cluster: "00000000-0000-0000-0000-000000000000".into(), clique: 1, joined: true });
        }
    };
    assert_eq!(clique(&none), None);
    assert_eq!(
        clique(&|inventory| inventory.gpus.iter_mut().for_each(|gpu| gpu.fabric.as_mut().expect("one").joined = false)),
        None
    );
}

#[test]
fn versions_are_split() {
    let split = |text: &str| DriverVersion::parse(text).map(|version| [version.major, version.minor, version.revision]);
    assert_eq!(split("580.65.06"), Some(["580", "65", "06"].map(str::to_owned)));
    assert_eq!(split("580.65"), Some(["580", "65", ""].map(str::to_owned)));
    for wrong in ["", "580", "1.2.3.4"] {
        assert_eq!(split(wrong), None, "{wrong}");
    }
    let mut inventory = Recording::h200().inventory;
    inventory.driver = "580".into();
    assert!(facts(&inventory, MigStrategy::None, &Sharing::default()).check().is_err());
}

/// A node with a kernel, an operating system, a network adapter and GPUs.
fn machine() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let root = Root::write(dir.path(), &node(Model::H100, 1).inventory).expect("a root");
    let nic = "sys/bus/pci/devices/0000:1a:00.0";
    let files = [
        ("proc/sys/kernel/osrelease", "6.8.0-45-generic+\n"),
        ("etc/os-release", "# who\nID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu \\\"x\\\"\"\nbroken\n"),
        (
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\nprocessor\t: 1\n",
        ),
        ("proc/modules", "ib_uverbs 1 0 - Live 0x0\nrdma_ucm 1 0 - Live 0x0\n"),
        (&format!("{nic}/vendor"), "0x15b3\n"),
        (&format!("{nic}/device"), "0x1021\n"),
        (&format!("{nic}/class"), "0x020700\n"),
        (&format!("{nic}/sriov_totalvfs"), "16\n"),
        (&format!("{nic}/sriov_numvfs"), "0\n"),
        ("sys/class/net/ib0/operstate", "up\n"),
        ("sys/class/net/ib0/device/sriov_totalvfs", "16\n"),
        ("sys/class/net/ib0/device/sriov_numvfs", "0\n"),
        ("sys/class/net/lo/operstate", "up\n"),
        ("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n"),
        ("sys/bus/pci/devices/0000:00:1f.0/device", "0x1\n"),
        ("sys/bus/pci/devices/0000:00:1f.0/class", "0x060100\n"),
        ("sys/class/dmi/id/product_name", "DGX H100\n"),
    ];
    for (name, text) in files {
        root.file(name, text).expect("a file");
    }
    dir
}

#[test]
fn a_node_is_described_as_node_feature_discovery_does() {
    let dir = machine();
    let found = node::read(dir.path(), &pci::devices(dir.path()).expect("devices"));
    insta::assert_yaml_snapshot!(found.labels);
    let instances = found.features.instances.expect("instances");
    assert_eq!(instances["pci.device"].elements.len(), 3);
    assert_eq!(instances["network.device"].elements.len(), 1, "only with hardware behind it");
}

proptest! {
    #[test]
    fn any_file_of_the_kernel_is_answered(text in "[ -~\n\t]{0,120}") {
        let _ = node::os_release(&text);
        let _ = node::kernel(&text);
        let _ = node::cpu(&text);
        let _ = node::modules(&text);
        let _ = passthrough::name(&text, 0x10de, 0x2335);
    }

    #[test]
    fn a_quoted_value_is_read_as_it_was(value in "[a-zA-Z0-9 ._-]{0,20}") {
        let read = node::os_release(&format!("NAME=\"{value}\"\n"));
        prop_assert_eq!(read.get("NAME").map(String::as_str), Some(value.trim_end_matches('\n')));
    }
}

#[test]
fn gpus_of_virtual_machines_are_named_by_the_table() {
    let dir = machine();
    let gpu = dir.path().join("sys/bus/pci/devices/0000:11:00.0");
    std::os::unix::fs::symlink("../../../bus/pci/drivers/vfio-pci", gpu.join("driver")).expect("a link");
    std::fs::create_dir_all(dir.path().join("usr/share/misc")).expect("a directory");
    let table =
        "1002  AMD\n\t2330  Wrong\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\t\t10de 16c1  H100\n";
    std::fs::write(dir.path().join("usr/share/misc/pci.ids"), table).expect("a table");
    let options = Options { device_discovery_strategy: options::Strategy::Vfio, ..Options::default() };
    let settings = options.settings("flags: {useNodeFeatureAPI: false}", |_| None).expect("settings");
    let broken = Arc::new(Source::new(|| Err(capstan_hw::Error::NoDriver("none".into()))));
    let report = discover_now(&options, &settings, &broken, dir.path(), Published::Never)
        .expect("discovered")
        .expect("report")
        .labels;
    let get = |name: &str| report.get(&format!("nvidia.com/{name}")).map(String::as_str);
    assert_eq!(get("gpu.product"), Some("GH100-H100-SXM5-80GB"));
    assert_eq!(get("cuda.driver-version.full"), Some("unknown.unknown.unknown"));
    assert_eq!((get("gpu.family"), get("gpu.compute.major"), get("gpu.memory")), (None, None, None));
}

/// Records what was published.
#[derive(Default)]
struct RecordingPublisher {
    published: Mutex<Vec<Labels>>,
    more: tokio::sync::Notify,
}

impl RecordingPublisher {
    async fn next(&self, count: usize) -> Labels {
        loop {
            let more = self.more.notified();
            if let Some(report) = self.published.lock().expect("no panic").get(count) {
                return report.clone();
            }
            more.await;
        }
    }
}

impl Publisher for RecordingPublisher {
    fn publish<'a>(&'a self, report: &'a NodeReport) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.published.lock().expect("no panic").push(report.all());
            self.more.notify_waiters();
            Ok(())
        })
    }

    fn withdraw(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn cx(fake: Arc<Fake>, root: &Path) -> Cx {
    let roots = capstan_hw::gpu::nvidia::driver::Roots::new("/", root, None);
    Cx::new(Arc::new(Source::of(fake)), roots, root, CancellationToken::new())
}

#[tokio::test]
async fn labels_follow_the_hardware_until_told_to_stop() {
    let dir = machine();
    let fake = Arc::new(Fake::new(node(Model::H100, 1)));
    let cx = cx(fake.clone(), dir.path());
    let publisher = Arc::new(RecordingPublisher::default());
    let options = Options::default();
    let file =
        "flags: {useNodeFeatureAPI: false, failOnInitError: false, migStrategy: mixed, gfd: {sleepInterval: infinite}}";
    let settings = options.settings(file, |_| None).expect("settings");
    let task = {
        let (cx, publisher) = (cx.clone(), publisher.clone());
        tokio::spawn(async move { publish_loop(&options, &settings, None, &*publisher, &cx).await })
    };
    assert_eq!(publisher.next(0).await["nvidia.com/gpu.count"], "1");

    fake.edit(|recording| *recording = node(Model::H100, 1).with_mig(0, &["1g.10gb"]));
    std::fs::write(dir.path().join("dev/nvidia-new"), "").expect("a node");
    assert_eq!(publisher.next(1).await["nvidia.com/mig-1g.10gb.count"], "1");

    fake.set_error(Some(capstan_hw::Error::NoDriver("unloaded".into())));
    std::fs::remove_file(dir.path().join("dev/nvidia-new")).expect("removed");
    let mut count = 2;
    loop {
        let report = publisher.next(count).await;
        if !report.contains_key("nvidia.com/gpu.count") {
            assert!(!report.keys().any(|name| name.starts_with("nvidia.com/mig-")), "{report:?}");
            break;
        }
        count += 1;
    }
    cx.stop.cancel();
    assert_eq!(task.await.expect("no panic").expect("an end"), Ended::Stopped);
}

#[test]
fn labels_of_all_gpus_stay_while_one_is_lost() {
    let dir = machine();
    let fake = Arc::new(Fake::new(node(Model::H100, 8)));
    let source = cx(fake.clone(), dir.path()).hardware;
    let options = Options::default();
    let settings = options.settings("flags: {useNodeFeatureAPI: false}", |_| None).expect("settings");
    let discover = |published| discover_now(&options, &settings, &source, dir.path(), published).expect("discovered");
    fake.lose(&node(Model::H100, 8).inventory.gpus[2].uuid);
    assert_eq!(discover(Published::Before), None);
    assert_eq!(discover(Published::Never).expect("report").labels["nvidia.com/gpu.count"], "7");
    (0..8).for_each(|gpu| fake.lose(&node(Model::H100, 8).inventory.gpus[gpu].uuid));
    assert_eq!(discover(Published::Never), None, "all of them at once: nothing is known");
}

#[tokio::test]
async fn a_driver_that_does_not_answer_ends_the_process_or_not() {
    let dir = machine();
    let fake = Arc::new(Fake::new(node(Model::H100, 1)));
    fake.set_error(Some(capstan_hw::Error::NoDriver("unloaded".into())));
    let cx = cx(fake, dir.path());
    let options = Options { oneshot: Some(true), ..Options::default() };
    for (fail, ends) in [(true, true), (false, false)] {
        let file = format!("flags: {{useNodeFeatureAPI: false, failOnInitError: {fail}}}");
        let settings = options.settings(&file, |_| None).expect("settings");
        let ended = publish_loop(&options, &settings, None, &RecordingPublisher::default(), &cx).await;
        assert_eq!(ended.is_err(), ends, "{ended:?}");
    }
}

#[tokio::test]
async fn a_file_is_written_and_goes_at_the_end() {
    let dir = machine();
    let fake = Arc::new(Fake::new(node(Model::H100, 1)));
    let cx = cx(fake, dir.path());
    let output = dir.path().join("features.d/gfd");
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let path = output.to_str().expect("text");
    let words = ["gfd", "--use-node-feature-api=false", "--no-timestamp", "-o", path, "--node-features"];
    let options = Line::try_parse_from(words).expect("flags").options;
    let mut changes = Changes::of(&[dir.path()]);
    let task = tokio::spawn(run(options, cx.clone()));
    let text = loop {
        if let Ok(text) = std::fs::read_to_string(&output) {
            break text;
        }
        changes.next(Duration::from_secs(30)).await;
        changes = Changes::of(&[dir.path(), &dir.path().join("features.d")]);
    };
    assert!(text.contains("nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3\n"), "{text}");
    assert!(text.contains("nvidia.com/gpu.machine=DGX-H100\n"), "{text}");
    assert!(text.contains("feature.node.kubernetes.io/pci-10de.present=true\n"), "{text}");
    assert!(!text.contains("timestamp"), "{text}");
    cx.stop.cancel();
    task.await.expect("no panic").expect("an end");
    assert!(!output.exists());
}

#[test]
fn an_empty_output_is_the_screen() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let words = ["gfd", "--use-node-feature-api=false", "--output-file=", "--machine-type-file="];
    let options = Line::try_parse_from(words).expect("flags").options;
    let settings = options.settings("", |_| None).expect("settings");
    assert_eq!(
        (settings.output, super::machine(Path::new("/"), &settings.machine_type_file).as_str()),
        (None, "unknown")
    );
}

#[test]
fn settings_come_from_flags_environment_and_file() {
    let file = "flags: {migStrategy: mixed, failOnInitError: false, gfd: {oneshot: true, sleepInterval: 10s, noTimestamp: true}}";
    let node = Options { node_name: "n".into(), ..Options::default() };
    let of = |options: &Options, env: &[(&str, &str)]| {
        let env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        options.settings(file, |name| env.get(name).cloned())
    };
    let report = of(&node, &[]).expect("settings");
    assert_eq!((report.mig, report.fail_on_init_error, report.oneshot), (MigStrategy::Mixed, false, true));
    assert_eq!((report.interval, report.timestamp, report.object), (Some(Duration::from_secs(10)), false, true));
    let report = of(&node, &[("MIG_STRATEGY", "single"), ("FAIL_ON_INIT_ERROR", "1")]).expect("settings");
    assert_eq!((report.mig, report.fail_on_init_error), (MigStrategy::Single, true));
    let flags = Options { mig_strategy: Some("none".into()), sleep_interval: Some("infinite".into()), ..node.clone() };
    let report = of(&flags, &[("MIG_STRATEGY", "single")]).expect("settings");
    assert_eq!((report.mig, report.interval), (MigStrategy::None, None));
    let wrong = [
        (Options { mig_strategy: Some("x".into()), ..node.clone() }, "--mig-strategy"),
        (Options { sleep_interval: Some("x".into()), ..node }, "--sleep-interval"),
        (Options::default(), "--node-name"),
    ];
    for (options, wanted) in wrong {
        let error = of(&options, &[]).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

fn report(labels: &[(&str, &str)]) -> NodeReport {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    NodeReport { labels, node: None }
}

#[test]
fn an_object_is_changed_only_when_it_says_something_else() {
    let live = cluster::desired("x", "n", &[], &report(&[("a", "1"), ("b", "2")]));
    assert_eq!(cluster::change(&live, &live), None);
    let wanted = cluster::desired("x", "n", &[], &report(&[("a", "1"), ("c", "3")]));
    let change = cluster::change(&live, &wanted).expect("a change");
    assert_eq!(change["spec"]["labels"], serde_json::json!({"a": "1", "b": null, "c": "3"}));
    let text = serde_json::to_value(&live).expect("an object");
    assert_eq!(text["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"], "n");
    assert_eq!(text["kind"], "NodeFeature");
    let _: NodeFeature = serde_json::from_value(text).expect("read again");
}

#[test]
fn owners_are_the_daemon_set_and_the_pod() {
    let pod = |owner: serde_json::Value| -> Pod {
        let text = serde_json::json!({"metadata": {"name": "p", "uid": "u", "ownerReferences": owner}});
        serde_json::from_value(text).expect("a pod")
    };
    let owner = |kind: &str| serde_json::json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "v"}]);
    let names = |pod: &Pod| -> Vec<(String, String, Option<bool>)> {
        cluster::owners_of(pod).into_iter().map(|owner| (owner.kind, owner.uid, owner.controller)).collect()
    };
    let wanted = [("DaemonSet".to_owned(), "v".to_owned(), Some(true)), ("Pod".to_owned(), "u".to_owned(), None)];
    assert_eq!(names(&pod(owner("DaemonSet"))), wanted);
    assert_eq!(names(&pod(owner("ReplicaSet"))), []);
    assert_eq!(names(&pod(serde_json::json!([]))), []);
}
