//! Reads a snapshot from a cluster: every kind once, page by page, several kinds at a time.

use anyhow::{Result, anyhow};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::kinds::{self, Kind};
use super::{Snapshot, logs, name_of};

/// Objects in one answer.
const PAGE: u32 = 500;
/// Kinds that are asked for at the same time.
const AT_ONCE: usize = 8;

/// Everything in the cluster that matters to us.
pub(crate) async fn read(client: &Client) -> Result<Snapshot> {
    let mut snapshot = objects(client).await?;
    snapshot.logs = logs::read(client, &snapshot).await;
    Ok(snapshot)
}

/// The same without logs.
pub(crate) async fn objects(client: &Client) -> Result<Snapshot> {
    list_all(client, kinds::all(), trim).await
}

/// Only objects of these kinds, and of those only what tells how they fare: for who looks often.
pub(crate) async fn look(client: &Client, names: &[&str]) -> Result<Snapshot> {
    let mut kinds = kinds::all();
    kinds.retain(|kind| names.contains(&name_of(&kind.group, &kind.kind).as_str()));
    list_all(client, kinds, slim).await
}

/// Makes an object of that kind smaller.
type Trim = fn(&str, &mut Value);

async fn list_all(client: &Client, kinds: Vec<Kind>, trim: Trim) -> Result<Snapshot> {
    let version = client
        .apiserver_version()
        .await
        .map_err(|error| anyhow!("the cluster does not answer: {}", capstan_operator::crds::root_cause(&error)))?;
    let mut snapshot =
        Snapshot { taken: Some(Timestamp::now()), server_version: version.git_version, ..Snapshot::default() };
    let read = futures::stream::iter(kinds).map(|kind| async move {
        let objects = list(client, &kind, trim).await;
        (kind, objects)
    });
    let mut read = read.buffer_unordered(AT_ONCE);
    while let Some((kind, objects)) = read.next().await {
        let name = name_of(&kind.group, &kind.kind);
        match objects {
            Ok(objects) if objects.is_empty() => {}
            Ok(objects) => drop(snapshot.objects.insert(name, objects)),
            // A kind that is not served has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) => drop(snapshot.unread.insert(name, status.message)),
            Err(error) => return Err(anyhow!("cannot list {name}: {}", capstan_operator::crds::root_cause(&error))),
        }
    }
    drop(read);
    Ok(snapshot)
}

async fn list(client: &Client, kind: &Kind, trim: Trim) -> Result<Vec<Value>, kube::Error> {
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let api_version =
        if kind.group.is_empty() { kind.version.clone() } else { format!("{}/{}", kind.group, kind.version) };
    let plain = &|object: DynamicObject| {
        let mut object = serde_json::to_value(object).unwrap_or_default();
        // Items of a list do not say what they are.
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind.kind);
        trim(&kind.kind, &mut object);
        object
    };
    let pages = futures::stream::try_unfold(Some(String::new()), |token| {
        let api = api.clone();
        async move {
            let Some(token) = token else { return Ok::<_, kube::Error>(None) };
            let params = ListParams { limit: Some(PAGE), ..ListParams::default() };
            let params = if token.is_empty() { params } else { params.continue_token(&token) };
            let page = api.list(&params).await?;
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            Ok(Some((page.items.into_iter().map(plain).collect::<Vec<Value>>(), next)))
        }
    });
    let pages: Vec<Vec<Value>> = pages.try_collect().await?;
    Ok(pages.into_iter().flatten().collect())
}

/// Drops what is large and says nothing about how the cluster fares.
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

/// Drops what only writers need, and of pods all but their images and how they do: there are many.
fn slim(kind: &str, object: &mut Value) {
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
