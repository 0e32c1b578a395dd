//! Runs container bodies: their context, and what follows when they exit.

use std::future::Future;
use std::sync::{Arc, Mutex};

use capstan_apiserver::ops::UserInfo;
use capstan_apiserver::store::TableKey;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable};
use k8s_openapi::api::core::v1::Container;
use tokio::sync::watch;

use super::body::{Body, ContainerContext, Control};
use super::files::{Directory, Files};
use super::kubelet::Tracked;
use super::lifecycle::containers;
use super::mounts::{Directories, environment, expand, mounts};
use super::nodes::{NodeHandle, Nodes, lock};
use crate::Pod;

/// Exit code of a body that panicked: that of an aborted process.
const ABORTED: i32 = 134;

/// A running body.
pub(super) struct Running {
    pub(super) abort: AbortHandle,
    pub(super) stop: watch::Sender<bool>,
}

impl Nodes {
    /// Starts the body of a container, if it has one.
    pub(super) fn start_body(
        &self,
        key: &Arc<str>,
        pod: &Arc<Pod>,
        tracked: &Arc<Mutex<Tracked>>,
        at: usize,
        run: u32,
    ) {
        let inner = &self.inner;
        let Some((_, container)) = pod.spec.as_ref().and_then(|spec| containers(spec).nth(at)) else { return };
        let behaviour = inner.rules.behaviour(pod, &container);
        let clock = inner.context.clock();
        for line in behaviour.log.into_iter().flatten() {
            inner.logs.sink(key, &container.name, run, clock).line(line);
        }
        let Some(body) = behaviour.body else { return };
        let (stop, stopped) = watch::channel(false);
        let nodes = self.clone();
        let (ready_key, name) = (key.clone(), container.name.clone());
        let ready = Arc::new(move |ready| {
            let (namespace, pod) = crate::informer::split_key(&ready_key);
            // The pod may have been deleted.
            let _ = nodes.set_ready(namespace, pod, &name, ready);
        });
        let mut tracked = lock(tracked);
        let pod = &self.full_pod(pod, &mut tracked.full_pod);
        let context = self.context(key, pod, &container, &mut tracked, run, Control { stop: stopped, ready });
        let (task, abort) = self.body_task(body, context, key.clone(), at, run);
        tracked.bodies.insert(at, Running { abort, stop });
        drop(tracked);
        inner.context.spawn(task);
    }

    /// The pod with the volumes that the caches trim. Its containers share one copy, though its status changes.
    fn full_pod(&self, pod: &Arc<Pod>, known: &mut Option<Arc<Pod>>) -> Arc<Pod> {
        let same = |known: &&Arc<Pod>| {
            let (known, now) = (&known.metadata, &pod.metadata);
            known.generation == now.generation && known.labels == now.labels && known.annotations == now.annotations
        };
        if let Some(known) = known.as_ref().filter(same) {
            return known.clone();
        }
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let (table, store) = (TableKey::new("", "pods"), self.inner.context.server.store());
        let stored = store.get(&table, namespace.unwrap_or_default(), name.unwrap_or_default());
        let full_pod = stored.and_then(|object| object.parse_unmanaged::<Pod>().ok());
        let full_pod =
            full_pod.filter(|full_pod| full_pod.metadata.uid == pod.metadata.uid).map_or_else(|| pod.clone(), Arc::new);
        *known = Some(full_pod.clone());
        full_pod
    }

    /// The context of a body.
    fn context(
        &self,
        key: &Arc<str>,
        pod: &Arc<Pod>,
        container: &Container,
        tracked: &mut Tracked,
        run: u32,
        control: Control,
    ) -> ContainerContext {
        let inner = &self.inner;
        let server = inner.context.server.clone();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let pod_ip = tracked.address.map_or_else(|| tracked.node.host_ip.clone(), |last| tracked.node.pod_ip(last));
        let env = environment(&server, pod, container, &tracked.node.host_ip, &pod_ip);
        let words = |list: &Option<Vec<String>>| list.iter().flatten().map(|word| expand(word, &env)).collect();
        let claim = |name: &str| inner.directory_of_claim(format!("{namespace}/{name}"));
        let mut directories = Directories { host: &tracked.node.host, own: &mut tracked.directories, claim: &claim };
        let mounts = mounts(pod, container, &mut directories);
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        ContainerContext {
            pod: pod.clone(),
            container: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            command: words(&container.command),
            args: words(&container.args),
            files: Files { mounts, server: server.clone(), namespace: namespace.clone(), own: Directory::default() },
            node: NodeHandle { nodes: self.clone(), node: tracked.node.clone() },
            log: inner.logs.sink(key, &container.name, run, inner.context.clock()),
            user: pod_user(&namespace, account, &tracked.node.name),
            server,
            control,
            env,
        }
    }

    fn body_task(
        &self,
        body: Body,
        context: ContainerContext,
        key: Arc<str>,
        at: usize,
        run: u32,
    ) -> (impl Future<Output = ()> + Send + 'static, AbortHandle) {
        let (abort, registration) = AbortHandle::new_pair();
        let nodes = self.clone();
        let uid = context.pod.metadata.uid.clone().unwrap_or_default();
        let task = async move {
            let ended = std::panic::AssertUnwindSafe(async { body.run(context).await }).catch_unwind().await;
            let code = ended.map_or(ABORTED, |code| code.0);
            let now = nodes.inner.context.clock().now();
            if let Some(tracked) = nodes.inner.tracked(&key).filter(|tracked| lock(tracked).uid == uid) {
                lock(&tracked).machine.exited(at, run, code, now);
                nodes.inner.queue.add(key);
            }
        };
        (Abortable::new(task, registration).map(drop), abort)
    }
}

/// Identity of a pod: its service account, on a node. Pod tokens carry the node.
fn pod_user(namespace: &str, account: &str, node: &str) -> UserInfo {
    let mut user = UserInfo::service_account(namespace, account, "");
    user.extra.insert("authentication.kubernetes.io/node-name".into(), vec![node.into()]);
    user
}
