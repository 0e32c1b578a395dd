//! Bodies: the code that a container of a virtual node runs, as a Rust function.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use capstan_apiserver::ops::{Server, UserInfo};
use futures::future::BoxFuture;
use tokio::sync::watch;

use super::files::Files;
use super::logs::LogSink;
use super::nodes::NodeHandle;
use crate::Pod;
use crate::writer::Writer;

/// Exit code of a body: 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub i32);

impl ExitCode {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// Failure.
    pub const FAILURE: Self = Self(1);
}

impl From<i32> for ExitCode {
    fn from(code: i32) -> Self {
        Self(code)
    }
}

impl From<()> for ExitCode {
    fn from((): ()) -> Self {
        Self::SUCCESS
    }
}

/// The body logs its error itself; only the code counts here.
impl<E> From<Result<(), E>> for ExitCode {
    fn from(result: Result<(), E>) -> Self {
        if result.is_ok() { Self::SUCCESS } else { Self::FAILURE }
    }
}

type Function = dyn Fn(ContainerContext) -> BoxFuture<'static, ExitCode> + Send + Sync;

/// Code of a container. Clones share one function.
#[derive(Clone)]
pub struct Body(Arc<Function>);

impl Body {
    /// A body from an async function.
    pub fn new<F, R, C>(function: F) -> Self
    where
        F: Fn(ContainerContext) -> R + Send + Sync + 'static,
        R: Future<Output = C> + Send + 'static,
        C: Into<ExitCode>,
    {
        Self(Arc::new(move |context| {
            let run = function(context);
            Box::pin(async move { run.await.into() })
        }))
    }

    pub(super) fn run(&self, context: ContainerContext) -> BoxFuture<'static, ExitCode> {
        (self.0)(context)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

/// Context of a body.
#[derive(Clone)]
pub struct ContainerContext {
    /// The pod at the start of the container.
    pub pod: Arc<Pod>,
    /// Name of the container.
    pub container: String,
    /// Image.
    pub image: String,
    /// Command; empty for the image's entrypoint.
    pub command: Vec<String>,
    /// Arguments, with references to variables replaced.
    pub args: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Mounted files.
    pub files: Files,
    /// The node that runs the container.
    pub node: NodeHandle,
    /// The container's log.
    pub log: LogSink,
    /// The API server.
    pub server: Server,
    /// Identity of the pod: its service account.
    pub user: UserInfo,
    pub(super) control: Control,
}

/// Channels between a container and its node.
#[derive(Clone)]
pub(super) struct Control {
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ready: Arc<dyn Fn(Option<bool>) + Send + Sync>,
}

impl ContainerContext {
    /// A variable of the environment.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// A client that authenticates as the pod, in its namespace.
    pub fn client(&self) -> kube::Client {
        self.node.client_of(self.user.clone(), self.pod.metadata.namespace.as_deref().unwrap_or("default"))
    }

    /// A writer that authenticates as the pod.
    pub fn writer(&self) -> Writer {
        self.node.writer_of(self.user.clone())
    }

    /// Waits for the stop signal. The container is killed after the pod's grace period.
    pub async fn stopped(&self) {
        let mut stop = self.control.stop.clone();
        // An error means that the node was removed.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Whether the stop signal was sent.
    pub fn is_stopped(&self) -> bool {
        *self.control.stop.borrow()
    }

    /// Sets the readiness of the container. Before the first call, its probes decide.
    pub fn set_ready(&self, ready: bool) {
        (self.control.ready)(Some(ready));
    }
}
