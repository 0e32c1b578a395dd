//! Applies every file in `examples/` that needs no GPU driver unchanged: their images are replaced by our model server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{STEP_TIMEOUT, Suite, name};
use crate::cluster::{NODE, ctr, import};
use crate::image;

/// The model server.
const MODEL: &str = "capstan.local/model-server:1";
/// API groups of Kubernetes have no dot, or this suffix.
const BUILT_IN: &str = ".k8s.io";
const GPUS: &str = "32";
const VOLUMES: usize = 8;
/// Node label that download pods select.
const GPU_NODE: &str = "feature.node.kubernetes.io/pci-10de.present=true";
/// A hostPath of an example.
const HOST_FOLDER: &str = "/var/lib/models";

/// Examples that need what this cluster lacks, and the condition message that they must have.
const WAITING: &[(&str, &str)] = &[
    ("cached", "NIMCache llama-3-1-8b not found"),
    ("devices", "Waiting for deployment \"devices\""),
    ("kserve", "InferenceService"),
    ("multi-node", "LeaderWorkerSet"),
];

/// Builds the images and imports them on the node.
pub(super) fn images(suite: &Suite) -> Result<String> {
    let model = suite.root.join("target/image/model-server.tar");
    image::model_server(&suite.root, &model, MODEL, &suite.build)?;
    import(&model)?;
    image(suite)
}

/// The same for the capstan image alone.
pub(super) fn image(suite: &Suite) -> Result<String> {
    let operator = suite.root.join("target/image/capstan.tar");
    let digest = image::capstan(&suite.root, &operator, image::TAG, &suite.build)?;
    import(&operator)?;
    let bytes = std::fs::metadata(&operator)?.len();
    Ok(format!("{} {}, {} MB", image::TAG, &digest[..19.min(digest.len())], bytes / 1_000_000))
}

/// Adds GPU capacity, without devices, to the node, and volumes to the cluster.
pub(super) fn hardware(suite: &Suite) -> Result<String> {
    let patch = json!({"status": {"capacity": {"nvidia.com/gpu": GPUS}}}).to_string();
    suite.kubectl(&["patch", "node", NODE, "--subresource=status", "--type=merge", "-p", &patch])?;
    suite.wait("the node has no GPUs", || {
        let node = suite.json(&["get", "node", NODE])?;
        Ok(node["status"]["allocatable"]["nvidia.com/gpu"] == GPUS)
    })?;
    suite.kubectl(&["label", "node", NODE, GPU_NODE, "--overwrite"])?;
    suite.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
    }))?;
    for number in 0..VOLUMES {
        let path = suite.home.join(format!("volumes/{number}"));
        std::fs::create_dir_all(&path)?;
        // The ownership of a hostPath is not changed for pods.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        suite.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("volume-{number}")},
            "spec": {
                "capacity": {"storage": "500Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "storageClassName": "standard", "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": path, "type": "Directory"},
            },
        }))?;
    }
    Ok(format!("{GPUS} GPUs, {VOLUMES} volumes"))
}

/// The examples that can run here; those of `examples/gpu` have their own step.
fn files(suite: &Suite) -> [String; 2] {
    ["nimservice.yaml", "nim"].map(|name| suite.root.join("examples").join(name).display().to_string())
}

/// Objects of files and directories.
pub(super) fn objects(suite: &Suite, files: &[&str]) -> Result<Vec<Value>> {
    let files = files.iter().flat_map(|file| ["-f", file]);
    let args: Vec<&str> =
        ["create", "--dry-run=client", "--recursive", "-o", "json"].into_iter().chain(files).collect();
    let text = suite.kubectl(&args)?;
    // Concatenated JSON documents.
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    objects.collect::<Result<_, _>>().context("kubectl printed no JSON")
}

/// Whether an object is of one of our kinds.
pub(super) fn is_ours(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group);
    group.contains('.') && !group.ends_with(BUILT_IN)
}

/// Objects of our kinds.
fn ours(suite: &Suite) -> Result<Vec<Value>> {
    let [service, folder] = files(suite);
    Ok(objects(suite, &[&service, &folder])?.into_iter().filter(is_ours).collect())
}

/// Kind, name and namespace arguments of kubectl.
fn place(object: &Value) -> [String; 4] {
    let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
    let kind = text(&object["kind"], "");
    [kind, name(object), "-n".into(), text(&object["metadata"]["namespace"], "default")]
}

