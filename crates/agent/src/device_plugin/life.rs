//! The plugin's life: waits for anything that may change what is offered, looks, decides and publishes.
//!
//! One turn of the loop listens first and looks afterwards, so that nothing that happens in between is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_hw::gpu::nvidia::{EventKind, Inventory, Source, Topology};
use capstan_kubelet::device_plugin::DIRECTORY;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber;

use super::choose::{Fallback, choose, configs};
use super::devices::offer;
use super::health::{self, Cause, HealthEvent, UnhealthyDevice, UnhealthyDevices, Xids};
use super::platform::Platform;
use super::plugin::{self, Place};
use super::probe::{self, Found, ProbeResult, WatchedFiles};
use super::{Edges, Label, Node, Options, Settings, Wanted};
use crate::config::{self, Flags, ResourceName, SharingStrategy};
use crate::files::Changes;
use crate::{Cx, Error, Result, mps};

/// For as long as nothing happens.
const EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Why a turn is taken.
enum Wake {
    Start,
    Files,
    Tick,
    Reload,
    HealthEvent(HealthEvent),
}

struct Life {
    options: Options,
    said: Flags,
    fallbacks: Vec<Fallback>,
    xids: Xids,
    cx: Cx,
    edges: Edges,
    place: Place,
    text: String,
    node: watch::Sender<Arc<Node>>,
    kubelet: watch::Sender<u64>,
    plugins: BTreeMap<ResourceName, (CancellationToken, JoinHandle<()>)>,
    failed: (mpsc::UnboundedSender<Error>, mpsc::UnboundedReceiver<Error>),
    heard: Option<mpsc::UnboundedSender<HealthEvent>>,
    listen_again: Arc<AtomicBool>,
    seen: WatchedFiles,
    found: Option<Found>,
}

/// Offers the node's GPUs until told to stop.
pub(super) async fn run(options: Options, cx: Cx, mut edges: Edges) -> Result<()> {
    let known = edges.label.wait_for(|label| *label != Label::Unknown);
    tokio::select! {
        () = cx.stop.cancelled() => return Ok(()),
        known = known => drop(known),
    }
    let (heard_in, mut heard) = mpsc::unbounded_channel();
    let mut life = Life::new(options, cx, edges, heard_in)?;
    let mut label = life.edges.label.clone();
    let mut hangup = signal(SignalKind::hangup()).map_err(|source| Error::Io { what: "SIGHUP".into(), source })?;
    let mut tick = tokio::time::interval(life.edges.timing.recheck);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wake = Wake::Start;
    let ended = loop {
        let (mut changes, mut nodes) = life.changes();
        if let Err(error) = life.turn(wake).await {
            break Err(error);
        }
        let well_again = life.well_again();
        wake = tokio::select! {
            () = life.cx.stop.cancelled() => break Ok(()),
            Some(error) = life.failed.1.recv() => break Err(error),
            Some(heard) = heard.recv() => Wake::HealthEvent(heard),
            Ok(()) = label.changed() => Wake::Reload,
            _ = hangup.recv() => Wake::Reload,
            () = changes.next(EVER) => Wake::Files,
            () = nodes.next(EVER) => Wake::Files,
            _ = tick.tick() => Wake::Tick,
            () = tokio::time::sleep_until(well_again) => Wake::Tick,
        };
    };
    life.stop().await;
    ended
}

