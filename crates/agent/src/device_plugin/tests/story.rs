//! The whole plugin against a kubelet for tests: real sockets, fake GPUs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_hw::Error as HwError;
use capstan_hw::fake::{Fake, Root};
use capstan_hw::gpu::nvidia::{Recovery, Source};
use capstan_kubelet::fake::{Kubelet, Plugin};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

const GPU: &str = "nvidia.com/gpu";

/// A node with GPUs, its kubelet and the plugin on it.
struct Bench {
    dir: tempfile::TempDir,
    fake: Arc<Fake>,
    cx: Cx,
    label: watch::Sender<Label>,
}

/// Returns no extra classes, as the generator does on a node without them.
struct Specs(watch::Sender<usize>);

impl CdiSpecs for Specs {
    fn write(&self, wanted: &SpecRequest<'_>) -> Result<Vec<String>> {
        self.0.send_modify(|written| *written += 1);
        Ok(if wanted.settings.gds { vec!["gds".into()] } else { Vec::new() })
    }
}

impl Bench {
    fn new(recording: Recording) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["kubelet", "configs"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        Root::write(dir.path(), &recording.inventory).expect("files");
        let fake = Arc::new(Fake::new(recording));
        let hardware = Arc::new(Source::of(fake.clone()));
        let cx = Cx::new(hardware, Roots::new("/", dir.path(), None), dir.path(), CancellationToken::new());
        Self { dir, fake, cx, label: watch::Sender::new(Label::Known(None)) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self, name: &str, text: &str) {
        crate::files::write(&self.path("configs").join(name), text.as_bytes()).expect("a config");
    }

    fn kubelet(&self) -> Kubelet {
        Kubelet::start(&self.path("kubelet")).expect("a kubelet")
    }

    fn options(&self) -> Options {
        let kubelet_socket = self.path("kubelet/kubelet.sock").display().to_string();
        Options { kubelet_socket, ..Options::default() }
    }

    fn start(&self, options: Options) -> JoinHandle<Result<()>> {
        self.start_with(options, Arc::new(Specs(watch::Sender::new(0))))
    }

    fn start_with(&self, options: Options, cdi: Arc<dyn CdiSpecs>) -> JoinHandle<Result<()>> {
        let short = Duration::from_millis(20);
        let timing = Timing { max_backoff: short, recheck: short, recovery_delay: Duration::ZERO };
        tokio::spawn(reconciler::run(options, self.cx.clone(), Edges { label: self.label.subscribe(), cdi, timing }))
    }

    async fn stop(self, plugin: JoinHandle<Result<()>>) {
        self.cx.stop.cancel();
        plugin.await.expect("joined").expect("ended well");
        let sockets = std::fs::read_dir(self.path("kubelet")).expect("listed").flatten();
        let left: Vec<_> = sockets.filter(|entry| entry.file_name() != "kubelet.sock").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn healthy(count: usize) -> impl Fn(&Plugin) -> bool {
    move |plugin| plugin.healthy().len() == count
}

#[tokio::test]
async fn a_node_shows_eight_gpus_and_hands_out_two() {
    let bench = Bench::new(gpus(8));
    let kubelet = bench.kubelet();
    let plugin = bench.start(bench.options());
    let offered = kubelet.until(GPU, healthy(8)).await;
    assert_eq!(offered.endpoint, "nvidia-gpu.sock");
    let numa = |place: usize| offered.devices[place].topology.as_ref().map(|near| near.nodes[0].id);
    assert_eq!((numa(0), numa(7)), (Some(0), Some(1)));
    let free: Vec<&str> = offered.healthy();
    let chosen = kubelet.preferred(GPU, &free, 2).await.expect("a preference");
    let ids: Vec<&str> = chosen.iter().map(String::as_str).collect();
    let answer = kubelet.allocate(GPU, &ids).await.expect("an answer");
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], format!("{},{}", uuid(0), uuid(1)));
    let refused = kubelet.allocate(GPU, &["GPU-none"]).await.expect_err("unknown").to_string();
    assert!(refused.contains("GPU-none"), "{refused}");
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_kubelet_that_starts_again_is_told_again() {
    let bench = Bench::new(gpus(2));
    let first = bench.kubelet();
    let plugin = bench.start(bench.options());
    first.until(GPU, healthy(2)).await;
    first.stop().await;
    let second = bench.kubelet();
    second.until(GPU, healthy(2)).await;
    second.allocate(GPU, &[&uuid(1)]).await.expect("an answer");
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_kubelet_may_come_later() {
    let bench = Bench::new(gpus(2));
    let plugin = bench.start(bench.options());
    bench.kubelet().until(GPU, healthy(2)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_fault_makes_a_gpu_unfit_until_it_recovered() {
    let bench = Bench::new(gpus(8));
    let kubelet = bench.kubelet();
    let plugin = bench.start(bench.options());
    kubelet.until(GPU, healthy(8)).await;
    bench.fake.set_recovery(&uuid(3), Recovery::Reset);
    bench.fake.xid(&uuid(3), 48, None);
    let offered = kubelet.until(GPU, healthy(7)).await;
    assert!(!offered.healthy().contains(&uuid(3).as_str()));
    bench.fake.set_recovery(&uuid(3), Recovery::None);
    kubelet.until(GPU, healthy(8)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_gpu_that_needs_a_reset_is_unfit_from_the_start() {
    let bench = Bench::new(gpus(2));
    bench.fake.set_recovery(&uuid(0), Recovery::Reset);
    let kubelet = bench.kubelet();
    let plugin = bench.start(bench.options());
    kubelet.until(GPU, healthy(1)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_gpu_that_falls_off_the_bus_takes_all_its_replicas_along() {
    let bench = Bench::new(gpus(2));
    bench.config("shared", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}");
    let kubelet = bench.kubelet();
    let plugin = bench.start(Options { config_file: Some(bench.path("configs/shared")), ..bench.options() });
    kubelet.until(GPU, healthy(8)).await;
    bench.fake.lose(&uuid(0));
    kubelet.until(GPU, healthy(4)).await;
    bench.fake.restore(&uuid(0));
    kubelet.until(GPU, healthy(8)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_gpu_that_is_lost_at_the_start_keeps_no_other_from_serving() {
    let bench = Bench::new(gpus(8));
    bench.fake.lose(&uuid(5));
    let kubelet = bench.kubelet();
    let plugin = bench.start(bench.options());
    let offered = kubelet.until(GPU, healthy(7)).await;
    assert_eq!(offered.devices.len(), 8, "the lost one is named");
    assert!(!offered.healthy().contains(&uuid(5).as_str()));
    bench.fake.restore(&uuid(5));
    kubelet.until(GPU, healthy(8)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_driver_that_goes_takes_all_gpus_along_until_it_is_back() {
    let bench = Bench::new(gpus(2));
    let kubelet = bench.kubelet();
    let plugin = bench.start(bench.options());
    kubelet.until(GPU, healthy(2)).await;
    let subscribed = async {
        while bench.fake.listeners() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), subscribed).await.expect("subscribed");
    bench.fake.set_error(Some(HwError::NoDriver("unloaded".into())));
    kubelet.until(GPU, healthy(0)).await;
    bench.fake.set_error(None);
    kubelet.until(GPU, healthy(2)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_plugin_that_ends_leaves_its_successor_alone() {
    let mut bench = Bench::new(gpus(2));
    let kubelet = bench.kubelet();
    let first = bench.start(bench.options());
    kubelet.until(GPU, healthy(2)).await;
    let first_stops = std::mem::replace(&mut bench.cx.stop, CancellationToken::new());
    bench.config("shared", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}");
    let second = bench.start(Options { config_file: Some(bench.path("configs/shared")), ..bench.options() });
    kubelet.until(GPU, healthy(6)).await;
    first_stops.cancel();
    first.await.expect("joined").expect("ended well");
    kubelet.until(GPU, healthy(6)).await;
    assert!(bench.path("kubelet/nvidia-gpu.sock").exists());
    bench.stop(second).await;
}

#[tokio::test]
async fn a_driver_may_come_later_where_that_is_allowed() {
    let bench = Bench::new(gpus(2));
    bench.fake.set_error(Some(HwError::NoDriver("not loaded".into())));
    let kubelet = bench.kubelet();
    let strict = bench.start(bench.options()).await.expect("joined").expect_err("ended").to_string();
    assert!(strict.contains("not loaded"), "{strict}");
    let plugin = bench.start(Options { fail_on_init_error: Some(false), ..bench.options() });
    bench.fake.set_error(None);
    kubelet.until(GPU, healthy(2)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn gpus_and_mig_devices_may_come_and_go() {
    let bench = Bench::new(gpus(2));
    let kubelet = bench.kubelet();
    let plugin = bench.start(Options { mig_strategy: Some("mixed".into()), ..bench.options() });
    kubelet.until(GPU, healthy(2)).await;
    bench.fake.edit(|recording| *recording = recording.clone().with_mig(1, &["3g.71gb", "1g.18gb+me"]));
    kubelet.until("nvidia.com/mig-3g.71gb", healthy(1)).await;
    let part = kubelet.until("nvidia.com/mig-1g.18gb.me", healthy(1)).await;
    assert_eq!(part.endpoint, "nvidia-mig-1g.18gb.me.sock");
    kubelet.until(GPU, healthy(1)).await;
    bench.fake.edit(|recording| drop(recording.inventory.gpus.remove(0)));
    kubelet.until(GPU, healthy(0)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn the_label_of_the_node_chooses_its_config() {
    let bench = Bench::new(gpus(2));
    bench.config("plain", "");
    bench.config("shared", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}");
    let kubelet = bench.kubelet();
    let options =
        Options { config_file_srcdir: Some(bench.path("configs")), default_config: "plain".into(), ..bench.options() };
    let plugin = bench.start(options);
    kubelet.until(GPU, healthy(2)).await;
    bench.label.send_replace(Label::Known(Some("shared".into())));
    kubelet.until(GPU, healthy(6)).await;
    bench.config("shared", "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}");
    kubelet.until("nvidia.com/gpu.shared", healthy(4)).await;
    bench.label.send_replace(Label::Known(Some("missing".into())));
    let ended = plugin.await.expect("joined").expect_err("no such config").to_string();
    assert!(ended.contains("'missing'") && ended.contains("plain, shared"), "{ended}");
}

#[tokio::test]
async fn a_config_without_effect_on_this_hardware_ends_the_plugin() {
    let bench = Bench::new(gpus(2).with_mig(0, &["3g.71gb"]));
    let options = Options { mig_strategy: Some("single".into()), ..bench.options() };
    let error = bench.start(options).await.expect("joined").expect_err("ended").to_string();
    assert!(error.contains("migStrategy: single"), "{error}");
}

#[tokio::test]
async fn shared_gpus_wait_for_their_mps_daemon() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new(gpus(1));
    bench.config("mps", "flags: {mpsRoot: /run/mps}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}");
    let program = bench.path("usr/bin/nvidia-cuda-mps-control");
    let dir = bench.path("mps/nvidia.com/gpu");
    for dir in [&dir, &bench.path("usr/bin")] {
        std::fs::create_dir_all(dir).expect("a directory");
    }
    std::fs::write(&program, "#!/bin/sh\nexit 0\n").expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let kubelet = bench.kubelet();
    let plugin = bench.start(Options { config_file: Some(bench.path("configs/mps")), ..bench.options() });
    kubelet.until(GPU, |plugin| plugin.devices.len() == 2 && plugin.healthy().is_empty()).await;
    std::fs::write(dir.join(".started"), "").expect("a file");
    kubelet.until(GPU, healthy(2)).await;
    std::fs::remove_file(dir.join(".started")).expect("removed");
    kubelet.until(GPU, healthy(0)).await;
    bench.stop(plugin).await;
}

#[tokio::test]
async fn cdi_names_are_told_once_specs_are_there() {
    let bench = Bench::new(gpus(1));
    let kubelet = bench.kubelet();
    let list = Some("cdi-cri".into());
    let plugin = bench.start(Options { device_list_strategy: list, gds_enabled: Some(true), ..bench.options() });
    kubelet.until(GPU, healthy(1)).await;
    let answer = kubelet.allocate(GPU, &[&uuid(0)]).await.expect("an answer");
    let names: Vec<&str> = answer.cdi_devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, [format!("{CDI_VENDOR}/gpu={}", uuid(0)).as_str(), &format!("{CDI_VENDOR}/gds=all")]);
    bench.stop(plugin).await;
}

#[tokio::test]
async fn every_name_that_a_container_gets_is_in_a_spec() {
    let bench = Bench::new(gpus(2));
    let libraries = bench.path("usr/lib64");
    std::fs::create_dir_all(&libraries).expect("a directory");
    for name in ["libcuda.so.580.65.06", "libnvidia-ml.so.580.65.06"] {
        std::fs::write(libraries.join(name), "x").expect("a library");
    }
    std::fs::write(bench.path("dev/gdrdrv"), "").expect("a node");
    let kubelet = bench.kubelet();
    let options = Options {
        device_list_strategy: Some("cdi-cri".into()),
        gdrcopy_enabled: Some(true),
        gds_enabled: Some(true),
        ..bench.options()
    };
    let generator = specs::Generator::new(&options, bench.dir.path()).expect("a generator");
    let plugin = bench.start_with(options, Arc::new(generator));
    kubelet.until(GPU, healthy(2)).await;
    let answer = kubelet.allocate(GPU, &[&uuid(0), &uuid(1)]).await.expect("an answer");
    assert_eq!(answer.cdi_devices.len(), 3, "two GPUs and GDRCopy; there is no storage: {:?}", answer.cdi_devices);
    for device in &answer.cdi_devices {
        let (kind, name) = device.name.split_once('=').expect("a CDI name");
        let file = bench.path("var/run/cdi").join(format!("{}.json", kind.replace('/', "-")));
        let spec = capstan_cdi::Spec::parse(&std::fs::read_to_string(file).expect("a spec")).expect("valid");
        assert_eq!(spec.kind, kind);
        assert!(spec.devices.iter().any(|device| device.name == name), "{name} is not in {kind}");
    }
    bench.stop(plugin).await;
}

#[tokio::test]
async fn a_missing_channel_matters_only_where_it_is_required() {
    let bench = Bench::new(gpus(1));
    let kubelet = bench.kubelet();
    let with =
        |required| Options { imex_channel_ids: Some("0".into()), imex_required: Some(required), ..bench.options() };
    let error = bench.start(with(true)).await.expect("joined").expect_err("ended").to_string();
    assert!(error.contains("channel0"), "{error}");
    let dir = bench.path("dev/nvidia-caps-imex-channels");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::os::unix::fs::symlink("/dev/null", dir.join("channel0")).expect("a link to a character device");
    let plugin = bench.start(with(true));
    kubelet.until(GPU, healthy(1)).await;
    let answer = kubelet.allocate(GPU, &[&uuid(0)]).await.expect("an answer");
    assert_eq!(answer.envs["NVIDIA_IMEX_CHANNELS"], "0");
    bench.stop(plugin).await;
}
