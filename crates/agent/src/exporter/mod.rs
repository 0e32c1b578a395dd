//! GPU metrics under the names of dcgm-exporter.
//!
//! GPU readings are collected at an interval; a scrape renders the last collection with the current pods from the
//! kubelet. So a scrape never waits for a GPU, and a hanging GPU shows as a failing `/health`, not as a target that is
//! down.

mod counters;
mod edge;
pub mod fields;
mod options;
mod pods;
mod render;
mod sample;
mod selector;
mod share;
#[cfg(test)]
mod tests;
mod web;
mod windows;
mod xid;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hw::gpu::nvidia::{Event, EventKind, Hardware};
use tokio::time::Instant;

use crate::files::Changes;
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

pub use counters::Counters;
pub use edge::Cluster;
pub use options::Options;
pub use selector::Selector;

use pods::Attributes;
use render::{Computed, Style, Users};
use sample::Snapshot;
use web::TlsReloader;
use windows::Window;

/// Consecutive failed collections after which the exporter is unhealthy.
const FAILURE_THRESHOLD: u32 = 3;

/// Cached readings and the state of the exporter.
pub struct Exporter {
    options: Options,
    style: Style,
    counters: Mutex<Arc<Counters>>,
    state: Mutex<State>,
    cluster: Cluster,
}

struct State {
    snapshot: Option<Arc<Snapshot>>,
    failures: u32,
    failed: String,
    /// The last XID of each GPU.
    last: BTreeMap<String, u64>,
    xids: Window<u64>,
    clocks: Window<&'static str>,
}

/// This role in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::EXPORTER.name, "Serve GPU metrics under the names of dcgm-exporter", Options, run);

/// Serves metrics until stopped.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    let options = options.within(&cx);
    let listener = cx.listen(options.address).await?;
    let tls = TlsReloader::new(options.web_config_file.as_deref())?;
    let exporter = Arc::new(Exporter::new(options, Cluster::default())?);
    exporter.cluster.start_watches(&exporter.options, &cx).await;
    let (source, stop) = (cx.hardware.clone(), cx.stop.clone());
    let watching = exporter.clone();
    // Waiting for events blocks the thread.
    let thread = std::thread::Builder::new().name("gpu-faults".into()).stack_size(256 << 10);
    thread
        .spawn(move || watching.watch_events(&source, &|| stop.is_cancelled()))
        .map_err(|source| Error::Io { what: "cannot start the GPU event thread".into(), source })?;
    let collecting = cx.stop.run_until_cancelled(collect_periodically(exporter.clone(), &cx));
    let reload = reload(exporter.clone(), cx.clone());
    let secured = tls.clone().watch(exporter.options.web_config_file.clone(), cx.stop.clone());
    let serve = edge::serve(listener, tls, exporter, cx.clone());
    tokio::join!(serve, reload, secured, collecting);
    Ok(())
}

/// Collects GPU readings at every interval.
async fn collect_periodically(exporter: Arc<Exporter>, cx: &Cx) {
    let interval = Duration::from_millis(exporter.options.collect_interval.max(100));
    let mut pause = Duration::from_millis(500).min(interval);
    loop {
        let (collector, source, root) = (exporter.clone(), cx.hardware.clone(), cx.root.clone());
        // A driver call may block for seconds: keep it off the async threads, so that scrapes are served.
        let result = tokio::task::spawn_blocking(move || collector.collect(&source, &root));
        if let Err(error) = result.await {
            exporter.record(Err(Error::External(error.to_string())));
        }
        tokio::time::sleep(pause).await;
        // The second collection follows soon: utilisation is a difference between two.
        pause = interval;
    }
}

/// Reloads the counters file when it changes. A mounted ConfigMap changes by a symlink in its directory.
async fn reload(exporter: Arc<Exporter>, cx: Cx) {
    let Some(file) = exporter.options.collectors.clone() else { return cx.stop.cancelled().await };
    let dir = file.parent().map(ToOwned::to_owned).unwrap_or_default();
    loop {
        let mut changes = Changes::of(&[&dir]);
        if let Err(error) = exporter.reload() {
            tracing::warn!(%error, "counters file invalid; keeping the previous metrics");
        }
        let changed = changes.next(Duration::from_secs(3600));
        if cx.stop.run_until_cancelled(changed).await.is_none() {
            return;
        }
    }
}

