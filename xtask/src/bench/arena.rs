//! An operator on its own control plane, with its measurements.
//!
//! Several arenas take turns step by step, so that other load on the machine affects all of them alike.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};

use super::audit::{Audit, Requests};
use super::cluster::{Cluster, FIRST, SECOND};
use super::report::Column;
use super::usage::{Usage, megabytes};
use crate::cluster::control_plane::{OPERATOR, Workloads};
use crate::cluster::{Process, until};

/// Timeout until an operator is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Time without requests after which an operator counts as idle.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Timeout of that.
const DEADLINE: Duration = Duration::from_secs(900);

/// Namespace of operators and operands.
pub(super) const NAMESPACE: &str = "default";

/// Command line of `capstan`.
const OURS: &str = "operator --leader-elect --namespace=default --pod-name={name} --kubeconfig={kubeconfig} \
                    --health-probe-bind-address={health}";

/// An operator: its program and command line.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) binary: PathBuf,
    pub(super) args: Option<String>,
}

impl Candidate {
    /// Its arguments, with placeholders replaced.
    fn words(&self, kubeconfig: &Path, health: u16, name: &str) -> Vec<String> {
        let fill = |word: &str| {
            word.replace("{kubeconfig}", &kubeconfig.display().to_string())
                .replace("{health}", &format!("127.0.0.1:{health}"))
                .replace("{name}", name)
        };
        self.args.as_deref().unwrap_or(OURS).split_whitespace().map(fill).collect()
    }
}

pub(super) struct Arena {
    pub(super) cluster: Cluster,
    /// Measurements so far.
    pub(super) column: Column,
    /// The measured process.
    pub(super) pid: u32,
    candidate: Candidate,
    audit: Audit,
    began: Instant,
    at: SystemTime,
    cpu: f64,
}

impl Arena {
    /// Starts a control plane and the operator, and waits until it is ready.
    pub(super) async fn start(root: &Path, number: u16, candidate: &Candidate, workloads: Workloads) -> Result<Self> {
        let cluster = Cluster::start(root, number, workloads).await?;
        let mut arena = Self {
            audit: Audit::new(&cluster.home, OPERATOR)?,
            column: Column::named(&candidate.name),
            candidate: candidate.clone(),
            cluster,
            pid: 0,
            began: Instant::now(),
            at: SystemTime::now(),
            cpu: 0.0,
        };
        arena.pid = arena.launch(FIRST)?;
        Ok(arena)
    }

    /// Starts an operator and waits until it is ready.
    pub(super) fn launch(&self, name: &str) -> Result<u32> {
        let (process, health) = (self.process(name), self.cluster.health(name));
        let kubeconfig = self.cluster.home.join("operator.kubeconfig");
        let image = |name: &&str| ((*name).to_owned(), format!("example.com/{}:1", name.to_lowercase()));
        let mut variables: Vec<_> = capstan_operator::gpu::IMAGES.iter().map(image).collect();
        variables.push(("KUBECONFIG".into(), kubeconfig.display().to_string()));
        variables.push(("OPERATOR_NAMESPACE".into(), NAMESPACE.into()));
        process.start_in(&self.candidate.binary, &self.candidate.words(&kubeconfig, health, name), &variables)?;
        let ready = until(READY_TIMEOUT, || process.check().is_err() || is_ready(health));
        process.check()?;
        ensure!(
            ready,
            "the operator is not ready after {} s: see {}",
            READY_TIMEOUT.as_secs(),
            process.log().display()
        );
        process.pid().context("the operator has ended")
    }

    /// One of its processes.
    pub(super) fn process(&self, name: &str) -> Process {
        debug_assert!([FIRST, SECOND].contains(&name));
        Process::of(&self.cluster.home, name)
    }

