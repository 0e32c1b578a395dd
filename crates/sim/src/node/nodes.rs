//! Virtual nodes and operations on them: add, remove, stop, start, update, inject faults.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use capstan_apiserver::auth::Auth;
use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::ops::{DeleteOptions, PatchKind, UserInfo};
use capstan_apiserver::serve::Api;
use capstan_workqueue::Queue;
use futures::future::AbortHandle;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::sync::watch;

use super::admit::Usage;
use super::behaviour::{Behaviour, Match, RuleId, Rules};
use super::files::Directory;
use super::heartbeat;
use super::kubelet::{self, Tracked};
use super::lifecycle::{Machine, containers};
use super::logs::Logs;
use super::power::Power;
use super::template::{NodeTemplate, host_ip, lease, pod_prefix};
use super::{ExistingPods, Reports, Settings, status};
use crate::Pod;
use crate::context::Context;
use crate::events::Recorder;
use crate::writer::{Writer, is_already_exists, is_not_found};

/// All virtual nodes. Clones share one state.
#[derive(Clone)]
pub struct Nodes {
    pub(super) inner: Arc<Inner>,
}

/// One virtual node.
#[derive(Clone)]
pub struct NodeHandle {
    pub(super) nodes: Nodes,
    pub(super) node: Arc<VirtualNode>,
}

pub(super) struct Inner {
    pub(super) context: Context,
    pub(super) settings: Settings,
    pub(super) rules: Rules,
    pub(super) logs: Logs,
    pub(super) nodes: RwLock<HashMap<Arc<str>, Arc<VirtualNode>>>,
    pub(super) pods: Mutex<HashMap<Arc<str>, Arc<Mutex<Tracked>>>>,
    /// Pods to sync.
    pub(super) queue: Queue,
    /// Nodes with a due lease renewal.
    pub(super) lease_renewals: Queue,
    /// Directories of PersistentVolumeClaims.
    pub(super) claims: Mutex<HashMap<String, Directory>>,
    /// The API as pods access it.
    api: Api,
    next: AtomicU32,
    registered: watch::Sender<bool>,
}

/// A node.
pub(super) struct VirtualNode {
    pub(super) name: Arc<str>,
    pub(super) index: u32,
    pub(super) host_ip: String,
    pub(super) power: Mutex<Power>,
    pub(super) images: Mutex<HashSet<String>>,
    pub(super) host: Directory,
    pub(super) addresses: Mutex<Addresses>,
    pub(super) usage: Usage,
    pub(super) writer: Writer,
    pub(super) recorder: Recorder,
    /// Incremented by each change of its object.
    pub(super) changes: watch::Sender<u64>,
    /// The service beside its containers.
    pub(super) service: Mutex<Option<AbortHandle>>,
}

/// Allocator of the last octets of a node's pod IPs.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    used: [u64; 4],
    next: u8,
}

