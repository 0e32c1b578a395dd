//! Components: containers of our workloads, and the images that their pods run.

use std::collections::{BTreeMap, BTreeSet};

use capstan_runtime::kinds::{MANAGED_BY, MANAGERS};
use serde::Serialize;
use serde_json::Value;

use crate::snapshot::{Snapshot, named};
use crate::status::operator;

/// A container of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Its namespace.
    pub namespace: String,
    /// Its workload: `DaemonSet nvidia-driver-daemonset`.
    pub workload: String,
    /// The name of the container.
    pub container: String,
    /// The desired image.
    pub wanted: Image,
    /// Images of its pods, with pod counts.
    pub running: Vec<Running>,
    /// Whether a pod runs another image than desired, or pods of one tag have different digests.
    pub differs: bool,
}

/// An image reference in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Image {
    /// Registry and path: `nvcr.io/nvidia`.
    pub repository: String,
    /// `driver`.
    pub image: String,
    /// Tag or digest.
    pub version: String,
}

/// An image that some pods run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Running {
    /// Tag or digest.
    pub version: String,
    /// The full reference, if it differs from the desired one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Digest of the pulled image; empty before the pull.
    pub digest: String,
    /// Number of pods.
    pub pods: usize,
}

impl Image {
    /// Parses an image reference: `nvcr.io/nvidia/driver:580.65.06`.
    pub(super) fn parse(text: &str) -> Self {
        let (path, version) = match text.split_once('@') {
            Some((path, digest)) => (path, digest),
            // A colon before a slash belongs to a port.
            None => match text.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
                Some((path, tag)) => (path, tag),
                None => (text, "latest"),
            },
        };
        let path = if text.contains('@') {
            path.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(path, |(path, _)| path)
        } else {
            path
        };
        let (repository, image) = path.rsplit_once('/').unwrap_or(("", path));
        Self { repository: repository.into(), image: image.into(), version: version.into() }
    }
}

pub(super) fn of(snapshot: &Snapshot) -> Vec<Component> {
    let pods = pods_by_workload(snapshot);
    let kinds = ["Deployment", "DaemonSet", "StatefulSet"].into_iter();
    let workloads = kinds.flat_map(|kind| snapshot.of("apps", kind).iter().map(move |one| (kind, one)));
    let operator = operator::deployment(snapshot).map(named);
    let ours = workloads.filter(|(kind, one)| is_ours(one) || (*kind == "Deployment" && Some(named(one)) == operator));
    let mut all = Vec::new();
    for (kind, workload) in ours {
        let (namespace, name) = named(workload);
        let own = pods.get(&(kind, namespace.to_owned(), name.to_owned())).map(Vec::as_slice).unwrap_or_default();
        for container in containers(&workload["spec"]["template"]["spec"]) {
            all.push(component(namespace, &format!("{kind} {name}"), container, own));
        }
    }
    all.sort_by(|one, other| {
        (&one.namespace, &one.workload, &one.container).cmp(&(&other.namespace, &other.workload, &other.container))
    });
    all
}

/// Whether a workload is created by us or owned by our custom resources.
fn is_ours(workload: &Value) -> bool {
    let meta = &workload["metadata"];
    let labelled = meta["labels"][MANAGED_BY].as_str().is_some_and(|manager| MANAGERS.contains(&manager));
    let owners = meta["ownerReferences"].as_array().into_iter().flatten();
    let owned = |owner: &Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
        capstan_api::kinds().any(|kind| Some(kind.group) == group && owner["kind"] == kind.kind)
    };
    labelled || owners.into_iter().any(owned)
}

/// Containers of a pod or a template, init containers first.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|field| spec[field].as_array().into_iter().flatten())
}

/// Kind, namespace and name of a workload.
type Workload = (&'static str, String, String);

/// Pods by workload, without terminated ones.
fn pods_by_workload(snapshot: &Snapshot) -> BTreeMap<Workload, Vec<&Value>> {
    let owner = |object: &Value, kind: &str| -> Option<String> {
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find(|one| one["kind"] == kind)?["name"].as_str().map(str::to_owned)
    };
    let sets = snapshot.of("apps", "ReplicaSet").iter();
    let sets: BTreeMap<(&str, &str), String> =
        sets.filter_map(|set| Some((named(set), owner(set, "Deployment")?))).collect();
    let mut all: BTreeMap<Workload, Vec<&Value>> = BTreeMap::new();
    for pod in snapshot.of("", "Pod") {
        let namespace = named(pod).0;
        let of_set = || sets.get(&(namespace, owner(pod, "ReplicaSet")?.as_str())).cloned();
        let found = owner(pod, "DaemonSet")
            .map(|name| ("DaemonSet", name))
            .or_else(|| owner(pod, "StatefulSet").map(|name| ("StatefulSet", name)))
            .or_else(|| of_set().map(|name| ("Deployment", name)));
        let over = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
        if let Some((kind, name)) = found.filter(|_| !over) {
            all.entry((kind, namespace.to_owned(), name)).or_default().push(pod);
        }
    }
    all
}

fn component(namespace: &str, workload: &str, container: &Value, pods: &[&Value]) -> Component {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, desired) = (text(&container["name"]), text(&container["image"]));
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in pods {
        let Some(spec) = containers(&pod["spec"]).find(|one| one["name"] == container["name"]) else { continue };
        let statuses = ["initContainerStatuses", "containerStatuses"].into_iter();
        let mut statuses = statuses.flat_map(|field| pod["status"][field].as_array().into_iter().flatten());
        let status = statuses.find(|one| one["name"] == container["name"]);
        let digest = status.map(|status| digest(&text(&status["imageID"]))).unwrap_or_default();
        *counts.entry((text(&spec["image"]), digest)).or_default() += 1;
    }
    let digests: BTreeSet<&str> = counts
        .keys()
        .filter(|(image, _)| *image == desired)
        .map(|(_, digest)| digest.as_str())
        .filter(|digest| !digest.is_empty())
        .collect();
    let differs = digests.len() > 1 || counts.keys().any(|(image, _)| *image != desired);
    let running = counts.iter().map(|((image, digest), pods)| Running {
        version: Image::parse(image).version,
        image: (*image != desired).then(|| image.clone()),
        digest: digest.clone(),
        pods: *pods,
    });
    Component {
        namespace: namespace.into(),
        workload: workload.into(),
        container: name,
        wanted: Image::parse(&desired),
        running: running.collect(),
        differs,
    }
}

/// The digest of an `imageID`: `docker.io/x@sha256:…` or `sha256:…`.
fn digest(id: &str) -> String {
    let digest = id.rsplit_once('@').map_or(id, |(_, digest)| digest);
    if digest.contains(':') { digest.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_apart() {
        let parts = |text| {
            let Image { repository, image, version } = Image::parse(text);
            format!("{repository} {image} {version}")
        };
        assert_eq!(parts("nvcr.io/nvidia/driver:580.65.06"), "nvcr.io/nvidia driver 580.65.06");
        assert_eq!(parts("r.io:5000/a/b@sha256:12"), "r.io:5000/a b sha256:12");
        assert_eq!(parts("r.io:5000/a/b:v1@sha256:12"), "r.io:5000/a b sha256:12");
        assert_eq!(parts("r.io:5000/a/b"), "r.io:5000/a b latest");
        assert_eq!(parts("busybox"), " busybox latest");
    }

    #[test]
    fn a_digest_is_found_in_what_kubelets_say() {
        assert_eq!(digest("docker-pullable://r.io/a@sha256:12"), "sha256:12");
        assert_eq!(digest("sha256:12"), "sha256:12");
        assert_eq!(digest(""), "");
    }
}
