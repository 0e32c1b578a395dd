//! Services and their endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::world::{World, template};

fn service(more: Value) -> Value {
    let mut spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": spec})
}

fn deployment(replicas: i32, image: &str) -> Value {
    let mut template = template("web", image);
    template["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 8080}]);
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template,
    }})
}

/// The slices of the service.
fn slices(world: &World) -> Vec<Arc<EndpointSlice>> {
    let mut slices = world.caches().endpoint_slices.in_namespace("default");
    slices.retain(|slice| slice.metadata.labels.as_ref().unwrap()["kubernetes.io/service-name"] == "web");
    slices
}

/// Ready and other addresses in slices, and in the Endpoints object.
fn counts(world: &World) -> [(usize, usize); 2] {
    let slices = slices(world);
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.clone().unwrap_or_default());
    let (ready, not): (Vec<_>, Vec<_>) =
        endpoints.partition(|one| one.conditions.as_ref().unwrap().ready == Some(true));
    let legacy = world.caches().endpoints.find("default", "web");
    let subsets = legacy.and_then(|one| one.subsets.clone()).unwrap_or_default();
    let sum = |list: fn(&k8s_openapi::api::core::v1::EndpointSubset) -> usize| subsets.iter().map(list).sum();
    let up = sum(|subset| subset.addresses.as_ref().map_or(0, Vec::len));
    let down = sum(|subset| subset.not_ready_addresses.as_ref().map_or(0, Vec::len));
    [(ready.len(), not.len()), (up, down)]
}

#[tokio::test(start_paused = true)]
async fn slices_and_endpoints_follow_the_pods() {
    let world = World::new(2).await;
    world.create::<Service>(service(json!({}))).await;
    world.wait(5).await;
    assert_eq!((slices(&world).len(), counts(&world)), (1, [(0, 0), (0, 0)]));
    world.create::<Deployment>(deployment(3, "v1")).await;
    world.wait(20).await;
    assert_eq!(counts(&world), [(3, 0), (3, 0)]);
    let slice = &slices(&world)[0];
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!((labels["kubernetes.io/service-name"].as_str(), labels["team"].as_str()), ("web", "a"));
    let port = &slice.ports.as_ref().unwrap()[0];
    assert_eq!((port.port, port.protocol.as_deref()), (Some(8080), Some("TCP")));
    world.assert_settled().await;
    world.patch::<Deployment>("web", json!({"spec": {"replicas": 1}})).await;
    world.wait(20).await;
    assert_eq!(counts(&world), [(1, 0), (1, 0)]);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_are_told_apart() {
    let world = World::new(2).await;
    world.create::<Service>(service(json!({}))).await;
    world.create::<Deployment>(deployment(2, "never")).await;
    world.wait(20).await;
    assert_eq!(counts(&world), [(0, 2), (0, 2)]);
    world.patch::<Service>("web", json!({"spec": {"publishNotReadyAddresses": true}})).await;
    world.wait(20).await;
    assert_eq!(counts(&world), [(2, 0), (2, 0)]);
}

#[tokio::test(start_paused = true)]
async fn a_slice_holds_a_hundred() {
    let world = World::new(4).await;
    world.create::<Service>(service(json!({}))).await;
    world.create::<Deployment>(deployment(250, "v1")).await;
    world.wait(60).await;
    assert_eq!(counts(&world)[0], (250, 0));
    let slices = slices(&world);
    let sizes: Vec<_> = slices.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
    assert!(sizes.len() >= 3 && sizes.iter().all(|size| *size <= 100), "{sizes:?}");
    let names: BTreeSet<_> = slices
        .iter()
        .flat_map(|slice| slice.endpoints.clone().unwrap())
        .map(|one| one.target_ref.unwrap().name.unwrap())
        .collect();
    assert_eq!(names.len(), 250);
    world.assert_settled().await;
    let service = world.caches().services.find("default", "web").unwrap();
    world.delete(&*service).await.unwrap();
    world.wait(10).await;
    assert!(self::slices(&world).is_empty());
    assert!(world.caches().endpoints.find("default", "web").is_none());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_users_write_have_slices() {
    let world = World::new(0).await;
    let ports = json!([{"name": "db", "port": 5432}]);
    world.create::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": ports}})).await;
    let subset = |up: Value| json!({"addresses": up, "notReadyAddresses": [{"ip": "192.0.2.9"}], "ports": ports});
    let two = json!([{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]);
    world.create::<Endpoints>(json!({"metadata": {"name": "web"}, "subsets": [subset(two)]})).await;
    world.wait(5).await;
    let mut families: Vec<_> = slices(&world).iter().map(|slice| slice.address_type.clone()).collect();
    families.sort_unstable();
    assert_eq!((families, counts(&world)[0]), (vec!["IPv4".to_owned(), "IPv6".to_owned()], (2, 1)));
    let port = &slices(&world)[0].ports.clone().unwrap()[0];
    assert_eq!((port.name.as_deref(), port.port, port.protocol.as_deref()), (Some("db"), Some(5432), Some("TCP")));
    world.assert_settled().await;
    world.patch::<Endpoints>("web", json!({"subsets": [subset(json!([{"ip": "192.0.2.2"}]))]})).await;
    world.wait(5).await;
    assert_eq!((slices(&world).len(), counts(&world)[0]), (1, (1, 1)));
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    world.patch::<Endpoints>("web", skip).await;
    world.wait(5).await;
    assert!(slices(&world).is_empty());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn the_service_of_the_api_has_endpoints() {
    let world = World::new(0).await;
    let slice = world.caches().endpoint_slices.get("default/kubernetes").unwrap();
    let legacy = world.caches().endpoints.get("default/kubernetes").unwrap();
    let port = slice.ports.as_ref().unwrap()[0].port;
    assert_eq!(
        (port, slice.endpoints.as_ref().unwrap()[0].addresses.as_slice()),
        (Some(6443), &["172.16.0.1".to_owned()][..])
    );
    assert_eq!(legacy.subsets.as_ref().unwrap()[0].ports.as_ref().unwrap()[0].port, 6443);
    world.assert_settled().await;
}