/// Applies the files and waits until all custom resources are ready.
pub(super) fn apply(suite: &Suite) -> Result<String> {
    // The operator has just started, and installs the CRDs.
    suite.wait("our kinds are not served", || Ok(ours(suite).is_ok()))?;
    let ours = ours(suite)?;
    let pullers = ours.iter().flat_map(|object| texts(object, "modelPuller"));
    for image in ours.iter().flat_map(images_of).chain(pullers) {
        // There is no registry to pull it from.
        ctr(&["images", "tag", "--force", MODEL, &image])?;
    }
    for object in &ours {
        create_references(suite, object)?;
    }
    let [service, folder] = files(suite);
    suite.kubectl(&["apply", "--recursive", "-f", &service, "-f", &folder])?;
    let (mut served, mut waiting) = (Vec::new(), Vec::new());
    for object in &ours {
        match expected_message(object) {
            None => {
                ready(suite, object)?;
                served.push(name(object));
            }
            Some(words) => {
                until_condition_contains(suite, object, words)?;
                waiting.push(name(object));
            }
        }
    }
    Ok(format!("{} ready; {} say what they wait for", served.join(", "), waiting.join(", ")))
}

/// The condition message of an example that cannot become ready here.
pub(super) fn expected_message(object: &Value) -> Option<&'static str> {
    WAITING.iter().find(|(waits, _)| *waits == name(object)).map(|(_, words)| *words)
}

/// Secrets and ConfigMaps that an object references, as kind and name.
fn references(object: &Value) -> Vec<(&'static str, String)> {
    let named = |kind, field| texts(object, field).into_iter().map(move |name| (kind, name));
    named("Secret", "authSecret").chain(named("ConfigMap", "certConfigMap")).collect()
}

/// Creates them, unless an example does.
fn create_references(suite: &Suite, object: &Value) -> Result<()> {
    let [_, _, _, namespace] = place(object);
    let [service, folder] = files(suite);
    let made = objects(suite, &[&service, &folder])?;
    for (kind, named) in references(object) {
        if made.iter().any(|made| made["kind"] == kind && name(made) == named && place(made)[3] == namespace) {
            continue;
        }
        let (field, key) = if kind == "Secret" { ("stringData", "NGC_API_KEY") } else { ("data", "ca.crt") };
        suite.apply(&json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": named, "namespace": namespace},
            field: {key: "example"},
        }))?;
    }
    Ok(())
}

/// Every text in a field of that name, at any depth.
fn texts(object: &Value, field: &str) -> Vec<String> {
    match object {
        Value::Object(fields) => {
            let own = fields.get(field).and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(|value| texts(value, field))).collect()
        }
        Value::Array(items) => items.iter().flat_map(|value| texts(value, field)).collect(),
        _ => Vec::new(),
    }
}

/// Waits until a condition message of an object contains this text.
pub(super) fn until_condition_contains(suite: &Suite, object: &Value, words: &str) -> Result<()> {
    conditions(suite, object, &format!("say {words:?}"), |one| {
        one["message"].as_str().is_some_and(|text| text.contains(words))
    })
}

/// Waits until an object is ready, or has a message why not.
pub(super) fn until_ready_or_explained(suite: &Suite, object: &Value) -> Result<()> {
    conditions(suite, object, "say how it is", |one| {
        one["message"].as_str().is_some_and(|text| !text.is_empty()) && one["reason"] != "PredecessorGoing"
    })
}

/// Waits until a condition of an object matches.
fn conditions(suite: &Suite, object: &Value, what: &str, good: impl Fn(&Value) -> bool) -> Result<()> {
    let place = place(object);
    let args: Vec<&str> = ["get"].into_iter().chain(place.iter().map(String::as_str)).collect();
    let mut last = Value::Null;
    let result = suite.wait(&format!("{} does not {what}", place.join(" ")), || {
        last = suite.json(&args)?;
        Ok(last["status"]["conditions"].as_array().into_iter().flatten().any(&good))
    });
    result.with_context(|| format!("status: {}", last["status"]))
}

/// Every image that an object references by repository and tag.
fn images_of(object: &Value) -> Vec<String> {
    match object {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let own = text("repository").zip(text("tag")).map(|(repository, tag)| full_name(repository, tag));
            own.into_iter().chain(fields.values().flat_map(images_of)).collect()
        }
        Value::Array(items) => items.iter().flat_map(images_of).collect(),
        _ => Vec::new(),
    }
}

/// The full name of an image: without a registry it is Docker Hub's.
fn full_name(repository: &str, tag: &str) -> String {
    match repository.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => format!("{repository}:{tag}"),
        Some(_) => format!("docker.io/{repository}:{tag}"),
        None => format!("docker.io/library/{repository}:{tag}"),
    }
}

/// Waits until an object is ready.
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

/// Lists the models of every model server through its Service.
pub(super) fn served(suite: &Suite) -> Result<String> {
    let mut urls = Vec::new();
    let ours = ours(suite)?;
    for object in ours.iter().filter(|object| object["kind"] == "NIMService" && expected_message(object).is_none()) {
        let [_, name, _, namespace] = place(object);
        let service = suite.json(&["get", "service", &name, "-n", &namespace])?;
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        let port = service["spec"]["ports"][0]["port"].as_u64().unwrap_or_default();
        let url = format!("{address}:{port}");
        suite.wait(&format!("{url} does not answer"), || Ok(get(&url, "/v1/models")?.contains("example/model")))?;
        urls.push(url);
    }
    if urls.is_empty() {
        bail!("no example is a NIMService");
    }
    // The operator probes it as well, and reports the model shortly after.
    suite.wait("a service does not say which model it serves", || {
        let list = suite.json(&["get", "nimservices", "-A"])?;
        let ready = list["items"].as_array().into_iter().flatten().filter(|one| one["status"]["state"] == "Ready");
        Ok(ready.into_iter().all(|one| one["status"]["model"]["name"] == "example/model"))
    })?;
    Ok(format!("/v1/models answers at {} services", urls.len()))
}

