//! Reads a snapshot from a cluster: lists every kind once, in pages, several kinds concurrently.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::kinds::{self, Kind};
use super::{Snapshot, logs, name_of};
use crate::error::root_cause;
use crate::{Error, Result};

/// Page size.
pub(super) const PAGE: u32 = 500;
/// Concurrent lists.
const CONCURRENCY: usize = 8;

impl Snapshot {
    /// All objects that inspection needs, and logs.
    pub async fn read(client: &Client) -> Result<Self> {
        let mut snapshot = Self::read_objects(client).await?;
        snapshot.logs = logs::read(client, &snapshot).await;
        Ok(snapshot)
    }

    /// The same without logs.
    pub async fn read_objects(client: &Client) -> Result<Self> {
        list_all(client, kinds::all(), trim).await
    }

    /// Only objects of these kinds, trimmed to their state: for repeated reads.
    pub async fn read_kinds<S: AsRef<str>>(client: &Client, names: &[S]) -> Result<Self> {
        let mut kinds = kinds::all();
        kinds.retain(|kind| {
            let kind = name_of(&kind.group, &kind.kind);
            names.iter().any(|name| name.as_ref() == kind)
        });
        list_all(client, kinds, slim).await
    }
}

/// Trims an object of a kind.
pub(super) type Trim = fn(&str, &mut Value);

async fn list_all(client: &Client, kinds: Vec<Kind>, trim: Trim) -> Result<Snapshot> {
    let version = client.apiserver_version().await.map_err(|error| Error::Unreachable(root_cause(&error)))?;
    let mut snapshot =
        Snapshot { taken: Some(Timestamp::now()), server_version: version.git_version, ..Snapshot::default() };
    let read = futures::stream::iter(kinds).map(|kind| async move {
        let objects = list(client, &kind, trim).await;
        (kind, objects)
    });
    let mut read = read.buffer_unordered(CONCURRENCY);
    while let Some((kind, objects)) = read.next().await {
        let name = name_of(&kind.group, &kind.kind);
        match objects {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => drop(snapshot.objects.insert(name, objects)),
            // A kind that is not served has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) => drop(snapshot.unread.insert(name, status.message)),
            Err(error) => return Err(Error::List { kind: name, why: root_cause(&error) }),
        }
    }
    drop(read);
    Ok(snapshot)
}

async fn list(client: &Client, kind: &Kind, trim: Trim) -> Result<Vec<Value>, kube::Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let plain = &|object: DynamicObject| plain(kind, trim, object);
    let pages = futures::stream::try_unfold(Some(String::new()), |token| {
        let api = api.clone();
        async move {
            let Some(token) = token else { return Ok::<_, kube::Error>(None) };
            let selector = fields(kind).map(str::to_owned);
            let params = ListParams { limit: Some(PAGE), field_selector: selector, ..ListParams::default() };
            let params = if token.is_empty() { params } else { params.continue_token(&token) };
            let page = api.list(&params).await?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            Ok(Some((page.items.into_iter().map(plain).collect::<Vec<Value>>(), next)))
        }
    });
    let pages: Vec<Vec<Value>> = pages.try_collect().await?;
    Ok(pages.into_iter().flatten().collect())
}

pub(super) fn resource(kind: &Kind) -> ApiResource {
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    ApiResource::from_gvk_with_plural(&gvk, &kind.plural)
}

/// Field selector of a kind. Node leases change every few seconds and are not needed.
pub(super) fn fields(kind: &Kind) -> Option<&'static str> {
    (kind.kind == "Lease").then_some("metadata.namespace!=kube-node-lease")
}

/// An object as snapshots store it.
pub(super) fn plain(kind: &Kind, trim: Trim, object: DynamicObject) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    // List items have no `apiVersion` and `kind`.
    let group = if kind.group.is_empty() { String::new() } else { format!("{}/", kind.group) };
    object["apiVersion"] = json!(format!("{group}{}", kind.version));
    object["kind"] = json!(kind.kind);
    trim(&kind.kind, &mut object);
    object
}

/// Drops large fields that do not affect the state.
fn trim(kind: &str, object: &mut Value) {
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if kind == "Node"
        && let Some(status) = object["status"].as_object_mut()
    {
        status.remove("images");
    }
}

/// Drops metadata that only writers need, and of pods all but images and status: there are many.
pub(super) fn slim(kind: &str, object: &mut Value) {
    trim(kind, object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if kind != "Pod" {
        return;
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|field, _| ["nodeName", "containers", "initContainers"].contains(&field.as_str()));
        let containers = spec.values_mut().filter_map(Value::as_array_mut).flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.retain(|field, _| ["name", "image"].contains(&field.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use capstan_apiserver::auth::UserInfo;
    use capstan_sim::{Cluster, node};
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::PostParams;

    use super::*;

    /// More failed pods than logs are read.
    const PODS: usize = logs::MAX_LOGS + 50;

    async fn failing() -> Cluster {
        let exit = node::Exit::after(Duration::from_secs(1), 1);
        let fails = node::Behaviour { exit: Some(exit), ..node::Behaviour::default() };
        let settings = node::Settings { rules: vec![(node::Match::default(), fails)], ..node::Settings::default() };
        let cluster = Cluster::builder().node_settings(settings).nodes(3).start().await.unwrap();
        let api: Api<Pod> = Api::namespaced(cluster.client(), "default");
        for number in 0..PODS {
            let spec = json!({"metadata": {"name": format!("p-{number}")}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            api.create(&PostParams::default(), &serde_json::from_value(spec).unwrap()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        cluster
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_asks_no_more_often_than_there_are_kinds_pages_and_some_logs() {
        let cluster = failing().await;
        let (api, count) = (cluster.api().as_user(UserInfo::admin()), Arc::new(AtomicUsize::new(0)));
        let asked = count.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            asked.fetch_add(1, Ordering::Relaxed);
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
        });
        let snapshot = Snapshot::read(&Client::new(service, "default")).await.unwrap();
        assert_eq!(snapshot.of("", "Pod").len(), PODS);
        // The server version, each kind once, one more page of events, and logs.
        let pages = snapshot.objects.values().map(|all| all.len() / PAGE as usize).sum::<usize>();
        let most = 1 + kinds::all().len() + pages + logs::MAX_LOGS;
        let asked = count.load(Ordering::Relaxed);
        assert!(asked <= most && asked > logs::MAX_LOGS, "{asked} requests of at most {most}");
    }
}
