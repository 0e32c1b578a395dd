//! Container logs: the last lines of the current and the previous run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use capstan_apiserver::clock::Clock;
use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::serve::LogOptions;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use tokio::sync::watch;

/// Maximum lines kept of a run.
const MAX_LINES: usize = 2_000;
/// Maximum bytes kept of a run.
const MAX_BYTES: usize = 256 << 10;
/// Maximum lines and bytes of a log tail in the termination message, as in the kubelet.
const TAIL_LIMITS: (usize, usize) = (80, 2048);

/// The logs of all containers. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Logs {
    pods: Arc<Mutex<Pods>>,
}

/// By pod and container.
type Pods = HashMap<Arc<str>, HashMap<String, Record>>;

#[derive(Default)]
struct Record {
    current: Option<(u32, Arc<Log>)>,
    previous: Option<Arc<Log>>,
}

/// The log of one run of a container.
struct Log {
    lines: Mutex<Lines>,
    /// Incremented by each change; closed at the end of the run.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<(Timestamp, Bytes)>,
    bytes: usize,
    /// Number of dropped lines.
    dropped: usize,
    over: bool,
}

/// Log writer of a container.
#[derive(Clone)]
pub struct LogSink {
    log: Arc<Log>,
    clock: Clock,
}

impl LogSink {
    /// Writes one or more lines.
    pub fn line(&self, text: impl AsRef<str>) {
        let now = self.clock.now();
        let mut lines = self.log.lines();
        for line in text.as_ref().lines() {
            lines.push(now, Bytes::from(format!("{line}\n")));
        }
        drop(lines);
        self.log.changed.send_modify(|count| *count += 1);
    }
}

impl Log {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn close(&self) {
        if let Some((_, log)) = &self.current {
            log.lines().over = true;
            log.changed.send_modify(|count| *count += 1);
        }
    }
}

impl Lines {
    fn push(&mut self, at: Timestamp, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back((at, line));
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some((_, line)) = self.lines.pop_front() else { return };
            self.bytes -= line.len();
            self.dropped += 1;
        }
    }
}

impl Logs {
    /// The log of a run. A new run retains the log of the previous one.
    pub(super) fn sink(&self, pod: &Arc<str>, container: &str, run: u32, clock: Clock) -> LogSink {
        let mut pods = self.pods();
        let record = pods.entry(pod.clone()).or_default().entry(container.to_owned()).or_default();
        if record.current.as_ref().is_none_or(|(current, _)| *current != run) {
            let log = Arc::new(Log { lines: Mutex::default(), changed: watch::Sender::new(0) });
            record.previous = record.current.replace((run, log)).map(|(_, log)| log);
        }
        let (_, log) = record.current.as_ref().expect("set above");
        LogSink { log: log.clone(), clock }
    }

    /// Closes the log of a run: followers then reach its end.
    pub(super) fn close(&self, pod: &Arc<str>, container: &str) {
        let pods = self.pods();
        if let Some(record) = pods.get(pod).and_then(|containers| containers.get(container)) {
            record.close();
        }
    }

    /// Tail of the log of the current run, if there is one.
    pub(super) fn tail(&self, pod: &Arc<str>, container: &str) -> Option<Box<str>> {
        let pods = self.pods();
        let (_, log) = pods.get(pod)?.get(container)?.current.as_ref()?;
        let lines = log.lines();
        let last = lines.lines.iter().skip(lines.lines.len().saturating_sub(TAIL_LIMITS.0));
        let bytes = last.flat_map(|(_, line)| line.iter().copied()).collect::<Vec<u8>>();
        let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_LIMITS.1)..]).into_owned();
        (!end.is_empty()).then(|| end.into())
    }

    /// Number of pods with logs.
    pub(super) fn len(&self) -> usize {
        self.pods().len()
    }

    /// Drops the logs of a pod.
    pub(super) fn forget(&self, pod: &Arc<str>) {
        for record in self.pods().remove(pod).into_iter().flat_map(HashMap::into_values) {
            record.close();
        }
    }

    /// Reads a log. `runs`: number of starts of the container.
    pub(super) fn read(
        &self,
        pod: &Arc<str>,
        options: &LogOptions,
        runs: u32,
        now: Timestamp,
    ) -> Result<BoxStream<'static, Bytes>> {
        let container = &options.container;
        if runs == 0 || (options.previous && runs < 2) {
            let name = pod.rsplit_once('/').map_or(&**pod, |(_, name)| name);
            let message = if options.previous {
                format!("previous terminated container {container:?} in pod {name:?} not found")
            } else {
                format!("container {container:?} in pod {name:?} is waiting to start: ContainerCreating")
            };
            return Err(Status::bad_request(message));
        }
        let log = {
            let pods = self.pods();
            match pods.get(pod).and_then(|containers| containers.get(container)) {
                Some(record) if options.previous => record.previous.clone(),
                Some(record) => record.current.as_ref().map(|(_, log)| log.clone()),
                None => None,
            }
        };
        let Some(log) = log else { return Ok(stream::empty().boxed()) };
        let (text, next) = first_part(&log, options, now);
        let head = stream::iter((!text.is_empty()).then_some(text));
        if !options.follow || options.previous {
            return Ok(head.boxed());
        }
        Ok(head.chain(rest(log, next, options.timestamps)).boxed())
    }

    fn pods(&self) -> MutexGuard<'_, Pods> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The existing lines, and the index of the next one.
