//! Restores the objects of another cluster before any controller reads them.

use std::collections::HashSet;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::Server;
use serde_json::Value;

/// Timeout until the kind of a CRD is served.
const SERVED: Duration = Duration::from_secs(30);

/// Restores objects: CRDs first, then all others in one step, so that no dependent is visible without its owner. Owner
/// references to objects outside the set are dropped, or garbage collection would delete the dependents.
pub(crate) async fn restore(server: &Server, objects: Vec<Value>) -> Result<()> {
    let (definitions, others): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    for definition in &definitions {
        server.restore(definition)?;
    }
    let served = async {
        while !definitions.iter().all(|definition| is_served(server, definition)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(SERVED, served).await.is_err() {
        tracing::warn!("CRDs not served; their objects skipped");
    }
    let known: HashSet<String> = others.iter().filter_map(uid).map(str::to_owned).collect();
    for mut object in others {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"].as_str().is_some_and(|uid| known.contains(uid)));
        }
        if let Err(error) = server.restore(&object) {
            tracing::debug!(%error, "object skipped");
        }
    }
    Ok(())
}

fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

fn is_served(server: &Server, definition: &Value) -> bool {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let mut versions = spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    versions.all(|version| server.registry().by_kind(&group, &text(&version["name"]), &kind).is_some())
}
