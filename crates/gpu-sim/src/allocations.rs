//! Device allocations: which container holds which devices, as the kubelet's device manager and pod-resources API
//! report.

use std::collections::{BTreeMap, BTreeSet};

use capstan_kubelet::fake::{Kubelet, Plugin};
use capstan_kubelet::pod_resources::{ContainerDevices, ContainerResources, PodResources};
use capstan_node::paths;
use capstan_sim::UserInfo;
use capstan_sim::node::NodeHandle;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};

/// Allocated devices by resource, pod UID and container name.
type Held = BTreeMap<(String, String, String), Vec<String>>;

/// Allocates devices to the containers of a node while they run.
pub(crate) async fn allocate_devices(node: &NodeHandle, kubelet: &Kubelet) {
    let Some(host) = node.host().path() else { return };
    let socket = host.join(paths::POD_RESOURCES_SOCKET.trim_start_matches('/'));
    let made = socket.parent().map_or(Ok(()), std::fs::create_dir_all);
    if let Err(error) = made.and_then(|()| kubelet.listen_on(&socket)) {
        tracing::error!(node = node.name(), %error, "pod-resources socket not served");
    }
    let user = UserInfo::new(format!("system:node:{}", node.name()), &["system:masters"]);
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.name()));
    let (reader, writer) = reflector::store();
    let pods = watcher(Api::<Pod>::all(node.client_of(user, "default")), config).default_backoff();
    let mut changes = pods.reflect(writer).boxed();
    let mut held = Held::new();
    while changes.next().await.is_some() {
        let pods: Vec<Pod> = reader.state().iter().map(|pod| (**pod).clone()).filter(is_running).collect();
        for (resource, ids) in reconcile_allocations(&mut held, &pods, &kubelet.plugins()) {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            if let Err(error) = kubelet.allocate(&resource, &ids).await {
                tracing::warn!(node = node.name(), resource, %error, "device plugin refused allocation");
            }
        }
        kubelet.set_pods(pod_resources(&held, &pods));
    }
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Running"))
}

/// Device requests of a container, by resource.
fn device_requests(container: &Container) -> impl Iterator<Item = (&String, usize)> {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    limits.filter_map(|(resource, count)| Some((resource, count.0.parse().ok().filter(|count| *count > 0)?)))
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

/// Releases the devices of deleted pods, and allocates free healthy devices to containers without any. Returns the new
/// allocations.
fn reconcile_allocations(
    held: &mut Held,
    pods: &[Pod],
    plugins: &BTreeMap<String, Plugin>,
) -> Vec<(String, Vec<String>)> {
    let existing: BTreeSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
    held.retain(|(uid, ..), _| existing.contains(uid));
    let mut new = Vec::new();
    for pod in pods {
        for container in containers(pod) {
            for (resource, count) in device_requests(container) {
                let key = (pod.uid().unwrap_or_default(), container.name.clone(), resource.clone());
                let Some(plugin) = plugins.get(resource).filter(|_| !held.contains_key(&key)) else { continue };
                let taken: BTreeSet<&String> = held.values().flatten().collect();
                let free = plugin.healthy().into_iter().filter(|id| !taken.contains(&(*id).to_owned()));
                let ids: Vec<String> = free.take(count).map(str::to_owned).collect();
                if ids.len() == count {
                    held.insert(key, ids.clone());
                    new.push((resource.clone(), ids));
                }
            }
        }
    }
    new
}

/// Allocations as the pod-resources API lists them.
fn pod_resources(held: &Held, pods: &[Pod]) -> Vec<PodResources> {
    let of = |pod: &Pod| {
        let uid = pod.uid().unwrap_or_default();
        let containers = containers(pod).map(|container| {
            let mine = held.iter().filter(|((owner, name, _), _)| (owner, name) == (&uid, &container.name));
            let devices = mine.map(|((.., resource), ids)| ContainerDevices {
                resource_name: resource.clone(),
                device_ids: ids.clone(),
            });
            ContainerResources { name: container.name.clone(), devices: devices.collect(), ..Default::default() }
        });
        let containers = containers.collect();
        PodResources { name: pod.name_any(), namespace: pod.namespace().unwrap_or_default(), containers }
    };
    pods.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use capstan_kubelet::device_plugin::{Device, HEALTHY, UNHEALTHY};
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, gpus: &str) -> Pod {
        let container = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": "2"}}});
        serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": [container]},
        }))
        .unwrap()
    }

    #[test]
    fn devices_are_held_by_one_container_until_it_is_gone() {
        let device = |id: &str, health: &str| Device { id: id.into(), health: health.into(), ..Device::default() };
        let devices = vec![device("a", HEALTHY), device("b", UNHEALTHY), device("c", HEALTHY)];
        let plugin = Plugin { endpoint: String::new(), devices, registrations: 1, lists: 1, stopped: false };
        let plugins = BTreeMap::from([("nvidia.com/gpu".to_owned(), plugin)]);
        let (mut held, pods) = (Held::new(), [pod("one", "1"), pod("two", "1"), pod("three", "1")]);
        let gpu = |id: &str| ("nvidia.com/gpu".to_owned(), vec![id.to_owned()]);
        assert_eq!(reconcile_allocations(&mut held, &pods, &plugins), [gpu("a"), gpu("c")]);
        assert_eq!(reconcile_allocations(&mut held, &pods, &plugins), []);
        assert_eq!(pod_resources(&held, &pods[..1])[0].containers[0].devices[0].device_ids, ["a"]);
        assert_eq!(reconcile_allocations(&mut held, &pods[1..], &plugins), [gpu("a")], "it is free again");
    }
}
