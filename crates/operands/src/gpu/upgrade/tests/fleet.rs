//! A fleet in virtual time: kubelets, DaemonSets, evictions and an operator that may die after any write.

use super::*;

/// What will happen on a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// How many pods of the new driver crash before one works.
    pub(super) crashes: u32,
    /// How many of them work and are not found valid.
    pub(super) invalid: u32,
    /// Whether the node is cordoned before.
    pub(super) cordoned: bool,
    /// Pods that use GPUs: how often their eviction is refused, and who brings them back.
    pub(super) pods: Vec<(u32, PodController)>,
    /// When the kubelet is away, in rounds.
    pub(super) away: std::ops::Range<u32>,
    /// In which round somebody uncordons it.
    pub(super) uncordoned: Option<u32>,
}

/// Writes that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) patches: usize,
    pub(super) evictions: usize,
    pub(super) deletions: usize,
}

pub(super) struct World {
    pub(super) machines: Vec<Machine>,
    fates: Vec<Fate>,
    pods: Vec<Vec<(PodOf, u32)>>,
    pub(super) now: i64,
    round: u32,
    made: usize,
    pub(super) writes: Writes,
    /// Most nodes under way, and out of use, at the same time.
    pub(super) peak: (usize, usize),
}

pub(super) const TICK: i64 = 10;

impl World {
    pub(super) fn new(fates: Vec<Fate>) -> Self {
        let machine = |(index, fate): (usize, &Fate)| {
            let machine = Machine::old(&format!("n{index:04}")).state(State::Done);
            machine.with(|machine| machine.unschedulable = fate.cordoned)
        };
        let pods = |(index, fate): (usize, &Fate)| {
            let pod = |(at, (refusals, controller)): (usize, &(u32, PodController))| {
                (PodOf { controller: *controller, ..PodOf::new(&format!("p{index}-{at}")) }, *refusals)
            };
            fate.pods.iter().enumerate().map(pod).collect()
        };
        Self {
            machines: fates.iter().enumerate().map(machine).collect(),
            pods: fates.iter().enumerate().map(pods).collect(),
            fates,
            now: NOW,
            round: 0,
            made: 0,
            writes: Writes::default(),
            peak: (0, 0),
        }
    }

    /// What the operator decides on what it sees.
    pub(super) fn decide(&mut self, settings: &Settings) -> Pass {
        for (machine, pods) in self.machines.iter_mut().zip(&self.pods) {
            let listed = || pods.iter().map(|(pod, _)| pod.clone()).collect();
            machine.pods = machine.current().needs_pods().then(listed);
        }
        pass(settings, &self.machines, self.now)
    }

    /// Does it, until the operator dies after `lives` writes.
    pub(super) fn act(&mut self, pass: &Pass, mut lives: usize) {
        let mut alive = || {
            let alive = lives > 0;
            lives = lives.saturating_sub(1);
            alive
        };
        for step in &pass.steps {
            let at = self.machines.iter().position(|machine| machine.name == step.node).unwrap();
            if !step.patch.is_empty() {
                if self.machines[at].version != step.resource_version || !alive() {
                    continue;
                }
                self.machines[at].apply(&step.patch);
                self.writes.patches += 1;
            }
            for evicted in &step.evict {
                if alive() {
                    self.writes.evictions += 1;
                    self.evict(at, &evicted.uid);
                }
            }
            let driver = self.machines[at].driver.as_mut();
            if let (Some(pod), Some(driver)) = (&step.delete_driver, driver)
                && driver.uid == pod.uid
                && alive()
            {
                self.writes.deletions += 1;
                driver.terminating = true;
            }
        }
        let under_way = self.machines.iter().filter(|machine| under_way(machine)).count();
        let out_of_use = self.machines.iter().filter(|machine| machine.unschedulable || !machine.ready).count();
        self.peak = (self.peak.0.max(under_way), self.peak.1.max(out_of_use));
    }

    fn evict(&mut self, at: usize, uid: &str) {
        for (pod, refusals) in self.pods[at].iter_mut().filter(|(pod, _)| pod.name == uid) {
            if *refusals > 0 {
                *refusals -= 1;
                pod.refused = Some("a disruption budget is in the way");
            } else {
                pod.terminating = true;
            }
        }
    }

    /// Time passes; false if nothing else happened.
    pub(super) fn tick(&mut self) -> bool {
        self.now += TICK;
        self.round += 1;
        let mut busy = false;
        for at in 0..self.machines.len() {
            busy |= self.tick_node(at);
        }
        busy
    }

    fn tick_node(&mut self, at: usize) -> bool {
        let (machine, fate) = (&mut self.machines[at], &mut self.fates[at]);
        if fate.uncordoned == Some(self.round) {
            machine.unschedulable = false;
        }
        let was_ready = std::mem::replace(&mut machine.ready, !fate.away.contains(&self.round));
        if !machine.ready {
            return true;
        }
        let mut busy = !was_ready || self.round < fate.away.end || fate.uncordoned.is_some_and(|at| self.round <= at);
        busy |= self.pods[at].iter().any(|(pod, _)| pod.terminating);
        self.pods[at].retain(|(pod, _)| !pod.terminating);
        if machine.driver.as_ref().is_some_and(|driver| driver.terminating) {
            machine.driver = None;
            machine.validators[0].1 = false;
            return true;
        }
        let Some(wanted) = &machine.wanted else { return busy };
        let Some(driver) = &mut machine.driver else {
            self.made += 1;
            let fresh = Machine::new(&machine.name).driver.unwrap();
            let (revision, digest) = (wanted.1.clone(), wanted.2.clone());
            machine.driver = Some(DriverOf {
                uid: format!("{}-{}", machine.name, self.made),
                revision,
                digest,
                ready: false,
                ..fresh
            });
            return true;
        };
        let new = driver.revision == "new";
        if !driver.ready {
            if new && fate.crashes > 0 {
                // Nobody waits for more than that.
                driver.restarts = (driver.restarts + 4).min(40);
                if driver.restarts == 40 {
                    return busy;
                }
            } else {
                driver.ready = true;
            }
            return true;
        }
        let valid = !new || fate.invalid == 0;
        if valid && !machine.validators[0].1 {
            machine.validators[0].1 = true;
            return true;
        }
        busy
    }

    /// A driver pod that did not work was replaced: the next one may.
    pub(super) fn clear_rejections(&mut self, pass: &Pass) {
        for step in pass.steps.iter().filter(|step| step.delete_driver.is_some()) {
            let at = self.machines.iter().position(|machine| machine.name == step.node).unwrap();
            let fate = &mut self.fates[at];
            if self.machines[at].driver.as_ref().is_some_and(|driver| driver.revision == "new") {
                if fate.crashes > 0 {
                    fate.crashes -= 1;
                } else {
                    fate.invalid = fate.invalid.saturating_sub(1);
                }
            }
        }
    }
}

/// Whether something is being done to a node.
pub(super) fn under_way(machine: &Machine) -> bool {
    !matches!(machine.current(), State::Unset | State::Done | State::Required | State::Failed)
}