fn first_part(log: &Log, options: &LogOptions, now: Timestamp) -> (Bytes, usize) {
    let lines = log.lines();
    let since = options
        .since_seconds
        .map(|seconds| now.saturating_sub(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN));
    let since = since.max(options.since_time);
    let wanted: Vec<&(Timestamp, Bytes)> =
        lines.lines.iter().filter(|(at, _)| since.is_none_or(|since| *at >= since)).collect();
    let skip = options.tail_lines.map_or(0, |tail| wanted.len().saturating_sub(tail));
    let mut text = Vec::new();
    for (at, line) in &wanted[skip..] {
        write_line(&mut text, *at, line, options.timestamps);
    }
    if let Some(limit) = options.limit_bytes {
        text.truncate(limit);
    }
    (text.into(), lines.dropped + lines.lines.len())
}

/// Later lines, until the run ends.
fn rest(log: Arc<Log>, next: usize, timestamps: bool) -> impl futures::Stream<Item = Bytes> + Send + 'static {
    let changed = log.changed.subscribe();
    stream::unfold((log, changed, next), move |(log, mut changed, mut next)| async move {
        loop {
            let (text, over) = {
                let lines = log.lines();
                let skip = next.saturating_sub(lines.dropped);
                let mut text = Vec::new();
                for (at, line) in lines.lines.iter().skip(skip) {
                    write_line(&mut text, *at, line, timestamps);
                }
                next = lines.dropped + lines.lines.len();
                (text, lines.over)
            };
            if !text.is_empty() {
                return Some((Bytes::from(text), (log, changed, next)));
            }
            if over || changed.changed().await.is_err() {
                return None;
            }
        }
    })
}

fn write_line(text: &mut Vec<u8>, at: Timestamp, line: &[u8], timestamps: bool) {
    if timestamps {
        text.extend_from_slice(at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ ").to_string().as_bytes());
    }
    text.extend_from_slice(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: Vec<Bytes>) -> String {
        String::from_utf8(parts.concat()).unwrap()
    }

    async fn read(logs: &Logs, options: LogOptions, runs: u32) -> String {
        let now = "2025-01-01T00:00:10Z".parse().unwrap();
        let options = LogOptions { container: "c".into(), ..options };
        text(logs.read(&"ns/p".into(), &options, runs, now).unwrap().collect().await)
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_the_beginning_and_the_run_before() {
        let clock = Clock::starting_at("2025-01-01T00:00:00Z".parse().unwrap());
        let (logs, pod) = (Logs::default(), Arc::<str>::from("ns/p"));
        logs.sink(&pod, "c", 1, clock).line("first");
        tokio::time::advance(std::time::Duration::from_secs(8)).await;
        let sink = logs.sink(&pod, "c", 2, clock);
        sink.line("a\nb");
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        sink.line("c");
        let plain = LogOptions::default();
        assert_eq!(read(&logs, plain.clone(), 2).await, "a\nb\nc\n");
        assert_eq!(read(&logs, LogOptions { previous: true, ..plain.clone() }, 2).await, "first\n");
        assert_eq!(read(&logs, LogOptions { tail_lines: Some(1), ..plain.clone() }, 2).await, "c\n");
        assert_eq!(read(&logs, LogOptions { limit_bytes: Some(3), ..plain.clone() }, 2).await, "a\nb");
        assert_eq!(read(&logs, LogOptions { since_seconds: Some(1), ..plain.clone() }, 2).await, "c\n");
        let stamped = read(&logs, LogOptions { timestamps: true, tail_lines: Some(1), ..plain }, 2).await;
        assert_eq!(stamped, "2025-01-01T00:00:09.000000000Z c\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_followed_until_the_run_is_over() {
        let clock = Clock::starting_at("2025-01-01T00:00:00Z".parse().unwrap());
        let (logs, pod) = (Logs::default(), Arc::<str>::from("ns/p"));
        let sink = logs.sink(&pod, "c", 1, clock);
        sink.line("a");
        let options = LogOptions { container: "c".into(), follow: true, ..LogOptions::default() };
        let follower = logs.read(&pod, &options, 1, clock.now()).unwrap();
        let reader = tokio::spawn(follower.collect::<Vec<_>>());
        tokio::task::yield_now().await;
        sink.line("b");
        logs.close(&pod, "c");
        assert_eq!(text(reader.await.unwrap()), "a\nb\n");
    }

    #[tokio::test(start_paused = true)]
    async fn old_lines_are_dropped() {
        let clock = Clock::starting_at("2025-01-01T00:00:00Z".parse().unwrap());
        let (logs, pod) = (Logs::default(), Arc::<str>::from("ns/p"));
        let sink = logs.sink(&pod, "c", 1, clock);
        for i in 0..3_000 {
            sink.line(format!("{i}"));
        }
        let all = read(&logs, LogOptions::default(), 1).await;
        assert_eq!((all.lines().count(), all.lines().next()), (2_000, Some("1000")));
    }
}
