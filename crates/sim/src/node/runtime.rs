//! Node endpoints of the API: logs and `exec`.

use std::sync::Arc;

use bytes::Bytes;
use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::serve::{ExecOptions, LogOptions, Runtime, Streams};
use capstan_apiserver::store::Object;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::AsyncWriteExt;

use super::behaviour::glob;
use super::kubelet::position;
use super::lifecycle::Stage;
use super::nodes::{Nodes, lock};

/// Result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code.
    pub code: i32,
}

impl Runtime for Nodes {
    fn logs<'a>(&'a self, pod: &'a Object, options: LogOptions) -> BoxFuture<'a, Result<BoxStream<'static, Bytes>>> {
        Box::pin(async move {
            let runs = self.runs(pod.key(), &options.container).0;
            self.inner.logs.read(pod.key(), &options, runs, self.inner.context.clock().now())
        })
    }

    fn exec<'a>(&'a self, pod: &'a Object, options: ExecOptions, mut streams: Streams) -> BoxFuture<'a, Result<i32>> {
        Box::pin(async move {
            let done = self.execute(pod.namespace(), pod.name(), &options.container, &options.command)?;
            // A disconnected client does not read; the command has run all the same.
            let _ = streams.stdout.write_all(done.stdout.as_bytes()).await;
            let _ = streams.stderr.write_all(done.stderr.as_bytes()).await;
            Ok(done.code)
        })
    }

    fn attach<'a>(&'a self, pod: &'a Object, options: ExecOptions, mut streams: Streams) -> BoxFuture<'a, Result<i32>> {
        Box::pin(async move {
            let (runs, running) = self.runs(pod.key(), &options.container);
            if !running {
                return Err(no_container(&options.container));
            }
            let now = self.inner.context.clock().now();
            let wanted = LogOptions { container: options.container, follow: true, ..LogOptions::default() };
            let mut log = self.inner.logs.read(pod.key(), &wanted, runs, now)?;
            while let Some(part) = log.next().await {
                if streams.stdout.write_all(&part).await.is_err() {
                    break;
                }
            }
            Ok(0)
        })
    }
}

fn no_container(name: &str) -> Status {
    Status::internal(format!("unable to upgrade connection: container not found ({name:?})"))
}

impl Nodes {
    /// Executes a command in a container: rules define its output.
    pub fn execute(&self, namespace: &str, pod: &str, container: &str, command: &[String]) -> Result<Executed> {
        let key: Arc<str> = format!("{namespace}/{pod}").into();
        let (_, running) = self.runs(&key, container);
        if !running {
            return Err(no_container(container));
        }
        let object = self.inner.context.caches.pods.get(&key);
        let spec = object.as_ref().and_then(|pod| pod.spec.as_deref());
        let mut containers = spec.into_iter().flat_map(super::lifecycle::containers);
        let found = object.as_ref().zip(containers.find(|(_, c)| c.name == container));
        let behaviour = found.map(|(pod, (_, container))| self.inner.rules.behaviour(pod, &container));
        let line = command.join(" ");
        let answers = behaviour.map(|behaviour| behaviour.commands).unwrap_or_default();
        let answer = answers.into_iter().find(|answer| glob(&answer.pattern, &line));
        Ok(match answer {
            Some(answer) => Executed { stdout: answer.stdout, stderr: answer.stderr, code: answer.code },
            None => {
                let name = command.first().cloned().unwrap_or_default();
                let stderr = format!("exec: {name:?}: executable file not found in $PATH\n");
                Executed { stdout: String::new(), stderr, code: 127 }
            }
        })
    }

    /// Number of starts of a container, and whether it runs.
    fn runs(&self, key: &Arc<str>, container: &str) -> (u32, bool) {
        let pod = self.inner.context.caches.pods.get(key);
        let at = pod.as_ref().and_then(|pod| position(pod, container));
        let tracked = self.inner.tracked(key);
        let (Some(at), Some(tracked)) = (at, tracked) else { return (0, false) };
        let tracked = lock(&tracked);
        let slot = tracked.machine.slots.get(at);
        slot.map_or((0, false), |slot| (slot.runs, matches!(slot.stage, Stage::Running(_))))
    }
}