impl Life {
    fn new(options: Options, cx: Cx, edges: Edges, heard: mpsc::UnboundedSender<HealthEvent>) -> Result<Self> {
        let said = options.flags()?;
        let fallbacks = Fallback::parse(&options.fallback_strategies)?;
        let of = |list: &Option<String>| list.clone().unwrap_or_default();
        let (xids, unknown) = Xids::parse(&of(&options.disable_healthchecks), &of(&options.enable_healthchecks));
        for word in unknown {
            tracing::warn!(word, "XID not a number or 'all'; ignored");
        }
        let kubelet = Some(PathBuf::from(&options.kubelet_socket)).filter(|path| !path.as_os_str().is_empty());
        let dir = kubelet.as_deref().and_then(Path::parent).unwrap_or(Path::new(DIRECTORY)).to_owned();
        let settings = Settings::resolve(said.clone(), config::Config::default())?;
        let node = Node {
            roots: cx.roots.clone(),
            settings,
            resources: Vec::new(),
            topology: Topology::default(),
            sick: UnhealthyDevices::new(),
            channels: Vec::new(),
            classes: Vec::new(),
        };
        Ok(Self {
            said,
            fallbacks,
            place: Place { dir, kubelet, retry: edges.timing.retry },
            text: String::new(),
            node: watch::Sender::new(Arc::new(node)),
            kubelet: watch::Sender::new(0),
            plugins: BTreeMap::new(),
            failed: mpsc::unbounded_channel(),
            heard: (xids != Xids::Off).then_some(heard),
            listen_again: Arc::default(),
            seen: WatchedFiles::default(),
            found: None,
            options,
            xids,
            cx,
            edges,
        })
    }

    /// One turn: look at what may have changed, decide, publish.
    async fn turn(&mut self, wake: Wake) -> Result<()> {
        let start = matches!(wake, Wake::Start);
        let mut node = Node::clone(&self.node.borrow());
        let seen = WatchedFiles::read(&node, &self.place, &self.cx.root);
        let text = self.config_text()?;
        let reload = start || matches!(wake, Wake::Reload) || text != self.text;
        if reload {
            (node.settings, self.text) = (self.load(&text)?, text);
            node.roots = probe::roots(&self.cx.roots, &node.settings);
        }
        let mut ask = matches!(wake, Wake::Tick);
        let mut look = reload || ask || self.found.is_none() || seen.nodes != self.seen.nodes;
        if let Wake::HealthEvent(heard) = wake {
            let again = self.hear(heard, &mut node);
            (ask, look) = (ask || again, look || again);
        }
        if look {
            let known = self.found.as_ref().map(|found| found.inventory.clone());
            let looked = probe::probe(&self.cx, &node, known, ask).await;
            self.decide(looked, &mut node, reload).await?;
        }
        if reload || ask || seen.started != self.seen.started {
            self.check_mps(&mut node).await;
        }
        let kubelet_started = !start && seen.kubelet.is_some() && seen.kubelet != self.seen.kubelet;
        self.seen = seen;
        self.publish(node).await?;
        if kubelet_started {
            self.kubelet.send_modify(|starts| *starts += 1);
        }
        Ok(())
    }

    /// When a device may be well again, if no fault comes until then.
    fn well_again(&self) -> Instant {
        let (now, quiet) = (Instant::now(), self.edges.timing.quiet);
        let node = self.node.borrow();
        // One whose time has come and that is not well is looked at with the others.
        let times = node.sick.values().map(|sick| sick.since + quiet).filter(|time| *time > now);
        times.min().unwrap_or(now + EVER)
    }

    /// Listens wherever something may happen: to files, and to device nodes.
    fn changes(&self) -> (Changes, Changes) {
        let node = self.node.borrow();
        let dev = node.roots.dev_here.join("dev");
        let nodes = [dev.join("nvidia-caps"), dev.join("nvidia-caps-imex-channels"), dev];
        let shared = node.resources.iter().filter(|resource| resource.sharing == SharingStrategy::Mps);
        let mut dirs: Vec<PathBuf> = shared
            .map(|resource| mps::directory(&self.cx.root, &resource.name))
            .chain([self.place.dir.clone()])
            .collect();
        dirs.extend(self.options.config_file_srcdir.clone());
        dirs.extend(self.options.config_file.as_deref().and_then(Path::parent).map(Path::to_owned));
        let dirs: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
        (Changes::of(&dirs), Changes::of_names(&nodes.each_ref().map(PathBuf::as_path)))
    }

