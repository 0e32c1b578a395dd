//! The guest's side of a story: the roles, the kernel's files, and what only the machine outside can do.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_agent::{ApiAccess, Cx, Variables, roles};
use capstan_hw::fake::{Fake, Model, Recording, node};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Hardware, Source};
use capstan_hw::pci::PciAddress;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take: generous, since the guest may be emulated on a machine that does other work.
const LIMIT: Duration = Duration::from_secs(120);

/// What a story in the guest works with.
pub(crate) struct Here {
    job: PathBuf,
    stage: String,
    log: Log,
}

/// What roles say.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        std::io::stderr().write_all(text)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Here {
    /// In the guest, that.
    pub(crate) fn in_guest() -> Option<Self> {
        std::env::var_os("CAPSTAN_GUEST")?;
        let (log, job) = (Log::default(), std::env::var_os("CAPSTAN_JOB").unwrap_or_default().into());
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        Some(Self { job, stage: std::env::var("CAPSTAN_STAGE").unwrap_or_default(), log })
    }

    /// Which part of a story this is: empty until it went down once.
    pub(crate) fn stage(&self) -> &str {
        &self.stage
    }

    /// Reboots the machine; the story goes on with the stage `next`.
    pub(crate) fn reboot(&self, next: &str) -> ! {
        self.ask(&json!({ "reboot": next }));
        std::fs::write("/proc/sysrq-trigger", "b").expect("the kernel reboots");
        wait_for_the_end()
    }

    /// Pulls the machine's plug, whatever it is doing; the story goes on with the stage `next`.
    pub(crate) fn pull_plug(&self, next: &str) -> ! {
        self.ask(&json!({ "power_loss": next }));
        wait_for_the_end()
    }

    /// A file outside of the guest, which what it goes through does not touch.
    pub(crate) fn kept(&self, name: &str) -> PathBuf {
        Path::new("/host").join(format!("kept-{name}"))
    }

    /// Asks the cluster, with the rights of its administrator.
    pub(crate) fn kubectl(&self, args: &[&str], input: &str) -> Result<String, String> {
        let answer = self.job.join("answer");
        let _ = std::fs::remove_file(&answer);
        self.ask(&json!({ "kubectl": args, "input": input }));
        until("kubectl answers", || answer.exists());
        let said: Value =
            serde_json::from_slice(&std::fs::read(answer).expect("an answer")).expect("an answer in JSON");
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        if said["code"] == 0 { Ok(text("out")) } else { Err(text("err")) }
    }

    /// Waits until a field of an object has a value: `{.status.phase}=Running`. The cluster says when; nobody polls.
    pub(crate) fn wait(&self, object: &str, field: &str) -> Result<String, String> {
        let (until, limit) = (format!("--for=jsonpath={field}"), format!("--timeout={}s", LIMIT.as_secs()));
        self.kubectl(&["wait", object, &until, &limit], "")
    }

    fn ask(&self, request: &Value) {
        let part = self.job.join("request.part");
        std::fs::write(&part, request.to_string()).expect("a request");
        std::fs::rename(part, self.job.join("request")).expect("a request");
    }

    /// What roles have said so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.log.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until roles have said this.
    pub(crate) async fn until_said(&self, text: &str) {
        until_async(&format!("a role says '{text}'"), || self.said().contains(text)).await;
    }

    /// Runs an asynchronous story.
    pub(crate) fn run<F: Future<Output = ()>>(&self, story: F) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(story);
    }
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs a line of shell, which must succeed, and returns what it printed.
pub(crate) fn sh(line: &str) -> String {
    let output = try_sh(line);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    out.trim().to_owned()
}

/// The same for a line that may fail.
pub(crate) fn try_sh(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).output().expect("a shell")
}

/// Waits until something is so.
pub(crate) fn until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {} s", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same, while roles run.
pub(crate) async fn until_async(what: &str, done: impl Fn() -> bool) {
    // Monotonic time: stories move the clock.
    let begin = tokio::time::Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {} s", LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// GPUs of the fake bus, as their driver would describe them.
pub(crate) fn gpus(count: u32) -> Recording {
    let mut recording = node(Model::H200, count);
    for (slot, gpu) in recording.inventory.gpus.iter_mut().enumerate() {
        gpu.pci = PciAddress::parse(&format!("0000:60:{slot:02x}.0")).expect("an address");
    }
    recording
}

/// Installs the libraries of a driver: any library will do, as long as the loader takes it for one.
pub(crate) fn install_libraries(root: &Path, recording: &Recording) {
    let folder = root.join("usr/lib/x86_64-linux-gnu");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"] {
        let file = folder.join(format!("{name}.so.{}", recording.inventory.driver));
        std::fs::copy("/usr/lib/x86_64-linux-gnu/libz.so.1", file).expect("a library");
    }
}

/// A role that runs in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<capstan_agent::Result<()>>,
}

impl Running {
    /// Starts a role on this very machine, with a driver that describes `recording`.
    pub(crate) fn start(role: &str, args: &[&str], recording: Recording) -> Self {
        Self::start_at(role, args, recording, Roots::local())
    }

    /// The same with the driver elsewhere.
    pub(crate) fn start_at(role: &str, args: &[&str], recording: Recording, roots: Roots) -> Self {
        let stop = CancellationToken::new();
        let fake: Arc<dyn Hardware> = Arc::new(Fake::new(recording));
        let opened = fake.clone();
        let cx = Cx {
            open_driver: Arc::new(move |_| Ok(opened.clone())),
            api: ApiAccess::Environment,
            variables: Variables::Process,
            ..Cx::new(Arc::new(Source::of(fake)), roots, "/", stop.clone())
        };
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let role = roles::parse(role, &args, &std::env::vars().collect()).expect("a role");
        Self { stop, task: tokio::spawn(async move { role.run(cx).await }) }
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> capstan_agent::Result<()> {
        let ended = tokio::time::timeout(LIMIT, self.task).await;
        ended.expect("it ends by itself").expect("it does not panic")
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.ended().await.expect("it ends well");
    }
}
