//! Every file in `examples/`, applied as it is: the images that they name are a model server of ours.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{PATIENCE, Suite, name};
use crate::cluster::{NODE, ctr, import};
use crate::image;

/// The model server.
const MODEL: &str = "capstan.local/model-server:1";
/// Groups of Kubernetes itself have no dot, or this ending.
const BUILT_IN: &str = ".k8s.io";
const GPUS: &str = "8";
const VOLUMES: usize = 4;

/// Builds the images and gives them to the node.
pub(super) fn images(suite: &Suite) -> Result<String> {
    let folder = suite.root.join("target/image");
    let (operator, model) = (folder.join("capstan.tar"), folder.join("model-server.tar"));
    let digest = image::capstan(&suite.root, &operator, image::TAG)?;
    image::model_server(&suite.root, &model, MODEL)?;
    import(&operator)?;
    import(&model)?;
    let bytes = std::fs::metadata(&operator)?.len();
    Ok(format!("{} {}, {} MB", image::TAG, &digest[..19.min(digest.len())], bytes / 1_000_000))
}

/// Gives the node GPUs, by name only, and the cluster some volumes.
pub(super) fn hardware(suite: &Suite) -> Result<String> {
    let patch = json!({"status": {"capacity": {"nvidia.com/gpu": GPUS}}}).to_string();
    suite.kubectl(&["patch", "node", NODE, "--subresource=status", "--type=merge", "-p", &patch])?;
    suite.wait("the node has no GPUs", || {
        let node = suite.json(&["get", "node", NODE])?;
        Ok(node["status"]["allocatable"]["nvidia.com/gpu"] == GPUS)
    })?;
    suite.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
    }))?;
    for number in 0..VOLUMES {
        let path = suite.home.join(format!("volumes/{number}"));
        suite.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("volume-{number}")},
            "spec": {
                "capacity": {"storage": "500Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "storageClassName": "standard", "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            },
        }))?;
    }
    Ok(format!("{GPUS} GPUs, {VOLUMES} volumes"))
}

/// Objects of all example files.
fn objects(suite: &Suite) -> Result<Vec<Value>> {
    let folder = suite.root.join("examples").display().to_string();
    let text = suite.kubectl(&["create", "--dry-run=client", "--recursive", "-f", &folder, "-o", "json"])?;
    // One after the other.
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    objects.collect::<Result<_, _>>().context("kubectl printed no JSON")
}

/// Objects of our kinds.
fn ours(suite: &Suite) -> Result<Vec<Value>> {
    let is_ours = |object: &Value| {
        let group = object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group);
        group.contains('.') && !group.ends_with(BUILT_IN)
    };
    Ok(objects(suite)?.into_iter().filter(is_ours).collect())
}

/// Kind and place of an object, as kubectl takes them.
fn place(object: &Value) -> [String; 4] {
    let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
    let kind = text(&object["kind"], "");
    [kind, name(object), "-n".into(), text(&object["metadata"]["namespace"], "default")]
}

/// Applies the files and waits until everything of ours is ready.
pub(super) fn apply(suite: &Suite) -> Result<String> {
    // The operator has just been started, and installs the kinds.
    suite.wait("our kinds are not served", || Ok(ours(suite).is_ok()))?;
    let ours = ours(suite)?;
    for image in ours.iter().flat_map(images_of) {
        // There is no registry to pull it from.
        ctr(&["images", "tag", "--force", MODEL, &image])?;
    }
    let folder = suite.root.join("examples").display().to_string();
    suite.kubectl(&["apply", "--recursive", "-f", &folder])?;
    for object in &ours {
        ready(suite, object)?;
    }
    let names: Vec<String> = ours.iter().map(|object| place(object)[..2].join(" ")).collect();
    Ok(format!("{} ready", names.join(", ")))
}

/// Every image that an object names by repository and tag.
fn images_of(object: &Value) -> Vec<String> {
    match object {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let own = text("repository").zip(text("tag")).map(|(repository, tag)| format!("{repository}:{tag}"));
            own.into_iter().chain(fields.values().flat_map(images_of)).collect()
        }
        Value::Array(items) => items.iter().flat_map(images_of).collect(),
        _ => Vec::new(),
    }
}