    /// The text of the config that this node has now.
    fn config_text(&self) -> Result<String> {
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
        for remark in parsed.remarks {
            tracing::warn!(remark, "config remark");
        }
        Ok(Settings::resolve(self.said.clone(), parsed.config)?)
    }

    /// Takes in what the listener heard; whether the hardware should be looked at.
    fn hear(&self, heard: HealthEvent, node: &mut Node) -> bool {
        let now = Instant::now();
        let mut mark = |id: &str, cause: Cause| {
            node.sick.insert(id.to_owned(), UnhealthyDevice { cause, since: now });
        };
        match heard {
            HealthEvent::Event(event) => {
                if let Some(cause) = health::verdict(&event, &self.xids) {
                    health::affected(&event, &node.resources).into_iter().for_each(|id| mark(id, cause.clone()));
                }
                event.kind == EventKind::DoubleBitEcc
            }
            HealthEvent::Down(error) => {
                let fit: Vec<String> = health::all(&node.resources).map(|device| device.id.clone()).collect();
                let fit: Vec<String> = fit.into_iter().filter(|id| !node.sick.contains_key(id)).collect();
                for id in fit {
                    node.sick.insert(id, UnhealthyDevice { cause: Cause::Driver(error.to_string()), since: now });
                }
                false
            }
            HealthEvent::Listening(refused, silent) => {
                for gpu in silent {
                    tracing::warn!(gpu, "GPU events not supported; health not monitored");
                }
                let was_down = node.sick.values().any(|sick| matches!(sick.cause, Cause::Driver(_)));
                node.sick.retain(|_, sick| !matches!(sick.cause, Cause::Driver(_)));
                for (gpu, error) in refused {
                    let cause = match error {
                        capstan_hw::Error::Lost => Cause::Lost,
                        other => Cause::Refused(other.to_string()),
                    };
                    let of_gpu = health::all(&node.resources).filter(|device| device.gpu == gpu);
                    let ids: Vec<String> = of_gpu.map(|device| device.id.clone()).collect();
                    for id in ids {
                        node.sick.insert(id, UnhealthyDevice { cause: cause.clone(), since: now });
                    }
                }
                was_down
            }
        }
    }

