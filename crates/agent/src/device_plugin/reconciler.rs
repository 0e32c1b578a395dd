//! The main loop of the device plugin: waits for triggers, probes the hardware, updates the resources and their
//! plugins.
//!
//! Each pass starts its watches before it reads, so that no change in between is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_hw::gpu::nvidia::{Inventory, Source, Topology};
use capstan_kubelet::device_plugin::DIRECTORY;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber;

use super::choose::{Fallback, choose, configs};
use super::devices::build_resources;
use super::health::{self, Cause, HealthEvent, UnhealthyDevice, UnhealthyDevices, Xids};
use super::platform::Platform;
use super::plugin::{self, Sockets};
use super::probe::{self, ProbeResult, Probed, WatchedFiles};
use super::{Edges, Label, Node, Options, Settings, SpecRequest};
use crate::config::{self, Flags, ResourceName, SharingStrategy};
use crate::files::Changes;
use crate::{Cx, Error, Result, mps};

/// No timeout.
const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// Why a pass runs.
enum Trigger {
    Start,
    Files,
    Tick,
    Reload,
    HealthEvent(HealthEvent),
}

struct Reconciler {
    options: Options,
    flags: Flags,
    fallbacks: Vec<Fallback>,
    xids: Xids,
    cx: Cx,
    edges: Edges,
    sockets: Sockets,
    config_text: String,
    node: watch::Sender<Arc<Node>>,
    kubelet: watch::Sender<u64>,
    plugins: BTreeMap<ResourceName, (CancellationToken, JoinHandle<()>)>,
    failed: (mpsc::UnboundedSender<Error>, mpsc::UnboundedReceiver<Error>),
    event_sender: Option<mpsc::UnboundedSender<HealthEvent>>,
    resubscribe: Arc<AtomicBool>,
    files: WatchedFiles,
    probed: Option<Probed>,
}

/// Runs the device plugin until stopped.
pub(super) async fn run(options: Options, cx: Cx, mut edges: Edges) -> Result<()> {
    let known = edges.label.wait_for(|label| *label != Label::Unknown);
    tokio::select! {
        () = cx.stop.cancelled() => return Ok(()),
        known = known => drop(known),
    }
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let mut reconciler = Reconciler::new(options, cx, edges, event_sender)?;
    let mut label = reconciler.edges.label.clone();
    let mut hangup = signal(SignalKind::hangup()).map_err(|source| Error::Io { what: "SIGHUP".into(), source })?;
    let mut tick = tokio::time::interval(reconciler.edges.timing.recheck);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trigger = Trigger::Start;
    let ended = loop {
        let (mut changes, mut nodes) = reconciler.changes();
        if let Err(error) = reconciler.reconcile(trigger).await {
            break Err(error);
        }
        let next_recovery = reconciler.next_recovery();
        trigger = tokio::select! {
            () = reconciler.cx.stop.cancelled() => break Ok(()),
            Some(error) = reconciler.failed.1.recv() => break Err(error),
            Some(event) = events.recv() => Trigger::HealthEvent(event),
            Ok(()) = label.changed() => Trigger::Reload,
            _ = hangup.recv() => Trigger::Reload,
            () = changes.next(NO_TIMEOUT) => Trigger::Files,
            () = nodes.next(NO_TIMEOUT) => Trigger::Files,
            _ = tick.tick() => Trigger::Tick,
            () = tokio::time::sleep_until(next_recovery) => Trigger::Tick,
        };
    };
    reconciler.stop().await;
    ended
}

