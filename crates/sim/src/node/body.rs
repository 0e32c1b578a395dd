//! Bodies: what a container of a virtual node really does, as a Rust function.

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

/// How a body ended: 0 is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub i32);

impl ExitCode {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// Something went wrong.
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

/// An error is logged by whoever makes it; here only the code counts.
impl<E> From<Result<(), E>> for ExitCode {
    fn from(result: Result<(), E>) -> Self {
        if result.is_ok() { Self::SUCCESS } else { Self::FAILURE }
    }
}

type Function = dyn Fn(ContainerContext) -> BoxFuture<'static, ExitCode> + Send + Sync;

/// What a container really does. Clones share one function.
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

/// What a body is given.
#[derive(Clone)]
pub struct ContainerContext {
    /// The pod, as it was when the container started.
    pub pod: Arc<Pod>,
    /// Name of the container.
    pub container: String,
    /// Image.
    pub image: String,
    /// Command; empty for the one in the image.
    pub command: Vec<String>,
    /// Arguments, with references to variables replaced.
    pub args: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// What is mounted.
    pub files: Files,
    /// The node that the container is on.
    pub node: NodeHandle,
    /// The container's log.
    pub log: LogSink,
    /// The API server.
    pub server: Server,
    /// Who the pod is: its service account.
    pub user: UserInfo,
    pub(super) control: Control,
}

/// The strings between a container and its node.
#[derive(Clone)]
pub(super) struct Control {
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ready: Arc<dyn Fn(Option<bool>) + Send + Sync>,
}

impl ContainerContext {
    /// The variable of the environment.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// A client of the API server that is the pod, in its namespace.
    pub fn client(&self) -> kube::Client {
        self.node.client_of(self.user.clone(), self.pod.metadata.namespace.as_deref().unwrap_or("default"))
    }

    /// Writes objects as the pod.
    pub fn writer(&self) -> Writer {
        self.node.writer_of(self.user.clone())
    }

    /// Waits until the container is told to end. It is killed if it does not within the pod's grace period.
    pub async fn stopped(&self) {
        let mut stop = self.control.stop.clone();
        // An error means that the node is gone.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Whether the container was told to end.
    pub fn is_stopped(&self) -> bool {
        *self.control.stop.borrow()
    }

    /// Makes the container ready or not. Until a body says so, it is as its probes have it.
    pub fn set_ready(&self, ready: bool) {
        (self.control.ready)(Some(ready));
    }
}
