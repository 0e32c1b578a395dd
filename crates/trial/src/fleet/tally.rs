//! Counts of a fleet, updated on every node change: polling thousands of nodes would cost more than simulating them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_operands::gpu::upgrade::keys;
use capstan_sim::Cluster;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use tokio::time::Instant;

/// Shares of upgraded nodes that get a line in the timeline, in percent.
const MILESTONES: [usize; 6] = [1, 10, 25, 50, 75, 90];

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEntry {
    /// Seconds since the start of the scenario.
    pub after: u64,
    /// Description.
    pub what: String,
}

/// A sample of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Seconds since the start of the scenario.
    pub after: u64,
    /// Nodes with allocatable GPUs that are schedulable.
    pub serving: usize,
    /// Cordoned nodes.
    pub cordoned: usize,
    /// Nodes with the desired driver, after an upgrade.
    pub done: usize,
    /// Nodes whose upgrade failed.
    pub failed: usize,
}

/// Counts of a fleet. Clones share one state.
#[derive(Clone)]
pub(super) struct Tally {
    state: Arc<Mutex<State>>,
}

struct State {
    begin: Instant,
    total: usize,
    now: Sample,
    /// Maximum of cordoned nodes.
    most: usize,
    /// Time of the last change of the counts.
    since: Instant,
    lost: Duration,
    gpus_lost: Duration,
    /// GPUs of nodes that do not serve.
    gpus_away: usize,
    /// Total time with cordoned nodes, and their number.
    busy: Duration,
    cordoned: Duration,
    milestones: Vec<usize>,
    timeline: Vec<TimelineEntry>,
    samples: Vec<Sample>,
}

/// Counted properties of one node.
#[derive(Clone, Copy, Default)]
struct NodeCounts {
    known: usize,
    serving: usize,
    cordoned: usize,
    done: usize,
    failed: usize,
    gpus_away: usize,
}

impl Tally {
    /// Watches the nodes of a cluster.
    pub(super) fn watch(cluster: &Cluster) -> Self {
        let now = Instant::now();
        let state = State {
            begin: now,
            total: 0,
            now: Sample::default(),
            most: 0,
            since: now,
            lost: Duration::ZERO,
            gpus_lost: Duration::ZERO,
            gpus_away: 0,
            busy: Duration::ZERO,
            cordoned: Duration::ZERO,
            milestones: MILESTONES.to_vec(),
            timeline: Vec::new(),
            samples: Vec::new(),
        };
        let tally = Self { state: Arc::new(Mutex::new(state)) };
        let counted = tally.clone();
        cluster.context().caches.nodes.subscribe(move |change| {
            let count = |node: Option<&Arc<Node>>| node.map_or(NodeCounts::default(), |node| node_counts(node));
            counted.lock().change(count(change.old), count(change.new));
        });
        tally
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the counts at the start of the scenario. Without an upgrade, no upgrade milestones are recorded.
    pub(super) fn begin(&self, upgrades: bool) {
        let mut state = self.lock();
        let now = Instant::now();
        (state.begin, state.since) = (now, now);
        (state.lost, state.gpus_lost, state.busy, state.cordoned) = Default::default();
        state.most = state.now.cordoned;
        state.milestones = if upgrades { MILESTONES.to_vec() } else { Vec::new() };
        state.timeline.clear();
        state.samples.clear();
    }

    /// Adds an entry to the timeline.
    pub(super) fn note(&self, what: impl Into<String>) {
        self.lock().note(what.into());
    }

    /// Records a sample.
    pub(super) fn sample(&self) {
        let mut state = self.lock();
        state.add_elapsed();
        let sample = Sample { after: state.begin.elapsed().as_secs(), ..state.now };
        state.samples.push(sample);
    }

    /// Number of nodes.
    pub(super) fn total(&self) -> usize {
        self.lock().total
    }

    /// Results.
    pub(super) fn result(&self) -> Counted {
        let mut state = self.lock();
        state.add_elapsed();
        let hours = |time: Duration| time.as_secs_f64() / 3600.0;
        let mean = state.cordoned.as_secs_f64() / state.busy.as_secs_f64().max(1.0);
        Counted {
            nodes: state.total,
            end: state.now,
            most: state.most,
            mean,
            node_hours: hours(state.lost),
            gpu_hours: hours(state.gpus_lost),
            timeline: state.timeline.clone(),
            samples: state.samples.clone(),
        }
    }
}

/// Results since the start of the scenario.
pub(super) struct Counted {
    pub(super) nodes: usize,
    pub(super) end: Sample,
    /// Maximum of cordoned nodes.
    pub(super) most: usize,
    /// Their mean, while there were any.
    pub(super) mean: f64,
    /// Total node hours without service.
    pub(super) node_hours: f64,
    /// The same in GPU hours.
    pub(super) gpu_hours: f64,
    pub(super) timeline: Vec<TimelineEntry>,
    pub(super) samples: Vec<Sample>,
}

impl State {
    /// Adds the time since the last change.
    fn add_elapsed(&mut self) {
        let now = Instant::now();
        let time = now - self.since;
        self.since = now;
        if time.is_zero() {
            return;
        }
        let times = |count: usize| time.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self.lost += times(self.total - self.now.serving);
        self.gpus_lost += times(self.gpus_away);
        if self.now.cordoned > 0 {
            self.busy += time;
            self.cordoned += times(self.now.cordoned);
        }
    }

    fn change(&mut self, old: NodeCounts, new: NodeCounts) {
        self.add_elapsed();
        let turn = |count: &mut usize, old: usize, new: usize| *count = *count + new - old;
        turn(&mut self.total, old.known, new.known);
        turn(&mut self.gpus_away, old.gpus_away, new.gpus_away);
        let first_failure = self.now.failed == 0 && new.failed > 0;
        turn(&mut self.now.serving, old.serving, new.serving);
        turn(&mut self.now.cordoned, old.cordoned, new.cordoned);
        turn(&mut self.now.done, old.done, new.done);
        turn(&mut self.now.failed, old.failed, new.failed);
        self.most = self.most.max(self.now.cordoned);
        if first_failure && old.failed == 0 {
            self.note("the upgrade of a first node failed".into());
        }
        if new.done > old.done {
            let passed = self.milestones.iter().take_while(|percent| self.now.done * 100 >= **percent * self.total);
            let passed = passed.count();
            let last = self.milestones.drain(..passed).next_back();
            if let Some(percent) = last {
                self.note(format!("{percent} % of the nodes are upgraded"));
            }
        }
    }

    fn note(&mut self, what: String) {
        let after = self.begin.elapsed().as_secs();
        self.timeline.push(TimelineEntry { after, what });
    }
}

fn node_counts(node: &Node) -> NodeCounts {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let number = |text: &str| text.parse::<usize>().unwrap_or(0);
    let status = node.status.as_ref();
    let offered = status.and_then(|status| status.allocatable.as_ref()?.get("nvidia.com/gpu"));
    let offers = offered.map_or(0, |offered| number(&offered.0));
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let serving = ready && !cordoned && offers > 0;
    let state = label(keys::STATE).unwrap_or_default();
    let hardware = label(capstan_gpu_sim::HARDWARE).map_or(0, number);
    NodeCounts {
        known: 1,
        serving: usize::from(serving),
        cordoned: usize::from(cordoned),
        done: usize::from(state == "upgrade-done"),
        failed: usize::from(state == "upgrade-failed"),
        gpus_away: if serving { 0 } else { hardware },
    }
}