    /// Decides what is offered from what was found.
    async fn decide(&mut self, looked: ProbeResult, node: &mut Node, reload: bool) -> Result<()> {
        let (found, conditions) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                self.cx.hardware.forget();
                if self.found.is_none() && node.settings.fail_on_init_error {
                    return Err(error.into());
                }
                tracing::warn!(%error, "GPUs not readable; retrying");
                return Ok(());
            }
        };
        let before = self.found.as_ref().map(|found| (found.platform, &found.inventory));
        let changed = before != Some((found.platform, &found.inventory));
        node.topology = found.topology.clone();
        let lost: Vec<String> = found.inventory.lost.iter().filter_map(|lost| lost.uuid.clone()).collect();
        self.found = Some(found);
        if changed || reload {
            self.listen_again.store(true, Ordering::Relaxed);
            self.build(node, reload).await?;
        }
        for id in lost.into_iter().filter(|id| health::all(&node.resources).any(|device| device.id == *id)) {
            node.sick.entry(id).or_insert(UnhealthyDevice { cause: Cause::Lost, since: Instant::now() });
        }
        if !conditions.is_empty() && self.xids != Xids::Off {
            let quiet = self.edges.timing.quiet;
            node.sick = health::judge(&node.sick, &node.resources, &conditions, Instant::now(), quiet);
        }
        Ok(())
    }

    /// Decides which resources there are. A layout that does not fit is the user's mistake at the start or when the
    /// config changed; later it may be one that someone is still working on.
    async fn build(&self, node: &mut Node, strict: bool) -> Result<()> {
        let Some(found) = &self.found else { return Ok(()) };
        let offered = offer(found.platform, &found.inventory, &node.settings, &found.kernel);
        let offered = match offered {
            Err(wrong) if strict => return Err(wrong.into()),
            Err(wrong) => {
                tracing::error!(error = %wrong, "config does not match the hardware; no devices advertised");
                super::Offer::default()
            }
            Ok(offered) => offered,
        };
        for remark in offered.remarks {
            tracing::warn!(remark, "device remark");
        }
        if offered.resources.is_empty() {
            tracing::info!("no devices to advertise; waiting");
        }
        node.resources = offered.resources;
        node.sick.retain(|id, _| health::all(&node.resources).any(|device| device.id == *id));
        node.channels = probe::channels(node, &self.cx.root)?;
        if node.settings.cdi() && found.platform == Platform::Nvml {
            node.classes = self.write_specs(node, &found.inventory).await?;
        }
        Ok(())
    }

    async fn write_specs(&self, node: &Node, inventory: &Inventory) -> Result<Vec<String>> {
        let (cdi, root, inventory) = (self.edges.cdi.clone(), self.cx.root.clone(), inventory.clone());
        let (settings, roots, channels) = (node.settings.clone(), node.roots.clone(), node.channels.clone());
        let written = tokio::task::spawn_blocking(move || {
            let wanted =
                Wanted { inventory: &inventory, settings: &settings, roots: &roots, root: &root, channels: &channels };
            cdi.write(&wanted)
        });
        written.await.unwrap_or_else(|error| Err(Error::Outside(error.to_string())))
    }

    /// Devices that are shared by a daemon are fit only while it answers.
    async fn check_mps(&self, node: &mut Node) {
        let shared = node.resources.iter().filter(|resource| resource.sharing == SharingStrategy::Mps);
        for resource in shared.cloned().collect::<Vec<_>>() {
            let answer = mps::answers(&self.cx.root, &node.roots, &resource.name).await;
            for device in &resource.devices {
                let before = node.sick.get(&device.id).map(|sick| &sick.cause);
                match (&answer, before) {
                    (Ok(()), Some(Cause::Mps(_))) => drop(node.sick.remove(&device.id)),
                    (Err(why), None | Some(Cause::Mps(_))) => {
                        let sick = UnhealthyDevice { cause: Cause::Mps(why.clone()), since: Instant::now() };
                        node.sick.insert(device.id.clone(), sick);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Lets everyone see the node as it is now, and has a plugin for each resource.
    async fn publish(&mut self, node: Node) -> Result<()> {
        let before = self.node.borrow().clone();
        for (id, sick) in node.sick.iter().filter(|(id, _)| !before.sick.contains_key(*id)) {
            tracing::warn!(device = id, cause = %sick.cause, "device unhealthy");
        }
        for id in before.sick.keys().filter(|id| !node.sick.contains_key(*id)) {
            tracing::info!(device = id, "device healthy again");
            self.listen_again.store(true, Ordering::Relaxed);
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
            && let Some(heard) = self.heard.take()
            && self.found.as_ref().is_some_and(|found| found.platform == Platform::Nvml)
        {
            self.listen(heard)?;
        }
        Ok(())
    }

    fn listen(&self, heard: mpsc::UnboundedSender<HealthEvent>) -> Result<()> {
        let (source, again): (Arc<Source>, _) = (self.cx.hardware.clone(), self.listen_again.clone());
        again.store(false, Ordering::Relaxed);
        health::listen(source, heard, again, self.edges.timing.retry)
            .map_err(|source| Error::Io { what: "cannot start to listen for faults".into(), source })
    }

    fn start_plugin(&self, name: &ResourceName) -> (CancellationToken, JoinHandle<()>) {
        let stop = self.cx.stop.child_token();
        let (node, kubelet) = (self.node.subscribe(), self.kubelet.subscribe());
        let kept = plugin::keep(name.clone(), self.place.clone(), node, kubelet, stop.clone());
        let failed = self.failed.0.clone();
        let kept = async move {
            if let Err(error) = kept.await {
                let _ = failed.send(error);
            }
        };
        let task = tokio::spawn(kept.with_current_subscriber());
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