impl Reconciler {
    fn new(options: Options, cx: Cx, edges: Edges, event_sender: mpsc::UnboundedSender<HealthEvent>) -> Result<Self> {
        let flags = options.flags()?;
        let fallbacks = Fallback::parse(&options.fallback_strategies)?;
        let of = |list: &Option<String>| list.clone().unwrap_or_default();
        let (xids, unknown) = Xids::parse(&of(&options.disable_healthchecks), &of(&options.enable_healthchecks));
        for word in unknown {
            tracing::warn!(word, "XID not a number or 'all'; ignored");
        }
        let kubelet = Some(PathBuf::from(&options.kubelet_socket)).filter(|path| !path.as_os_str().is_empty());
        let dir = kubelet.as_deref().and_then(Path::parent).unwrap_or(Path::new(DIRECTORY)).to_owned();
        let settings = Settings::resolve(flags.clone(), config::Config::default())?;
        let node = Node {
            roots: cx.roots.clone(),
            settings,
            resources: Vec::new(),
            topology: Topology::default(),
            unhealthy: UnhealthyDevices::new(),
            channels: Vec::new(),
            classes: Vec::new(),
        };
        Ok(Self {
            flags,
            fallbacks,
            sockets: Sockets { dir, kubelet, max_backoff: edges.timing.max_backoff },
            config_text: String::new(),
            node: watch::Sender::new(Arc::new(node)),
            kubelet: watch::Sender::new(0),
            plugins: BTreeMap::new(),
            failed: mpsc::unbounded_channel(),
            event_sender: (xids != Xids::Off).then_some(event_sender),
            resubscribe: Arc::default(),
            files: WatchedFiles::default(),
            probed: None,
            options,
            xids,
            cx,
            edges,
        })
    }

    /// One pass: read what may have changed, update the node, publish.
    async fn reconcile(&mut self, trigger: Trigger) -> Result<()> {
        let start = matches!(trigger, Trigger::Start);
        let mut node = Node::clone(&self.node.borrow());
        let files = WatchedFiles::read(&node, &self.sockets, &self.cx.root);
        let text = self.read_config()?;
        let reload = start || matches!(trigger, Trigger::Reload) || text != self.config_text;
        if reload {
            (node.settings, self.config_text) = (self.load(&text)?, text);
            node.roots = probe::roots(&self.cx.roots, &node.settings);
        }
        let mut query_health = matches!(trigger, Trigger::Tick);
        let mut needs_probe = reload || query_health || self.probed.is_none() || files.nodes != self.files.nodes;
        if let Trigger::HealthEvent(event) = trigger {
            let requery = health::apply_event(event, &self.xids, &mut node);
            (query_health, needs_probe) = (query_health || requery, needs_probe || requery);
        }
        if needs_probe {
            let known = self.probed.as_ref().map(|probed| probed.inventory.clone());
            let result = probe::probe(&self.cx, &node, known, query_health).await;
            self.apply_probe(result, &mut node, reload).await?;
        }
        if reload || query_health || files.started != self.files.started {
            self.check_mps(&mut node).await;
        }
        let kubelet_started = !start && files.kubelet.is_some() && files.kubelet != self.files.kubelet;
        self.files = files;
        self.publish(node).await?;
        if kubelet_started {
            self.kubelet.send_modify(|starts| *starts += 1);
        }
        Ok(())
    }

    /// When the next device may be healthy again, if no further event comes.
    fn next_recovery(&self) -> Instant {
        let (now, recovery_delay) = (Instant::now(), self.edges.timing.recovery_delay);
        let node = self.node.borrow();
        // Devices past their delay are covered by the regular probe.
        let times =
            node.unhealthy.values().map(|unhealthy| unhealthy.since + recovery_delay).filter(|time| *time > now);
        times.min().unwrap_or(now + NO_TIMEOUT)
    }

    /// Watches for files and for device nodes.
    fn changes(&self) -> (Changes, Changes) {
        let node = self.node.borrow();
        let dev = node.roots.dev_here.join("dev");
        let nodes = [dev.join("nvidia-caps"), dev.join("nvidia-caps-imex-channels"), dev];
        let shared = node.resources.iter().filter(|resource| resource.sharing == SharingStrategy::Mps);
        let mut dirs: Vec<PathBuf> = shared
            .map(|resource| mps::directory(&self.cx.root, &resource.name))
            .chain([self.sockets.dir.clone()])
            .collect();
        dirs.extend(self.options.config_file_srcdir.clone());
        dirs.extend(self.options.config_file.as_deref().and_then(Path::parent).map(Path::to_owned));
        let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
        (Changes::of(&dirs), Changes::of_names(&nodes.each_ref().map(PathBuf::as_path)))
    }