/// Response of an HTTP GET.
pub(super) fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.parse()?, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Deletes the objects of the files; the operator's objects are deleted as well.
pub(super) fn delete(suite: &Suite) -> Result<String> {
    let [service, folder] = files(suite);
    let (timeout, brought) = (format!("--timeout={}s", STEP_TIMEOUT.as_secs()), ours(suite)?);
    suite.kubectl(&["delete", "--recursive", "-f", &service, "-f", &folder, &timeout, "--request-timeout=0"])?;
    let retained = |object: &&Value| object["metadata"]["annotations"]["nvidia.com/pvc-retention"] == "Retain";
    for cache in brought.iter().filter(retained) {
        let [_, name, _, namespace] = place(cache);
        suite.kubectl(&["delete", "persistentvolumeclaim", &format!("{name}-pvc"), "-n", &namespace])?;
    }
    for resource in ["deployments.apps", "persistentvolumeclaims", "jobs.batch", "pods", "configmaps"] {
        let ours = "app.kubernetes.io/managed-by=k8s-nim-operator";
        suite.wait(&format!("{resource} are left"), || {
            let list = suite.json(&["get", resource, "-A", "-l", ours])?;
            Ok(list["items"].as_array().is_none_or(Vec::is_empty))
        })?;
    }
    for object in &brought {
        let [_, _, _, namespace] = place(object);
        for (kind, named) in references(object) {
            suite.kubectl(&["delete", kind, &named, "-n", &namespace, "--ignore-not-found"])?;
        }
    }
    // Created by the node for a pod; kept if it is not empty.
    let _ = std::fs::remove_dir(HOST_FOLDER);
    Ok("with everything that they had made".into())
}

/// UIDs and versions of the operator's objects.
pub(super) fn versions(suite: &Suite, field: &str) -> Result<Vec<String>> {
    let kinds = "nimservices,nimcaches,nimbuilds,nimpipelines,deployments,services,serviceaccounts,roles,rolebindings,persistentvolumeclaims,\
                 configmaps";
    let mut all = Vec::new();
    let mut namespaces: Vec<String> = ours(suite)?.iter().map(|object| place(object)[3].clone()).collect();
    namespaces.sort();
    namespaces.dedup();
    for namespace in namespaces {
        let list = suite.json(&["get", kinds, "-n", &namespace])?;
        for object in list["items"].as_array().into_iter().flatten() {
            let meta = &object["metadata"];
            // Conditions of waiting objects may change over time, and the status of a Deployment changes with its pods.
            let is_written_by_us = is_settled(object) && object["kind"] != "Deployment";
            let field = if is_written_by_us { field } else { "generation" };
            all.push(format!("{} {} {} {}", object["kind"], meta["name"], meta["uid"], meta[field]));
        }
    }
    all.sort();
    Ok(all)
}

/// Whether an object has reached its final state.
fn is_settled(object: &Value) -> bool {
    let status = &object["status"];
    let waits = status["unavailableReplicas"].as_u64().is_some_and(|count| count > 0);
    !waits && status["state"].as_str().is_none_or(|state| state.eq_ignore_ascii_case("ready"))
}

/// Scales the first NIMService of the examples with one replica.
pub(super) fn scale(suite: &Suite, replicas: u32) -> Result<Value> {
    let runs_once = |object: &Value| object["spec"]["replicas"] == 1 && expected_message(object).is_none();
    let object = ours(suite)?.into_iter().find(|object| object["kind"] == "NIMService" && runs_once(object));
    let object = object.context("no example is a NIMService that runs once")?;
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
    fn keys_are_found_wherever_they_are_named() {
        let object = json!({"spec": {
            "source": {"ngc": {"authSecret": "a"}}, "proxy": {"certConfigMap": "c"},
            "services": [{"spec": {"authSecret": "b"}}],
        }});
        let mut found = references(&object);
        found.sort();
        assert_eq!(found, [("ConfigMap", "c".to_owned()), ("Secret", "a".into()), ("Secret", "b".into())]);
    }

    #[test]
    fn images_are_found_wherever_they_are_named() {
        let object = json!({"spec": {
            "image": {"repository": "a/b", "tag": "1", "pullPolicy": "Always"},
            "services": [{"spec": {"image": {"repository": "nvcr.io/c", "tag": "2"}}}],
            "other": {"repository": "without a tag"},
        }});
        assert_eq!(images_of(&object), ["docker.io/a/b:1", "nvcr.io/c:2"]);
    }
}
