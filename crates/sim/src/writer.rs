//! Typed writes of controllers, scheduler and nodes, each as its own user.

use std::sync::Arc;

use capstan_apiserver::error::{Result, Status};
use capstan_apiserver::ops::{
    Caller, DeleteOptions, Deleted, GetOptions, ObjectTemplate, Patch, PatchKind, Preconditions, Server, Target,
    UserInfo, WriteOptions, Written,
};
use capstan_apiserver::registry::Resource;
use capstan_apiserver::store::Deletion;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Node, PodCondition, PodStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Map, Value, json};

use crate::Pod;
use crate::caches::Caches;
use crate::informer::Kind;
use crate::scheduler::pod::PodInfo;

/// Writes objects as one user and updates the caches with the result. Clones share all but the user.
#[derive(Clone)]
pub struct Writer {
    server: Server,
    caches: Arc<Caches>,
    caller: Caller,
    options: WriteOptions,
}

impl Writer {
    pub(crate) fn new(server: Server, caches: Arc<Caches>, user: UserInfo, manager: &str) -> Self {
        let caller = Caller { user, user_agent: manager.to_owned() };
        let options = WriteOptions { field_manager: manager.to_owned(), ..WriteOptions::default() };
        Self { server, caches, caller, options }
    }

    /// Creates an object in the namespace of its metadata.
    pub async fn create<K: Kind>(&self, object: &K) -> Result<Arc<K>> {
        let namespace = object.metadata().namespace.as_deref();
        let target = Target::all(self.resource::<K>()?, namespace);
        let body = to_value(object)?;
        self.observe_written(self.server.create(&self.caller, &target, body.into(), &self.options).await?)
    }

    /// Updates `old` to `new`, except the status, with the resource version as precondition. Writes nothing if both are
    /// equal.
    pub async fn update<K: Kind>(&self, old: &Arc<K>, new: &K) -> Result<Arc<K>> {
        self.change(old, new, None).await
    }

    /// Updates the status of `old` to that of `new`, with the resource version as precondition. Writes nothing if both
    /// are equal.
    pub async fn update_status<K: Kind>(&self, old: &Arc<K>, new: &K) -> Result<Arc<K>> {
        self.change(old, new, Some("status")).await
    }

    /// Replaces the status `before` of `old`, with the resource version as precondition, comparing the status alone.
    pub(crate) async fn replace_status<K: Kind>(
        &self,
        old: &Arc<K>,
        before: &impl serde::Serialize,
        after: &impl serde::Serialize,
    ) -> Result<Arc<K>> {
        match difference(&to_value(before)?, &to_value(after)?) {
            Some(status) => self.merge(old, Some("status"), json!({"status": status})).await,
            None => Ok(old.clone()),
        }
    }

    /// Sets the taints of a node with the resource version as precondition. Bypasses admission and managedFields.
    pub(crate) async fn set_taints(&self, node: &Node, taints: &[Taint]) -> Result<()> {
        let taints = if taints.is_empty() { Value::Null } else { to_value(&taints)? };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.patch_unadmitted_at::<Node>(name, &json!({"spec": {"taints": taints}}), Some(revision(&node.metadata)))
            .await
    }

    /// Patches an object or a subresource of it, without a precondition.
    pub async fn patch<K: Kind>(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        kind: PatchKind,
        body: Value,
    ) -> Result<Arc<K>> {
        let mut target = Target::one(self.resource::<K>()?, namespace, name);
        target.subresource = subresource.map(Into::into);
        let patch = Patch { kind, body: body.into() };
        self.observe_written(self.server.patch(&self.caller, &target, patch, &self.options).await?)
    }

    /// Writes the status of a pod with the resource version as precondition. Bypasses admission and managedFields.
    pub(crate) async fn write_pod_status(&self, pod: &Pod, status: &PodStatus) -> Result<()> {
        let meta = &pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let target = Target::one(self.resource::<Pod>()?, meta.namespace.as_deref(), name);
        let uid = meta.uid.as_deref().unwrap_or_default();
        let selectable_fields = selectable_fields(status);
        let object =
            self.server.replace_status(&self.caller, &target, uid, revision(meta), status, &selectable_fields).await?;
        let (metadata, spec) = (meta.clone(), pod.spec.clone());
        self.caches.pods.observe_as(&object, Pod { metadata, spec, status: Some(status.clone()) });
        Ok(())
    }