    /// Text of the node's current config.
    fn read_config(&self) -> Result<String> {
        let file = match &self.options.config_file_srcdir {
            None => self.options.config_file.clone().filter(|file| !file.as_os_str().is_empty()),
            Some(dir) => {
                let label = match &*self.edges.label.borrow() {
                    Label::Known(label) => label.clone(),
                    Label::Unknown => None,
                };
                choose(dir, &configs(dir)?, label.as_deref(), &self.options.default_config, &self.fallbacks)?
            }
        };
        let Some(file) = file else { return Ok(String::new()) };
        std::fs::read_to_string(&file)
            .map_err(|source| Error::Io { what: format!("cannot read the config {}", file.display()), source })
    }

    fn load(&self, text: &str) -> Result<Settings> {
        let parsed = config::parse(text)?;
        for warning in parsed.warnings {
            tracing::warn!(warning, "config warning");
        }
        Ok(Settings::resolve(self.flags.clone(), parsed.config)?)
    }

    /// Applies the result of a probe.
    async fn apply_probe(&mut self, result: ProbeResult, node: &mut Node, reload: bool) -> Result<()> {
        let (probed, gpu_health) = match result {
            Ok(result) => result,
            Err(error) => {
                self.cx.hardware.forget();
                if self.probed.is_none() && node.settings.fail_on_init_error {
                    return Err(error.into());
                }
                tracing::warn!(%error, "GPUs not readable; retrying");
                return Ok(());
            }
        };
        let before = self.probed.as_ref().map(|probed| (probed.platform, &probed.inventory));
        let changed = before != Some((probed.platform, &probed.inventory));
        node.topology = probed.topology.clone();
        let lost: Vec<String> = probed.inventory.lost.iter().filter_map(|lost| lost.uuid.clone()).collect();
        self.probed = Some(probed);
        if changed || reload {
            self.resubscribe.store(true, Ordering::Relaxed);
            self.rebuild_resources(node, reload).await?;
        }
        for id in lost.into_iter().filter(|id| health::all(&node.resources).any(|device| device.id == *id)) {
            node.unhealthy.entry(id).or_insert(UnhealthyDevice { cause: Cause::Lost, since: Instant::now() });
        }
        if !gpu_health.is_empty() && self.xids != Xids::Off {
            let recovery_delay = self.edges.timing.recovery_delay;
            node.unhealthy =
                health::update_unhealthy(&node.unhealthy, &node.resources, &gpu_health, Instant::now(), recovery_delay);
        }
        Ok(())
    }

    /// Rebuilds the resources. A MIG layout that does not match the strategy is an error at start and after a config
    /// change; later it may be a reconfiguration in progress.
    async fn rebuild_resources(&self, node: &mut Node, strict: bool) -> Result<()> {
        let Some(probed) = &self.probed else { return Ok(()) };
        let built = build_resources(probed.platform, &probed.inventory, &node.settings, &probed.kernel);
        let built = match built {
            Err(error) if strict => return Err(error.into()),
            Err(error) => {
                tracing::error!(error = %error, "config does not match the hardware; no devices advertised");
                super::ResourceSet::default()
            }
            Ok(built) => built,
        };
        for warning in built.warnings {
            tracing::warn!(warning, "device warning");
        }
        if built.resources.is_empty() {
            tracing::info!("no devices to advertise; waiting");
        }
        node.resources = built.resources;
        node.unhealthy.retain(|id, _| health::all(&node.resources).any(|device| device.id == *id));
        node.channels = probe::channels(node, &self.cx.root)?;
        if node.settings.cdi() && probed.platform == Platform::Nvml {
            node.classes = self.write_specs(node, &probed.inventory).await?;
        }
        Ok(())
    }