impl Exporter {
    /// An exporter without readings.
    pub fn new(options: Options, cluster: Cluster) -> Result<Self> {
        let counters = read(&options)?;
        let hostname = (!options.no_hostname).then(|| edge::hostname(&options.node_name)).flatten();
        let style = Style {
            hostname,
            old_namespace: options.use_old_namespace,
            no_blanks_in_model: options.replace_blanks_in_model_name,
            line_per_pod: options.kubernetes_virtual_gpus,
        };
        let state = State {
            snapshot: None,
            failures: 0,
            failed: "the GPUs have not been read yet".into(),
            last: BTreeMap::new(),
            xids: Window::new(Duration::from_millis(options.xid_count_window_size)),
            clocks: Window::new(Duration::from_millis(options.clock_events_count_window_size)),
        };
        Ok(Self { options, style, counters: Mutex::new(Arc::new(counters)), state: Mutex::new(state), cluster })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the counters file; an invalid one changes nothing.
    pub fn reload(&self) -> Result<()> {
        let counters = Arc::new(read(&self.options)?);
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        Ok(())
    }

    /// Stores the result of a collection.
    pub fn record(&self, snapshot: Result<Snapshot>) {
        let mut state = self.state();
        match snapshot {
            Ok(snapshot) => {
                let now = Instant::now();
                for gpu in &snapshot.inventory.gpus {
                    if let Some(reasons) = snapshot.reading(&gpu.uuid).and_then(|reading| reading.throttle) {
                        state.clocks.record_reasons(&gpu.uuid, reasons, now);
                    }
                }
                state.snapshot = Some(Arc::new(snapshot));
                state.failures = 0;
            }
            Err(error) => {
                state.failures += 1;
                state.failed = error.to_string();
                // Do not serve stale readings.
                if state.failures >= FAILURE_THRESHOLD {
                    state.snapshot = None;
                }
            }
        }
    }

    /// Records an event.
    pub fn record_event(&self, event: &Event) {
        let (Some(gpu), EventKind::Xid(number)) = (&event.gpu, event.kind) else { return };
        let mut state = self.state();
        state.last.insert(gpu.clone(), number);
        state.xids.record(gpu, number, Instant::now());
    }

    /// Why the exporter is unhealthy, if it is.
    pub fn unhealthy_reason(&self) -> Option<String> {
        let state = self.state();
        (state.snapshot.is_none()).then(|| state.failed.clone())
    }

    /// Renders all metrics, with the pods that hold devices.
    pub fn text(&self, pods: &BTreeMap<String, Vec<Attributes>>) -> String {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (snapshot, last, computed) = {
            let mut state = self.state();
            let Some(snapshot) = state.snapshot.clone() else { return String::new() };
            let computed = computed(&mut state, &snapshot, &counters);
            (snapshot, state.last.clone(), computed)
        };
        // A capacity close to the usual size avoids reallocations.
        let mut out = String::with_capacity(counters.metrics.len() * snapshot.inventory.gpus.len() * 320 + 4096);
        let samples = snapshot.samples(&self.options.devices, &last);
        let shares = share::named(&snapshot.shares, &self.cluster.pods());
        render::render(&mut out, &samples, &counters, &Users { pods, shares: &shares }, &computed, &self.style);
        let profiling = if snapshot.inventory.gpus.iter().any(|gpu| gpu.gpm) { "gpm" } else { "none" };
        out.push_str("# HELP capstan_exporter_info How this exporter reads GPUs\n# TYPE capstan_exporter_info gauge\n");
        out.push_str(&format!(
            "capstan_exporter_info{{profiling=\"{profiling}\",driver=\"{}\"}} 1\n",
            snapshot.inventory.driver
        ));
        out
    }

    /// Collects readings once.
    fn collect(&self, source: &capstan_hw::gpu::nvidia::Source, root: &Path) {
        let snapshot = source.get().map_err(Error::from).and_then(|hardware| {
            let mut snapshot = Snapshot::collect(hardware.as_ref())?;
            if self.options.kubernetes_virtual_gpus {
                snapshot.collect_processes(hardware.as_ref(), root);
            }
            Ok(snapshot)
        });
        if snapshot.is_err() {
            // Reload the driver library on the next attempt.
            source.forget();
        }
        self.record(snapshot);
    }

    /// Watches NVML events until stopped.
    fn watch_events(&self, source: &capstan_hw::gpu::nvidia::Source, stopped: &dyn Fn() -> bool) {
        while !stopped() {
            match source.get().and_then(|hardware: Arc<dyn Hardware>| hardware.watch()) {
                Ok(mut watched) => loop {
                    match watched.events.next(Duration::from_secs(1)) {
                        Ok(Some(event)) => self.record_event(&event),
                        Ok(None) if stopped() => return,
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(%error, "event stream ended; resubscribing");
                            break;
                        }
                    }
                },
                Err(error) => tracing::debug!(%error, "event subscription failed"),
            }
            wait(Duration::from_secs(5), stopped);
        }
    }
}

/// Sleeps on a thread, but returns soon after `stopped`.
fn wait(time: Duration, stopped: &dyn Fn() -> bool) {
    let deadline = std::time::Instant::now() + time;
    while !stopped() {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left.min(Duration::from_millis(200)));
    }
}

fn read(options: &Options) -> Result<Counters> {
    match &options.collectors {
        None => Ok(Counters::default()),
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .map_err(|source| Error::Io { what: format!("cannot read --collectors {}", file.display()), source })?;
            Counters::parse(&text)
        }
    }
}

fn computed(state: &mut State, snapshot: &Snapshot, counters: &Counters) -> Vec<Computed> {
    let now = Instant::now();
    let gpus = || snapshot.inventory.gpus.iter().map(|gpu| gpu.uuid.clone());
    let attributes =
        |pairs: [(&str, String); 2]| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let metric = |&(name, ref help): &(&'static str, String)| {
        let lines = gpus().map(|gpu| {
            let lines: Vec<(Attributes, u64)> = match name {
                "DCGM_EXP_XID_ERRORS_COUNT" => {
                    let window = state.xids.millis().to_string();
                    let mut counts = state.xids.counts(&gpu, now);
                    if counts.is_empty() {
                        counts.insert(0, 0);
                    }
                    let line = |(xid, count): (u64, u64)| {
                        (attributes([("window_size_in_ms", window.clone()), ("xid", xid.to_string())]), count)
                    };
                    counts.into_iter().map(line).collect()
                }
                _ => {
                    let window = state.clocks.millis().to_string();
                    let line = |(event, count): (&str, u64)| {
                        (attributes([("clock_event", event.to_owned()), ("window_size_in_ms", window.clone())]), count)
                    };
                    state.clocks.counts(&gpu, now).into_iter().map(line).collect()
                }
            };
            (gpu, lines)
        });
        Computed { name, help: help.clone(), lines: lines.collect() }
    };
    counters.computed.iter().map(metric).collect()
}