    /// Binds a pod to a node without a Binding object, with the resource version as precondition. Returns false if this
    /// fast path does not apply.
    pub(crate) async fn bind_pod(&self, pod: &Pod, node: &str) -> Result<bool> {
        let mut pod = pod.clone();
        let spec = pod.spec_mut();
        if spec.node_name.is_some() || spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
            return Ok(false);
        }
        spec.node_name = Some(node.to_owned());
        let status = pod.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != SCHEDULED);
        conditions.push(scheduled(self.now()));
        let meta = &pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let target = Target::one(self.resource::<Pod>()?, meta.namespace.as_deref(), name).sub("binding");
        let precondition = (meta.uid.as_deref().unwrap_or_default(), revision(meta));
        let selectable_fields = selectable_fields(status);
        let placed =
            self.server.bind_pod(&self.caller, &target, precondition, node, &*status, selectable_fields).await?;
        if let Some(object) = &placed {
            self.caches.pods.observe_as(object, pod);
        }
        Ok(placed.is_some())
    }

    /// Merge-patches a cluster-scoped object. Bypasses admission and managedFields.
    pub(crate) async fn patch_unadmitted<K: Kind>(&self, name: &str, body: &Value) -> Result<()> {
        self.patch_unadmitted_at::<K>(name, body, None).await
    }

    /// The same with an optional resource version as precondition.
    async fn patch_unadmitted_at<K: Kind>(&self, name: &str, body: &Value, revision: Option<u64>) -> Result<()> {
        let target = Target::one(self.resource::<K>()?, None, name);
        let object = self.server.merge_patch(&self.caller, &target, body, revision).await?;
        if let Some(cache) = K::cache(&self.caches) {
            cache.observe(&object);
        }
        Ok(())
    }

    /// Marks a running pod for deletion, with the resource version as precondition. Bypasses admission. Returns false
    /// if this fast path does not apply.
    pub(crate) async fn mark_for_deletion(&self, pod: &Pod) -> Result<bool> {
        let meta = &pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let target = Target::one(self.resource::<Pod>()?, meta.namespace.as_deref(), name);
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
        let at = self.server.clock().now().as_second() + grace;
        let Ok(at) = Timestamp::from_second(at) else { return Ok(false) };
        let (uid, deletion) = (meta.uid.as_deref().unwrap_or_default(), Deletion { at, grace });
        let marked = self.server.mark_terminating(&self.caller, &target, uid, revision(meta), deletion).await?;
        let Some(object) = marked else { return Ok(false) };
        let mut pod = pod.clone();
        pod.metadata.deletion_timestamp = Some(Time(at));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod.metadata.generation = Some(object.generation);
        self.caches.pods.observe_as(&object, pod);
        Ok(true)
    }

    /// Removes a terminated pod with a deletion timestamp. Bypasses admission. Returns false if this fast path does not
    /// apply.
    pub(crate) async fn remove_terminated(&self, pod: &Pod) -> Result<bool> {
        let meta = &pod.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let target = Target::one(self.resource::<Pod>()?, meta.namespace.as_deref(), name);
        let gone = self.server.remove_deleted(&self.caller, &target, meta.uid.as_deref().unwrap_or_default()).await?;
        if let Some(object) = &gone {
            self.caches.pods.observe_deletion(object);
        }
        Ok(gone.is_some())
    }

    /// Creates a pod, and keeps the admitted object as a template of copies.
    pub(crate) async fn template_copy(&self, pod: &Pod) -> Result<PodTemplateCopy> {
        let target = Target::all(self.resource::<Pod>()?, pod.metadata.namespace.as_deref());
        let written = self.server.create(&self.caller, &target, to_value(pod)?.into(), &self.options).await?;
        let value = written.object.value();
        // The caches trim its volumes.
        let fits_everywhere =
            written.object.parse_unmanaged().is_ok_and(|pod: Pod| PodInfo::new(pod.into()).fits_everywhere());
        Ok(PodTemplateCopy {
            pattern: ObjectTemplate::new(value, &["affinity"]),
            pod: self.observe_written(written)?,
            fits_everywhere,
        })
    }

    /// Creates a copy of the template pod that differs only in its placement. Bypasses admission, which would give the
    /// same result.
    pub(crate) async fn create_copy(
        &self,
        template_copy: &PodTemplateCopy,
        placement: Placement<'_>,
    ) -> Result<Arc<Pod>> {
        let (resource, now) = (self.resource::<Pod>()?, self.now());
        let mut pod = Pod::clone(&template_copy.pod);
        let spec = pod.spec_mut();
        let affinity = to_value(&placement.affinity)?;
        spec.affinity = placement.affinity;
        if let Some(node) = placement.node {
            spec.node_name = Some(node.to_owned());
            let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
            conditions.push(scheduled(now.clone()));
        }
        let status = to_value(&pod.status)?;
        let edit = |object: &mut Value| {
            object["spec"]["affinity"] = affinity;
            if let Some(node) = placement.node {
                object["spec"]["nodeName"] = node.into();
                object["status"] = status;
            }
        };
        let object = self.server.copy(&self.caller, &resource, &template_copy.pattern, edit).await?;
        pod.metadata.name = Some(object.name().to_owned());
        pod.metadata.uid = Some(object.uid.to_string());
        pod.metadata.creation_timestamp = now;
        self.caches.pods.observe_as(&object, pod);
        self.caches.pods.get(object.key()).ok_or_else(|| Status::not_found(&resource, object.name()))
    }

    /// Deletes this object with its UID as precondition: a later one of the same name remains.
    pub async fn delete<K: Kind>(&self, object: &K, options: DeleteOptions) -> Result<()> {
        let meta = object.metadata();
        let preconditions = Preconditions { uid: meta.uid.clone(), ..options.preconditions };
        let options = DeleteOptions { preconditions, ..options };
        let name = meta.name.as_deref().unwrap_or_default();
        let target = Target::one(self.resource::<K>()?, meta.namespace.as_deref(), name);
        let Deleted { object, gone, .. } = self.server.delete(&self.caller, &target, &options).await?;
        if let Some(cache) = K::cache(&self.caches) {
            if gone {
                cache.observe_deletion(&object);
            } else {
                cache.observe(&object);
            }
        }
        Ok(())
    }

    /// Posts to a subresource, such as `binding` or `eviction`.
    pub async fn post<K: Kind>(&self, namespace: &str, name: &str, subresource: &str, body: Value) -> Result<Written> {
        let target = Target::one(self.resource::<K>()?, Some(namespace), name).sub(subresource);
        self.server.create(&self.caller, &target, body.into(), &self.options).await
    }

    /// The object from the server, bypassing the caches.
    pub async fn read<K: Kind>(&self, namespace: Option<&str>, name: &str) -> Result<K> {
        let target = Target::one(self.resource::<K>()?, namespace, name);
        let object = self.server.get(&self.caller, &target, &GetOptions::default()).await?;
        object.parse().map_err(Status::internal)
    }

    /// The current time in whole seconds.
    fn now(&self) -> Option<Time> {
        Timestamp::from_second(self.server.clock().now().as_second()).ok().map(Time)
    }

    /// The user who writes.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    async fn change<K: Kind>(&self, old: &Arc<K>, new: &K, subresource: Option<&str>) -> Result<Arc<K>> {
        if **old == *new {
            return Ok(old.clone());
        }
        let Some(body) = difference(&to_value(&**old)?, &to_value(new)?) else { return Ok(old.clone()) };
        self.merge(old, subresource, body).await
    }

    /// Merge-patches an object with its resource version as precondition.
    async fn merge<K: Kind>(&self, old: &Arc<K>, subresource: Option<&str>, mut body: Value) -> Result<Arc<K>> {
        let meta = old.metadata();
        body["metadata"]["resourceVersion"] = json!(meta.resource_version);
        body["metadata"]["uid"] = json!(meta.uid);
        let name = meta.name.as_deref().unwrap_or_default();
        self.patch(meta.namespace.as_deref(), name, subresource, PatchKind::Merge, body).await
    }

    fn observe_written<K: Kind>(&self, written: Written) -> Result<Arc<K>> {
        let cached = K::cache(&self.caches).and_then(|cache| cache.observe(&written.object));
        match cached {
            Some(object) => Ok(object),
            None => written.object.parse().map(Arc::new).map_err(Status::internal),
        }
    }

    fn resource<K: Kind>(&self) -> Result<Arc<Resource>> {
        if let Some(cache) = K::cache(&self.caches) {
            return Ok(cache.resource().clone());
        }
        let found = self.server.registry().lookup(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
        found.ok_or_else(Status::no_such_resource)
    }
}