    async fn write_specs(&self, node: &Node, inventory: &Inventory) -> Result<Vec<String>> {
        let (cdi, root, inventory) = (self.edges.cdi.clone(), self.cx.root.clone(), inventory.clone());
        let (settings, roots, channels) = (node.settings.clone(), node.roots.clone(), node.channels.clone());
        let written = tokio::task::spawn_blocking(move || {
            let request = SpecRequest {
                inventory: &inventory,
                settings: &settings,
                roots: &roots,
                root: &root,
                channels: &channels,
            };
            cdi.write(&request)
        });
        written.await.unwrap_or_else(|error| Err(Error::External(error.to_string())))
    }

    /// MPS-shared devices are healthy only while their control daemon responds.
    async fn check_mps(&self, node: &mut Node) {
        let shared = node.resources.iter().filter(|resource| resource.sharing == SharingStrategy::Mps);
        for resource in shared.cloned().collect::<Vec<_>>() {
            let response = mps::ping(&self.cx.root, &node.roots, &resource.name).await;
            for device in &resource.devices {
                let before = node.unhealthy.get(&device.id).map(|unhealthy| &unhealthy.cause);
                match (&response, before) {
                    (Ok(()), Some(Cause::Mps(_))) => drop(node.unhealthy.remove(&device.id)),
                    (Err(why), None | Some(Cause::Mps(_))) => {
                        let unhealthy = UnhealthyDevice { cause: Cause::Mps(why.clone()), since: Instant::now() };
                        node.unhealthy.insert(device.id.clone(), unhealthy);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Publishes the node, and starts and stops plugins to match its resources.
    async fn publish(&mut self, node: Node) -> Result<()> {
        let before = self.node.borrow().clone();
        for (id, unhealthy) in node.unhealthy.iter().filter(|(id, _)| !before.unhealthy.contains_key(*id)) {
            tracing::warn!(device = id, cause = %unhealthy.cause, "device unhealthy");
        }
        for id in before.unhealthy.keys().filter(|id| !node.unhealthy.contains_key(*id)) {
            tracing::info!(device = id, "device healthy again");
            self.resubscribe.store(true, Ordering::Relaxed);
        }
        let wanted: BTreeSet<ResourceName> = node.resources.iter().map(|resource| resource.name.clone()).collect();
        self.node.send_replace(Arc::new(node));
        let gone: Vec<ResourceName> = self.plugins.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in gone {
            self.stop_plugin(&name).await;
        }
        for name in wanted {
            if !self.plugins.contains_key(&name) {
                let plugin = self.start_plugin(&name);
                self.plugins.insert(name, plugin);
            }
        }
        if !self.plugins.is_empty()
            && let Some(sender) = self.event_sender.take()
            && self.probed.as_ref().is_some_and(|probed| probed.platform == Platform::Nvml)
        {
            self.subscribe(sender)?;
        }
        Ok(())
    }

    fn subscribe(&self, sender: mpsc::UnboundedSender<HealthEvent>) -> Result<()> {
        let (source, resubscribe): (Arc<Source>, _) = (self.cx.hardware.clone(), self.resubscribe.clone());
        resubscribe.store(false, Ordering::Relaxed);
        health::subscribe(source, sender, resubscribe, self.edges.timing.max_backoff)
            .map_err(|source| Error::Io { what: "cannot start the GPU event thread".into(), source })
    }

    fn start_plugin(&self, name: &ResourceName) -> (CancellationToken, JoinHandle<()>) {
        let stop = self.cx.stop.child_token();
        let (node, kubelet) = (self.node.subscribe(), self.kubelet.subscribe());
        let serving = plugin::serve_and_register(name.clone(), self.sockets.clone(), node, kubelet, stop.clone());
        let failed = self.failed.0.clone();
        let serving = async move {
            if let Err(error) = serving.await {
                let _ = failed.send(error);
            }
        };
        let task = tokio::spawn(serving.with_current_subscriber());
        (stop, task)
    }

    async fn stop_plugin(&mut self, name: &ResourceName) {
        if let Some((stop, task)) = self.plugins.remove(name) {
            stop.cancel();
            let _ = task.await;
        }
    }

    async fn stop(&mut self) {
        for name in self.plugins.keys().cloned().collect::<Vec<_>>() {
            self.stop_plugin(&name).await;
        }
    }
}
