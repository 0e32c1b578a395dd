//! One operator on a control plane of its own, and what is measured of it.
//!
//! Several arenas take turns step by step: the machine is the same for all of them when it is busy with something else.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};

use super::audit::{Asked, Audit};
use super::cluster::{Cluster, FIRST, SECOND};
use super::report::Column;
use super::usage::{Usage, megabytes};
use crate::cluster::control_plane::{OPERATOR, Workloads};
use crate::cluster::{Process, until};

/// How long an operator may take to be ready.
const READY: Duration = Duration::from_secs(120);
/// Without a request for so long everything is done.
const CALM: Duration = Duration::from_secs(10);
/// How long until then.
const DEADLINE: Duration = Duration::from_secs(900);

/// Where operators and operands live.
pub(super) const NAMESPACE: &str = "default";

/// How `capstan` is called.
const OURS: &str = "operator --leader-elect --namespace=default --pod-name={name} --kubeconfig={kubeconfig} \
                    --health-probe-bind-address={health}";

/// An operator: its program, and how it is called.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) binary: PathBuf,
    pub(super) args: Option<String>,
}

impl Candidate {
    /// Words of its command line, with everything filled in.
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
    /// What was measured so far.
    pub(super) column: Column,
    /// The process that is measured.
    pub(super) pid: u32,
    candidate: Candidate,
    audit: Audit,
    began: Instant,
    at: SystemTime,
    cpu: f64,
}

impl Arena {
    /// A control plane, and the operator on it as soon as it is ready.
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
        let ready = until(READY, || process.check().is_err() || is_ready(health));
        process.check()?;
        ensure!(ready, "the operator is not ready after {} s: see {}", READY.as_secs(), process.log().display());
        process.pid().context("the operator has ended")
    }

    /// One of its processes.
    pub(super) fn process(&self, name: &str) -> Process {
        debug_assert!([FIRST, SECOND].contains(&name));
        Process::of(&self.cluster.home, name)
    }

    /// From here on time, work and requests count.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.audit.since()?;
        (self.began, self.at) = (Instant::now(), SystemTime::now());
        self.cpu = self.usage()?.cpu;
        Ok(())
    }

    /// The same for an operator that is not started yet: it has done nothing so far.
    pub(super) fn begin_anew(&mut self) -> Result<()> {
        self.audit.since()?;
        (self.began, self.at, self.cpu) = (Instant::now(), SystemTime::now(), 0.0);
        Ok(())
    }

    /// Seconds since then.
    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Seconds from then until the last request.
    pub(super) fn seconds_to_last(&self, asked: &Asked) -> f64 {
        let begin = jiff::Timestamp::try_from(self.at).unwrap_or_default();
        asked.last.map_or(0.0, |last| (last.as_millisecond() - begin.as_millisecond()) as f64 / 1e3)
    }

    /// Work since then, in seconds of a processor.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(self.usage()?.cpu - self.cpu)
    }

    /// Requests since then, or since the last time they were asked for.
    pub(super) fn asked(&mut self) -> Result<Asked> {
        self.audit.since()
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Waits until the operator asks nothing any more, and says what it has asked for until then.
    pub(super) async fn calm(&mut self) -> Result<Asked> {
        let (begin, mut asked) = (Instant::now(), self.asked()?);
        loop {
            tokio::time::sleep(CALM).await;
            let more = self.asked()?;
            if more.counts.is_empty() {
                return Ok(asked);
            }
            asked.add(more);
            ensure!(begin.elapsed() < DEADLINE, "the operator does not come to rest");
        }
    }

    /// Notes how much memory there is now.
    pub(super) fn note_memory(&mut self, when: &str) -> Result<()> {
        let usage = self.usage()?;
        self.column.detail(&format!("memory {when}"), "MB", megabytes(usage.resident));
        self.column.detail(&format!("memory {when}, its own"), "MB", megabytes(usage.own));
        Ok(())
    }

    /// Notes how much memory there was at most.
    pub(super) fn note_peak(&mut self) -> Result<()> {
        let peak = megabytes(self.usage()?.peak);
        self.column.main("memory at most", "MB", peak);
        Ok(())
    }

    /// Notes what was asked for and done while nothing changed.
    pub(super) fn note_idle(&mut self, seconds: u64) -> Result<()> {
        let (asked, cpu) = (self.asked()?, self.cpu()?);
        self.column.main(&format!("requests in {seconds} s without changes"), "", asked.total() as f64);
        self.column.detail(&format!("work in {seconds} s without changes"), "CPU s", cpu);
        self.column.asked("without changes", &asked);
        Ok(())
    }
}

/// What a scenario does with one arena: steps that all arenas take in turn, and pauses that they take together.
pub(super) trait Play {
    /// What is done, in this order.
    const STEPS: &'static [Step];
    fn arena(&mut self) -> &mut Arena;
    async fn step(&mut self, name: &'static str) -> Result<()>;
}

pub(super) enum Step {
    Do(&'static str),
    /// A while before anything is done; then memory is noted.
    Before,
    /// A while after everything is done, in which nothing changes: there is nothing to ask for and nothing to do.
    Idle,
}

/// Takes all steps, and says what was measured of each operator.
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
                        Usage::forget_peak(arena.pid)?;
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

/// Whether the operator says that it is ready.
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
