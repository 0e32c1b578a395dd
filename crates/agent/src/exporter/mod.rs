//! Metrics of GPUs, under the names that dashboards know.
//!
//! One thread looks at the GPUs every interval; a scrape prints the last look with what the kubelet says about pods
//! now. So a scrape never waits for a GPU, and a GPU that hangs shows as `/health` failing, not as a dead target.

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
use sample::Scrape;
use web::Web;
use windows::Window;

/// So many looks may fail before the exporter says that it is not well.
const FAILURES: u32 = 3;

/// What scrapes see.
pub struct Exporter {
    options: Options,
    style: Style,
    counters: Mutex<Arc<Counters>>,
    state: Mutex<State>,
    cluster: Cluster,
}

struct State {
    look: Option<Arc<Scrape>>,
    failures: u32,
    failed: String,
    /// The last XID of each GPU.
    last: BTreeMap<String, u64>,
    xids: Window<u64>,
    clocks: Window<&'static str>,
}

/// This role in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::EXPORTER.name, "Serve metrics of GPUs under the names that dashboards know", Options, run);

/// Serves metrics until told to stop.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    let options = options.within(&cx);
    let listener = cx.listen(options.address).await?;
    let web = Web::new(options.web_config_file.as_deref())?;
    let exporter = Arc::new(Exporter::new(options, Cluster::default())?);
    exporter.cluster.follow(&exporter.options, &cx).await;
    let (source, stop) = (cx.hardware.clone(), cx.stop.clone());
    let watching = exporter.clone();
    // Waiting for a fault blocks for as long as there is none.
    let thread = std::thread::Builder::new().name("gpu-faults".into()).stack_size(256 << 10);
    thread
        .spawn(move || watching.listen_on(&source, &|| stop.is_cancelled()))
        .map_err(|source| Error::Io { what: "cannot start to listen for faults".into(), source })?;
    let looks = cx.stop.run_until_cancelled(look_on(exporter.clone(), &cx));
    let reload = reload(exporter.clone(), cx.clone());
    let secured = web.clone().follow(exporter.options.web_config_file.clone(), cx.stop.clone());
    let serve = edge::serve(listener, web, exporter, cx.clone());
    tokio::join!(serve, reload, secured, looks);
    Ok(())
}

/// Looks at the GPUs every interval.
async fn look_on(exporter: Arc<Exporter>, cx: &Cx) {
    let interval = Duration::from_millis(exporter.options.collect_interval.max(100));
    let mut pause = Duration::from_millis(500).min(interval);
    loop {
        let (looking, source, root) = (exporter.clone(), cx.hardware.clone(), cx.root.clone());
        // A call of the driver may hang for seconds: not on the executor's thread, so that scrapes go on.
        let looked = tokio::task::spawn_blocking(move || looking.look_at(&source, &root));
        if let Err(error) = looked.await {
            exporter.saw(Err(Error::Outside(error.to_string())));
        }
        tokio::time::sleep(pause).await;
        // The second look follows soon: activity is known from then on.
        pause = interval;
    }
}

/// Reads the counters again whenever their file changes. A mounted ConfigMap changes by a link in its directory.
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
    /// An exporter that has seen nothing yet.
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
            look: None,
            failures: 0,
            failed: "the GPUs have not been looked at yet".into(),
            last: BTreeMap::new(),
            xids: Window::new(Duration::from_millis(options.xid_count_window_size)),
            clocks: Window::new(Duration::from_millis(options.clock_events_count_window_size)),
        };
        Ok(Self { options, style, counters: Mutex::new(Arc::new(counters)), state: Mutex::new(state), cluster })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the counters file again; a wrong one changes nothing.
    pub fn reload(&self) -> Result<()> {
        let counters = Arc::new(read(&self.options)?);
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        Ok(())
    }

    /// Notes what one look saw, or why it failed.
    pub fn saw(&self, look: Result<Scrape>) {
        let mut state = self.state();
        match look {
            Ok(look) => {
                let now = Instant::now();
                for gpu in &look.inventory.gpus {
                    if let Some(reasons) = look.reading(&gpu.uuid).and_then(|reading| reading.throttle) {
                        state.clocks.note_reasons(&gpu.uuid, reasons, now);
                    }
                }
                state.look = Some(Arc::new(look));
                state.failures = 0;
            }
            Err(error) => {
                state.failures += 1;
                state.failed = error.to_string();
                // What was true long ago must not pass for what is.
                if state.failures >= FAILURES {
                    state.look = None;
                }
            }
        }
    }

    /// Notes a fault.
    pub fn heard(&self, event: &Event) {
        let (Some(gpu), EventKind::Xid(number)) = (&event.gpu, event.kind) else { return };
        let mut state = self.state();
        state.last.insert(gpu.clone(), number);
        state.xids.note(gpu, number, Instant::now());
    }

    /// Why it is not well, if it is not.
    pub fn sick(&self) -> Option<String> {
        let state = self.state();
        (state.look.is_none()).then(|| state.failed.clone())
    }

    /// All metrics now, with what pods hold.
    pub fn text(&self, pods: &BTreeMap<String, Vec<Attributes>>) -> String {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (look, last, computed) = {
            let mut state = self.state();
            let Some(look) = state.look.clone() else { return String::new() };
            let computed = computed(&mut state, &look, &counters);
            (look, state.last.clone(), computed)
        };
        // Most lines are this long; asked for once, so that a scrape does not copy itself again and again.
        let mut out = String::with_capacity(counters.metrics.len() * look.inventory.gpus.len() * 320 + 4096);
        let samples = look.samples(&self.options.devices, &last);
        let shares = share::named(&look.shares, &self.cluster.pods());
        render::render(&mut out, &samples, &counters, &Users { pods, shares: &shares }, &computed, &self.style);
        let profiling = if look.inventory.gpus.iter().any(|gpu| gpu.gpm) { "gpm" } else { "none" };
        out.push_str("# HELP capstan_exporter_info How this exporter reads GPUs\n# TYPE capstan_exporter_info gauge\n");
        out.push_str(&format!(
            "capstan_exporter_info{{profiling=\"{profiling}\",driver=\"{}\"}} 1\n",
            look.inventory.driver
        ));
        out
    }

    /// Looks at the GPUs once.
    fn look_at(&self, source: &capstan_hw::gpu::nvidia::Source, root: &Path) {
        let look = source.get().map_err(Error::from).and_then(|hardware| {
            let mut look = Scrape::take(hardware.as_ref())?;
            if self.options.kubernetes_virtual_gpus {
                look.ask_who(hardware.as_ref(), root);
            }
            Ok(look)
        });
        if look.is_err() {
            // The next one may find another driver.
            source.forget();
        }
        self.saw(look);
    }

    /// Listens for faults, until told to stop.
    fn listen_on(&self, source: &capstan_hw::gpu::nvidia::Source, stopped: &dyn Fn() -> bool) {
        while !stopped() {
            match source.get().and_then(|hardware: Arc<dyn Hardware>| hardware.watch()) {
                Ok(mut watched) => loop {
                    match watched.events.next(Duration::from_secs(1)) {
                        Ok(Some(event)) => self.heard(&event),
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

/// A pause of a thread that ends soon after it is told to.
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

fn computed(state: &mut State, look: &Scrape, counters: &Counters) -> Vec<Computed> {
    let now = Instant::now();
    let gpus = || look.inventory.gpus.iter().map(|gpu| gpu.uuid.clone());
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