    /// Starts the measurement of time, CPU and requests.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.audit.since()?;
        (self.began, self.at) = (Instant::now(), SystemTime::now());
        self.cpu = self.usage()?.cpu;
        Ok(())
    }

    /// The same for an operator that is not started yet.
    pub(super) fn begin_before_start(&mut self) -> Result<()> {
        self.audit.since()?;
        (self.began, self.at, self.cpu) = (Instant::now(), SystemTime::now(), 0.0);
        Ok(())
    }

    /// Seconds since the start of the measurement.
    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Seconds from the start of the measurement to the last request.
    pub(super) fn seconds_to_last(&self, requests: &Requests) -> f64 {
        let begin = jiff::Timestamp::try_from(self.at).unwrap_or_default();
        requests.last.map_or(0.0, |last| (last.as_millisecond() - begin.as_millisecond()) as f64 / 1e3)
    }

    /// CPU seconds since the start of the measurement.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(self.usage()?.cpu - self.cpu)
    }

    /// Requests since the last call.
    pub(super) fn take_requests(&mut self) -> Result<Requests> {
        self.audit.since()
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Waits until the operator sends no requests, and returns those sent until then.
    pub(super) async fn wait_until_idle(&mut self) -> Result<Requests> {
        let (begin, mut requests) = (Instant::now(), self.take_requests()?);
        loop {
            tokio::time::sleep(IDLE_TIME).await;
            let more = self.take_requests()?;
            if more.counts.is_empty() {
                return Ok(requests);
            }
            requests.add(more);
            ensure!(begin.elapsed() < DEADLINE, "the operator does not come to rest");
        }
    }

    /// Records the current memory.
    pub(super) fn note_memory(&mut self, when: &str) -> Result<()> {
        let usage = self.usage()?;
        self.column.detail(&format!("memory {when}"), "MB", megabytes(usage.resident));
        self.column.detail(&format!("memory {when}, its own"), "MB", megabytes(usage.own));
        Ok(())
    }

    /// Records the peak memory.
    pub(super) fn note_peak(&mut self) -> Result<()> {
        let peak = megabytes(self.usage()?.peak);
        self.column.main("memory at most", "MB", peak);
        Ok(())
    }

    /// Records requests and CPU while nothing changed.
    pub(super) fn note_idle(&mut self, seconds: u64) -> Result<()> {
        let (requests, cpu) = (self.take_requests()?, self.cpu()?);
        self.column.main(&format!("requests in {seconds} s without changes"), "", requests.total() as f64);
        self.column.detail(&format!("work in {seconds} s without changes"), "CPU s", cpu);
        self.column.requests("without changes", &requests);
        Ok(())
    }
}

/// Steps of a scenario in one arena: all arenas take them in turn, and pause together.
pub(super) trait Play {
    /// The steps, in order.
    const STEPS: &'static [Step];
    fn arena(&mut self) -> &mut Arena;
    async fn step(&mut self, name: &'static str) -> Result<()>;
}

pub(super) enum Step {
    Do(&'static str),
    /// An idle period before any work; then memory is recorded.
    Before,
    /// An idle period after all work: the operator should send nothing.
    Idle,
}

/// Runs all steps, and returns the measurements of each operator.
pub(super) async fn play<P: Play>(mut plays: Vec<P>, idle: u64) -> Result<Vec<Column>> {
    for step in P::STEPS {
        match step {
            Step::Do(name) => {
                for play in &mut plays {
                    let who = play.arena().column.name.clone();
                    eprintln!("{who}: {name}");
                    play.step(name).await.with_context(|| format!("{who}: {name}"))?;
                }
            }
            Step::Before | Step::Idle => {
                eprintln!("all: nothing for {idle} s");
                plays.iter_mut().try_for_each(|play| play.arena().begin())?;
                tokio::time::sleep(Duration::from_secs(idle)).await;
                for arena in plays.iter_mut().map(Play::arena) {
                    if matches!(step, Step::Before) {
                        let start = megabytes(arena.usage()?.peak);
                        arena.column.detail("memory at most at the start", "MB", start);
                        arena.note_memory("before")?;
                        Usage::reset_peak(arena.pid)?;
                    } else {
                        arena.note_idle(idle)?;
                        arena.note_memory("after")?;
                    }
                }
            }
        }
    }
    let column = |play: &mut P| play.arena().note_peak().map(|()| play.arena().column.clone());
    plays.iter_mut().map(column).collect()
}

/// Whether `/readyz` succeeds.
fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_line_are_filled_in() {
        let args = Some("manager --kubeconfig={kubeconfig} --health-probe-bind-address={health}".to_owned());
        let other = Candidate { name: "other".into(), binary: "other".into(), args };
        let words = other.words(Path::new("/x/config"), 8201, FIRST);
        assert_eq!(words, ["manager", "--kubeconfig=/x/config", "--health-probe-bind-address=127.0.0.1:8201"]);
    }
}
