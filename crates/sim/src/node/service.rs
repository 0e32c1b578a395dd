//! Host services: a Rust function per node that starts when the node joins or is powered on.

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};

use super::nodes::{NodeHandle, lock};

type Function = dyn Fn(NodeHandle) -> BoxFuture<'static, ()> + Send + Sync;

/// A service that runs on every node beside its containers, while its kubelet runs. Clones share one function.
#[derive(Clone)]
pub struct HostService(Arc<Function>);

impl HostService {
    /// A service from an async function.
    pub fn new<F, R>(function: F) -> Self
    where
        F: Fn(NodeHandle) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |node| Box::pin(function(node))))
    }
}

impl std::fmt::Debug for HostService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostService")
    }
}

impl NodeHandle {
    /// Starts the service of this node, if there is one and the node runs.
    pub(super) fn start_service(&self) {
        let inner = &self.nodes.inner;
        let Some(HostService(function)) = inner.settings.service.as_ref().filter(|_| self.is_up()) else { return };
        let (abort, registration) = AbortHandle::new_pair();
        let run = Abortable::new(function(self.clone()), registration);
        if let Some(before) = lock(&self.node.service).replace(abort) {
            before.abort();
        }
        inner.context.spawn(run.map(drop));
    }

    /// Stops it.
    pub(super) fn stop_service(&self) {
        if let Some(running) = lock(&self.node.service).take() {
            running.abort();
        }
    }
}
