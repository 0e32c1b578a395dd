//! MPS daemons, with a shell script as the control program.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use capstan_hw::fake::{Fake, Model, node};
use capstan_hw::gpu::nvidia::Source;

use super::*;
use crate::device_plugin::ResourceSet;

const SHARED: &str = "sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}";

fn planned(recording: &capstan_hw::fake::Recording, text: &str) -> Result<Vec<Daemon>, InvalidValue> {
    let settings = settings(&Options::default(), text)?;
    let ResourceSet { resources, .. } =
        build_resources(Platform::Nvml, &recording.inventory, &settings, &KernelFiles::default())?;
    Ok(plan(&resources, &settings.sharing))
}

#[test]
fn each_client_gets_its_part_of_the_gpus() {
    let recording = node(Model::H200, 2);
    let daemons = planned(&recording, SHARED).expect("a plan");
    let [daemon] = &daemons[..] else { panic!("{daemons:?}") };
    assert_eq!(daemon.gpus, [recording.inventory.gpus[0].uuid.clone(), recording.inventory.gpus[1].uuid.clone()]);
    assert_eq!(
        daemon.commands(),
        [
            "set_default_device_pinned_mem_limit 0 35942M",
            "set_default_device_pinned_mem_limit 1 35942M",
            "set_default_active_thread_percentage 25",
        ]
    );
}

#[test]
fn limits_can_be_set_by_hand() {
    let own =
        "sharing: {mps: {resources: [{name: gpu, replicas: 3, activeThreadPercentage: 34, pinnedMemoryMiB: 1000}]}}";
    let daemons = planned(&node(Model::H200, 1), own).expect("a plan");
    assert_eq!((daemons[0].thread_percentage, daemons[0].memory_mib.clone()), (34, vec![1000]));
}

#[test]
fn a_gpu_has_a_limit_of_clients() {
    let with = |replicas: u32, compute: (u32, u32)| {
        let mut recording = node(Model::A100, 1);
        recording.inventory.gpus[0].compute =
            capstan_hw::gpu::nvidia::ComputeCapability { major: compute.0, minor: compute.1 };
        planned(&recording, &format!("sharing: {{mps: {{resources: [{{name: gpu, replicas: {replicas}}}]}}}}"))
    };
    for (replicas, compute, fits) in
        [(15, (7, 0), true), (16, (7, 0), true), (17, (7, 0), false), (48, (7, 5), true), (49, (9, 0), false)]
    {
        assert_eq!(with(replicas, compute).is_ok(), fits, "{replicas} on {compute:?}");
    }
    let error = with(49, (9, 0)).expect_err("too many").to_string();
    assert!(error.contains("49") && error.contains("write 48 or less"), "{error}");
}

#[test]
fn mig_and_mps_do_not_go_together() {
    let cut = node(Model::H200, 1).with_mig(0, &["1g.18gb"]);
    assert!(planned(&cut, SHARED).expect_err("refused").to_string().contains("switch MIG off"));
    let mixed = format!("flags: {{migStrategy: mixed}}\n{SHARED}");
    assert!(planned(&node(Model::H200, 1), &mixed).expect_err("refused").to_string().contains("migStrategy"));
}

#[test]
fn without_mps_there_are_no_daemons() {
    assert_eq!(planned(&node(Model::H200, 1), "").expect("a plan"), []);
}

/// Daemon and client: the daemon writes its PID, which the client uses to stop it.
const SCRIPT: &str = r#"#!/bin/sh
control="$CUDA_MPS_PIPE_DIRECTORY/control"
if [ "$1" = -f ]; then
  echo "$CUDA_VISIBLE_DEVICES" > "$CUDA_MPS_PIPE_DIRECTORY/gpus"
  echo $$ > "$control"
  exec sleep 1000
fi
read -r line
pid=$(cat "$control" 2>/dev/null) && kill -0 "$pid" 2>/dev/null || { echo "no daemon" >&2; exit 1; }
echo "$line" >> "$CUDA_MPS_PIPE_DIRECTORY/told"
case "$line" in
  quit) kill "$pid" ;;
  crash) kill -9 "$pid" ;;
esac
"#;

struct Bench {
    dir: tempfile::TempDir,
    fake: Arc<Fake>,
    cx: Cx,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("usr/bin").join(PROGRAM);
        std::fs::create_dir_all(dir.path().join("usr/bin")).expect("a directory");
        std::fs::create_dir_all(dir.path().join("mps")).expect("a directory");
        std::fs::write(&program, SCRIPT).expect("a script");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        std::fs::write(dir.path().join("config"), SHARED).expect("a config");
        let fake = Arc::new(Fake::new(node(Model::H200, 2)));
        let hardware = Arc::new(Source::of(fake.clone()));
        let cx = Cx::new(hardware, Roots::new("/", dir.path(), None), dir.path(), CancellationToken::new());
        Self { dir, fake, cx }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("mps").join(name)
    }

    /// Waits until files match.
    async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                let dirs = [self.file(""), self.file("nvidia.com/gpu"), self.file("nvidia.com/gpu/pipe")];
                let mut changes = Changes::of(&dirs.each_ref().map(PathBuf::as_path));
                if wanted(self) {
                    return;
                }
                changes.next(Duration::from_millis(100)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_is_told_its_limits_started_again_and_ended() {
    let bench = Bench::new();
    let options = Options { config_file: Some(bench.dir.path().join("config")), ..Options::default() };
    let role = tokio::spawn(run(options, bench.cx.clone()));
    bench.until("ready", |bench| bench.file(".ready").exists()).await;
    let uuid = node(Model::H200, 1).inventory.gpus[0].uuid.clone();
    assert!(bench.fake.exclusive(&uuid));
    let told = std::fs::read_to_string(bench.file("nvidia.com/gpu/pipe/told")).expect("commands");
    assert!(told.contains("set_default_active_thread_percentage 25"), "{told}");
    let gpus = std::fs::read_to_string(bench.file("nvidia.com/gpu/pipe/gpus")).expect("a list");
    assert!(gpus.contains(&uuid), "{gpus}");
    assert_eq!(ping(bench.dir.path(), &bench.cx.roots, &ResourceName::gpu()).await, Ok(()));

    std::fs::remove_file(bench.file("nvidia.com/gpu/pipe/gpus")).expect("removed");
    send_command(&bench.cx.roots, &bench.file("nvidia.com/gpu/pipe"), "crash").await.expect("told");
    bench.until("started again", |bench| bench.file("nvidia.com/gpu/pipe/gpus").exists()).await;
    bench
        .until("ready again", |bench| bench.file(".ready").exists() && bench.file("nvidia.com/gpu/.started").exists())
        .await;

    bench.cx.stop.cancel();
    role.await.expect("joined").expect("ended well");
    assert!(!bench.file(".ready").exists() && !bench.file("nvidia.com/gpu/.started").exists());
    assert!(!bench.fake.exclusive(&uuid));
}

#[tokio::test]
async fn a_node_without_the_program_is_told_so() {
    let error =
        send_command(&Roots::new("/", "/nonexistent", None), Path::new("/x"), PING_COMMAND).await.expect_err("missing");
    assert!(error.contains("is the driver installed?"), "{error}");
}