impl Addresses {
    /// A free address, if there is one. Released addresses are not reused at once.
    pub(super) fn take(&mut self) -> Option<u8> {
        for _ in 0..=u8::MAX {
            self.next = self.next.wrapping_add(1);
            let (word, bit) = (usize::from(self.next / 64), self.next % 64);
            // .0, .1 and .255 are reserved.
            if (2..=254).contains(&self.next) && self.used[word] & (1 << bit) == 0 {
                self.used[word] |= 1 << bit;
                return Some(self.next);
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.used.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The previous address of a pod if it is free, else another one.
    fn take_previous(&mut self, last: Option<u8>) -> Option<u8> {
        let free = |last: &u8| (2..=254).contains(last) && self.used[usize::from(last / 64)] & (1 << (last % 64)) == 0;
        match last.filter(free) {
            Some(last) => {
                self.used[usize::from(last / 64)] |= 1 << (last % 64);
                Some(last)
            }
            None => self.take(),
        }
    }

    pub(super) fn give_back(&mut self, address: u8) {
        self.used[usize::from(address / 64)] &= !(1 << (address % 64));
    }
}

impl VirtualNode {
    /// A pod IP.
    pub(super) fn pod_ip(&self, last: u8) -> String {
        format!("{}.{last}", pod_prefix(self.index))
    }

    /// Restores the state of a pod that ran on the node before: its images and its address.
    pub(super) fn remember(&self, pod: &Pod, machine: &Machine) -> Option<u8> {
        let spec = pod.spec.as_ref().filter(|_| !machine.is_new())?;
        let ran = containers(spec).zip(&machine.slots).filter(|(_, slot)| slot.runs > 0);
        lock(&self.images).extend(ran.filter_map(|((_, container), _)| container.image.clone()));
        if spec.host_network == Some(true) {
            return None;
        }
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let last = ip.and_then(|ip| ip.strip_prefix(&pod_prefix(self.index))?.strip_prefix('.')?.parse().ok());
        lock(&self.addresses).take_previous(last)
    }

    pub(super) fn is_up(&self) -> bool {
        *lock(&self.power) == Power::Up
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    pub(super) fn start(context: &Context, auth: Arc<Auth>, settings: Settings) -> Self {
        let rules = Rules::default();
        for (which, behaviour) in &settings.rules {
            rules.add(which.clone(), behaviour.clone());
        }
        let templates = settings.nodes.clone();
        let inner = Inner {
            context: context.clone(),
            settings,
            rules,
            logs: Logs::default(),
            nodes: RwLock::default(),
            pods: Mutex::default(),
            queue: Queue::default(),
            lease_renewals: Queue::default(),
            claims: Mutex::default(),
            api: Api::new(context.server.clone(), auth),
            next: AtomicU32::new(0),
            registered: watch::Sender::new(false),
        };
        let nodes = Self { inner: Arc::new(inner) };
        kubelet::start(&nodes);
        heartbeat::start(&nodes);
        nodes.count();
        let registering = nodes.clone();
        context.spawn(async move {
            for template in templates {
                if let Err(error) = registering.add(template.clone()).await {
                    tracing::warn!(node = template.name, %error, "node registration failed");
                }
            }
            registering.inner.registered.send_replace(true);
        });
        nodes
    }

    /// Reports the number of held items as gauges.
    fn count(&self) {
        let of = |count: fn(&Inner) -> usize| {
            let inner = Arc::downgrade(&self.inner);
            move || inner.upgrade().map_or(0, |inner| count(&inner))
        };
        let gauges = &self.inner.context.gauges;
        gauges.add("nodes: pods", of(|inner| lock(&inner.pods).len()));
        gauges.add("nodes: logs", of(|inner| inner.logs.len()));
        gauges.add("nodes: directories of claims", of(|inner| lock(&inner.claims).len()));
        gauges.add("nodes: queue", of(|inner| inner.queue.held()));
        gauges.add("nodes: addresses", of(|inner| inner.each_node(|node| lock(&node.addresses).len())));
        gauges.add("nodes: usage", of(|inner| inner.each_node(|node| node.usage.pods())));
    }

    /// Waits until the initial nodes are registered.
    pub async fn registered(&self) {
        // An error means that the cluster stops.
        let _ = self.inner.registered.subscribe().wait_for(|registered| *registered).await;
    }

    /// Adds a node. An existing Node object of that name is adopted unchanged.
    pub async fn add(&self, template: NodeTemplate) -> Result<NodeHandle> {
        let name: Arc<str> = template.name.as_str().into();
        let index = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let user = UserInfo::new(format!("system:node:{name}"), &["system:nodes", "system:authenticated"]);
        let node = Arc::new(VirtualNode {
            name: name.clone(),
            index,
            host_ip: host_ip(index),
            power: Mutex::default(),
            images: Mutex::default(),
            host: self
                .inner
                .settings
                .hosts
                .as_ref()
                .map_or_else(Directory::default, |hosts| Directory::on_disk(hosts.join(&*name))),
            addresses: Mutex::default(),
            usage: Usage::default(),
            writer: self.inner.context.writer(user, "kubelet"),
            recorder: self.inner.context.recorder_on("kubelet", &name),
            changes: watch::Sender::new(0),
            service: Mutex::default(),
        });
        self.inner.nodes.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), node.clone());
        let now = self.inner.context.clock().now();
        let handle = NodeHandle { nodes: self.clone(), node: node.clone() };
        let object = match node.writer.create(&template.node(index, now)).await {
            Err(error) if is_already_exists(&error) => {
                if self.inner.settings.existing_pods == ExistingPods::Rebooted {
                    handle.boot().await?;
                }
                Arc::new(node.writer.read::<Node>(None, &name).await?)
            }
            other => other?,
        };
        let seconds = i32::try_from(self.inner.settings.lease.as_secs()).unwrap_or(i32::MAX);
        match node.writer.create(&lease(&object, seconds, now)).await {
            Err(error) if !is_already_exists(&error) && !is_not_found(&error) => return Err(error),
            _ => {}
        }
        handle.start_service();
        self.inner.lease_renewals.add_after(name.clone(), self.inner.first_renewal(index));
        for pod in self.inner.context.caches.pods.on_node(&name) {
            self.inner.queue.add(crate::informer::key_of(&pod.metadata));
        }
        Ok(handle)
    }

    /// A node.
    pub fn get(&self, name: &str) -> Option<NodeHandle> {
        Some(NodeHandle { nodes: self.clone(), node: self.inner.node(name)? })
    }

    /// The names of all nodes.
    pub fn names(&self) -> Vec<String> {
        let nodes = self.inner.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<String> = nodes.keys().map(|name| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// Adds a rule for the behaviour of containers.
    pub fn rule(&self, which: Match, behaviour: Behaviour) -> RuleId {
        self.inner.rules.add(which, behaviour)
    }

    /// Removes a rule.
    pub fn remove_rule(&self, id: RuleId) {
        self.inner.rules.remove(id);
    }

    /// Ends the current run of a container, as if it had exited by itself.
    pub fn exit(&self, namespace: &str, pod: &str, container: &str, code: i32, reason: Option<&str>) -> Result<()> {
        let now = self.inner.context.clock().now();
        self.inner.change(namespace, pod, container, |machine, at| machine.kill(at, code, reason, now))
    }

    /// Overrides the readiness of a container; `None` removes the override.
    pub fn set_ready(&self, namespace: &str, pod: &str, container: &str, ready: Option<bool>) -> Result<()> {
        self.inner.change(namespace, pod, container, |machine, at| machine.force_ready(at, ready))
    }

    /// Fails a pod with a reason, as a node under pressure does: `Evicted`, for instance.
    pub fn fail(&self, namespace: &str, pod: &str, reason: &str, message: &str) -> Result<()> {
        let now = self.inner.context.clock().now();
        let end = super::lifecycle::End::Failed { reason: reason.into(), message: message.into() };
        self.inner.change_pod(namespace, pod, |machine| machine.finish(end, now))
    }
}

impl NodeHandle {
    /// The name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The object from the cache.
    pub fn object(&self) -> Option<Arc<Node>> {
        self.nodes.inner.context.caches.nodes.get(&self.node.name)
    }

    /// Waits until the object meets a condition.
    pub async fn until(&self, wanted: impl Fn(&Node) -> bool) {
        let mut changes = self.node.changes.subscribe();
        while !self.object().is_some_and(|node| wanted(&node)) {
            if changes.changed().await.is_err() {
                // The cluster stops: no more changes.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The node's file system: what `hostPath` volumes mount.
    pub fn host(&self) -> &Directory {
        &self.node.host
    }

    /// All nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// A client of a user on this node.
    pub fn client_of(&self, user: UserInfo, namespace: &str) -> kube::Client {
        self.nodes.inner.api.as_user(user).client(namespace)
    }

    /// A writer of a user on this node.
    pub(super) fn writer_of(&self, user: UserInfo) -> Writer {
        self.nodes.inner.context.writer(user, "pod")
    }

    /// Sets the capacity of a resource; `None` removes it.
    pub async fn set_capacity(&self, resource: &str, amount: Option<&str>) -> Result<()> {
        let body = json!({"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}});
        self.patch_status(body).await
    }

    /// Sets the allocatable amount of a resource, which excludes unhealthy devices.
    pub async fn set_allocatable(&self, resource: &str, amount: &str) -> Result<()> {
        self.patch_status(json!({"status": {"allocatable": {resource: amount}}})).await
    }

    /// Sets capacity and allocatable of a device plugin resource.
    pub async fn set_devices(&self, resource: &str, capacity: usize, allocatable: usize) -> Result<()> {
        let (capacity, allocatable) = (capacity.to_string(), allocatable.to_string());
        self.patch_status(json!({"status": {"capacity": {resource: capacity}, "allocatable": {resource: allocatable}}}))
            .await
    }

    /// Deletes the ResourceSlices of a DRA driver on this node, as a kubelet does after the driver is gone.
    pub async fn withdraw_slices(&self, driver: &str) -> Result<()> {
        let context = &self.nodes.inner.context;
        // A kubelet sends one deletecollection request; one by one, each delete would need its own permission.
        let writer = context.writer(UserInfo::new("system:kubelet", &["system:masters"]), "kubelet");
        for slice in context.caches.resource_slices.list() {
            if slice.spec.driver == driver && slice.spec.node_name.as_deref() == Some(&*self.node.name) {
                match writer.delete(&*slice, DeleteOptions::default()).await {
                    Err(error) if !is_not_found(&error) => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Cordons or uncordons the node.
    pub async fn cordon(&self, out: bool) -> Result<()> {
        self.patch(None, json!({"spec": {"unschedulable": out.then_some(true)}})).await
    }

    /// Sets labels of the node.
    pub async fn set_labels(&self, labels: &[(&str, &str)]) -> Result<()> {
        let labels: serde_json::Map<String, serde_json::Value> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        self.patch(None, json!({"metadata": {"labels": labels}})).await
    }

    /// Sets a condition of the node, such as `DiskPressure`.
    pub async fn set_condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Result<()> {
        let now = status::seconds(self.nodes.inner.context.clock().now());
        let condition = json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        });
        let body = json!({"status": {"conditions": [condition]}});
        let kind = PatchKind::Strategic;
        self.node.writer.patch::<Node>(None, &self.node.name, Some("status"), kind, body).await.map(drop)
    }

    /// Removes the node: its object is deleted, and all its containers stop.
    pub async fn remove(self) -> Result<()> {
        self.down();
        let inner = &self.nodes.inner;
        inner.nodes.write().unwrap_or_else(PoisonError::into_inner).remove(&self.node.name);
        match self.object() {
            Some(object) => match self.node.writer.delete(&*object, DeleteOptions::default()).await {
                Err(error) if !is_not_found(&error) => Err(error),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    pub(super) async fn patch_status(&self, body: serde_json::Value) -> Result<()> {
        self.patch(Some("status"), body).await
    }

    async fn patch(&self, subresource: Option<&str>, body: serde_json::Value) -> Result<()> {
        let VirtualNode { writer, name, .. } = &*self.node;
        match self.nodes.inner.settings.reports {
            Reports::Brief(_) => writer.patch_unadmitted::<Node>(name, &body).await,
            Reports::Full => writer.patch::<Node>(None, name, subresource, PatchKind::Merge, body).await.map(drop),
        }
    }
}

impl Inner {
    pub(super) fn node(&self, name: &str) -> Option<Arc<VirtualNode>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn each_node(&self, count: impl Fn(&VirtualNode) -> usize) -> usize {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).values().map(|node| count(node)).sum()
    }

    pub(super) fn tracked(&self, key: &str) -> Option<Arc<Mutex<Tracked>>> {
        lock(&self.pods).get(key).cloned()
    }

    /// Changes the state machine of a pod, and enqueues the pod.
    fn change_pod(
        &self,
        namespace: &str,
        pod: &str,
        change: impl FnOnce(&mut super::lifecycle::Machine),
    ) -> Result<()> {
        let key: Arc<str> = format!("{namespace}/{pod}").into();
        let tracked = self.tracked(&key);
        let tracked = tracked.ok_or_else(|| Status::bad_request(format!("pod {key} is not on a virtual node")))?;
        change(&mut lock(&tracked).machine);
        self.queue.add(key);
        Ok(())
    }

    fn change(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        change: impl FnOnce(&mut super::lifecycle::Machine, usize),
    ) -> Result<()> {
        let object = self.context.caches.pods.find(namespace, pod);
        let at = object.and_then(|pod| kubelet::position(&pod, container));
        let at = at.ok_or_else(|| Status::bad_request(format!("container {container} is not valid for pod {pod}")))?;
        self.change_pod(namespace, pod, |machine| change(machine, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_used_once_and_not_again_at_once() {
        let mut addresses = Addresses::default();
        let all: Vec<u8> = std::iter::from_fn(|| addresses.take()).collect();
        assert_eq!((all.len(), all[0], all[252]), (253, 2, 254));
        addresses.give_back(7);
        assert_eq!((addresses.take(), addresses.take()), (Some(7), None));
        addresses.give_back(9);
        addresses.give_back(8);
        assert_eq!((addresses.take(), addresses.take()), (Some(8), Some(9)));
    }

    #[test]
    fn a_pod_gets_its_address_again_unless_somebody_else_has_it() {
        let mut addresses = Addresses::default();
        assert_eq!([Some(9), Some(9), None, Some(1)].map(|last| addresses.take_previous(last)), [9, 2, 3, 4].map(Some));
    }
}
