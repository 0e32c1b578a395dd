//! What the API asks nodes for: logs, and commands that are executed in containers.

use std::sync::Arc;

use bytes::Bytes;
use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::serve::{LogOptions, Runtime};
use capstan_apiserver::store::Object;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::behaviour::glob;
use super::kubelet::position;
use super::lifecycle::Stage;
use super::nodes::{Nodes, lock};

/// What came of a command.
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
            let runs = self.runs(pod.key(), &options.container)?.0;
            self.inner.logs.read(pod.key(), &options, runs, self.inner.context.clock().now())
        })
    }
}

impl Nodes {
    /// Executes a command in a container: the rules say what it answers.
    pub fn execute(&self, namespace: &str, pod: &str, container: &str, command: &[String]) -> Result<Executed> {
        let key: Arc<str> = format!("{namespace}/{pod}").into();
        let (_, running) = self.runs(&key, container)?;
        if !running {
            return Err(Status::internal(format!("unable to upgrade connection: container not found ({container:?})")));
        }
        let object = self.inner.context.caches.pods.get(&key);
        let spec = object.as_ref().and_then(|pod| pod.spec.as_ref());
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

    /// How often a container was started, and whether it runs.
    fn runs(&self, key: &Arc<str>, container: &str) -> Result<(u32, bool)> {
        let pod = self.inner.context.caches.pods.get(key);
        let at = pod.as_ref().and_then(|pod| position(pod, container));
        let tracked = self.inner.tracked(key);
        let (Some(at), Some(tracked)) = (at, tracked) else { return Ok((0, false)) };
        let tracked = lock(&tracked);
        let slot = tracked.machine.slots.get(at);
        Ok(slot.map_or((0, false), |slot| (slot.runs, matches!(slot.stage, Stage::Running(_)))))
    }
}