/// An admitted pod.
pub(crate) struct PodTemplateCopy {
    pattern: ObjectTemplate,
    pod: Arc<Pod>,
    fits_everywhere: bool,
}

impl PodTemplateCopy {
    /// Whether a copy fits on every eligible node.
    pub(crate) fn fits_everywhere(&self) -> bool {
        self.fits_everywhere
    }
}

/// The placement of a copy.
pub(crate) struct Placement<'a> {
    /// Node affinity.
    pub(crate) affinity: Option<Affinity>,
    /// The node that it is bound to from the start, bypassing the scheduler.
    pub(crate) node: Option<&'a str>,
}

/// Whether the object does not exist.
pub fn is_not_found(error: &Status) -> bool {
    error.reason == "NotFound"
}

/// Whether the object exists already.
pub fn is_already_exists(error: &Status) -> bool {
    error.reason == "AlreadyExists"
}

/// Whether the resource version is outdated.
pub fn is_conflict(error: &Status) -> bool {
    error.reason == "Conflict"
}

/// Condition of a scheduled pod.
const SCHEDULED: &str = "PodScheduled";

fn scheduled(since: Option<Time>) -> PodCondition {
    PodCondition {
        type_: SCHEDULED.to_owned(),
        status: "True".to_owned(),
        last_transition_time: since,
        ..PodCondition::default()
    }
}

/// The fields of a pod that field selectors read, with this status.
fn selectable_fields(status: &PodStatus) -> Value {
    json!({"status": {
        "phase": status.phase,
        "podIP": status.pod_ip,
        "podIPs": status.pod_ips,
        "nominatedNodeName": status.nominated_node_name,
    }})
}

/// The resource version of an object.
fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn to_value(object: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(object).map_err(Status::internal)
}

/// The JSON merge patch from `old` to `new`; `None` if they are equal.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) => {
                if let Some(change) = difference(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_changed_and_what_went() {
        let old = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": true});
        let new = json!({"a": 1, "b": {"c": [1], "d": "x"}, "f": {}});
        assert_eq!(difference(&old, &new), Some(json!({"b": {"c": [1]}, "e": null, "f": {}})));
        assert_eq!(difference(&old, &old), None);
    }
}