/// Waits until an object says that it is ready.
pub(super) fn ready(suite: &Suite, object: &Value) -> Result<()> {
    let place = place(object);
    let args: Vec<&str> = ["get"].into_iter().chain(place.iter().map(String::as_str)).collect();
    let mut last = Value::Null;
    let result = suite.wait(&format!("{} is not ready", place.join(" ")), || {
        last = suite.json(&args)?;
        let state = last["status"]["state"].as_str().unwrap_or_default();
        let observed = &last["status"]["conditions"][0]["observedGeneration"];
        let current = observed.is_null() || *observed == last["metadata"]["generation"];
        Ok(state.eq_ignore_ascii_case("ready") && current)
    });
    result.with_context(|| format!("status: {}", last["status"]))
}

/// Asks every model server through its Service for its models.
pub(super) fn served(suite: &Suite) -> Result<String> {
    let mut asked = Vec::new();
    for object in ours(suite)?.iter().filter(|object| object["kind"] == "NIMService") {
        let [_, name, _, namespace] = place(object);
        let service = suite.json(&["get", "service", &name, "-n", &namespace])?;
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let port = service["spec"]["ports"][0]["port"].as_u64().unwrap_or_default();
        let url = format!("{address}:{port}");
        suite.wait(&format!("{url} does not answer"), || Ok(get(&url, "/v1/models")?.contains("example/model")))?;
        asked.push(url);
    }
    if asked.is_empty() {
        bail!("no example is a NIMService");
    }
    Ok(format!("/v1/models answers at {}", asked.join(", ")))
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse()?, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Deletes what the files made; what the operator made of it goes as well.
pub(super) fn delete(suite: &Suite) -> Result<String> {
    let folder = suite.root.join("examples").display().to_string();
    let patience = format!("--timeout={}s", PATIENCE.as_secs());
    suite.kubectl(&["delete", "--recursive", "-f", &folder, &patience, "--request-timeout=0"])?;
    for resource in ["deployments.apps", "persistentvolumeclaims"] {
        let list = suite.json(&["get", resource, "-A", "-l", "app.kubernetes.io/managed-by=k8s-nim-operator"])?;
        if let Some(left) = list["items"].as_array().and_then(|items| items.first()) {
            bail!("{resource} {} is still there", name(left));
        }
    }
    Ok("with everything that they had made".into())
}

/// Identities and versions of what the operator takes care of.
pub(super) fn versions(suite: &Suite, field: &str) -> Result<Vec<String>> {
    let kinds = "nimservices,deployments,services,serviceaccounts,roles,rolebindings,persistentvolumeclaims";
    let mut all = Vec::new();
    let mut namespaces: Vec<String> = ours(suite)?.iter().map(|object| place(object)[3].clone()).collect();
    namespaces.sort();
    namespaces.dedup();
    for namespace in namespaces {
        let list = suite.json(&["get", kinds, "-n", &namespace])?;
        for object in list["items"].as_array().into_iter().flatten() {
            let meta = &object["metadata"];
            all.push(format!("{} {} {} {}", object["kind"], meta["name"], meta["uid"], meta[field]));
        }
    }
    all.sort();
    Ok(all)
}

/// The first NIMService of the examples, with another number of replicas.
pub(super) fn scale(suite: &Suite, replicas: u32) -> Result<Value> {
    let object = ours(suite)?.into_iter().find(|object| object["kind"] == "NIMService");
    let object = object.context("no example is a NIMService")?;
    let patch = json!({"spec": {"replicas": replicas}}).to_string();
    let place = place(&object);
    let args = ["patch", &place[0], &place[1], &place[2], &place[3], "--type=merge", "-p", &patch];
    suite.kubectl(&args)?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_wherever_they_are_named() {
        let object = json!({"spec": {
            "image": {"repository": "a/b", "tag": "1", "pullPolicy": "Always"},
            "services": [{"spec": {"image": {"repository": "c", "tag": "2"}}}],
            "other": {"repository": "without a tag"},
        }});
        assert_eq!(images_of(&object), ["a/b:1", "c:2"]);
    }
}
