//! Claims and volumes: binding, provisioning, expansion, protection.

use std::sync::Arc;

use capstan_sim::Pod;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::world::{World, phase};

fn claim(name: &str, more: Value) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": name}, "spec": spec})
}

fn volume(name: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "storageClassName": "by-hand", "hostPath": {"path": "/data"},
    }})
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "main", "image": "v1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    }})
}

fn live(world: &World, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
    world.caches().volume_claims.find("default", name)
}

/// Phase and volume of a claim.
fn state(world: &World, name: &str) -> (String, String) {
    let claim = live(world, name).unwrap();
    let volume = claim.spec.as_ref().unwrap().volume_name.clone().unwrap_or_default();
    (claim.status.as_ref().unwrap().phase.clone().unwrap_or_default(), volume)
}

fn volume_phase(world: &World, name: &str) -> Option<String> {
    world.caches().volumes.get(name)?.status.as_ref()?.phase.clone()
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_the_smallest_volume_that_suits() {
    let world = World::new(1).await;
    for (name, size) in [("small", "1Gi"), ("large", "100Gi"), ("right", "8Gi")] {
        world.create::<PersistentVolume>(volume(name, size)).await;
    }
    world.create::<PersistentVolumeClaim>(claim("data", json!({"storageClassName": "by-hand"}))).await;
    world.wait(5).await;
    assert_eq!(state(&world, "data"), ("Bound".into(), "right".into()));
    let bound = live(&world, "data").unwrap();
    assert_eq!(bound.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "8Gi");
    assert_eq!(bound.metadata.annotations.as_ref().unwrap()["pv.kubernetes.io/bind-completed"], "yes");
    let phases = ["small", "large", "right"].map(|name| volume_phase(&world, name).unwrap());
    assert_eq!(phases, ["Available", "Available", "Bound"]);

    world.delete(&*bound).await.unwrap();
    world.wait(5).await;
    assert!(live(&world, "data").is_none());
    assert_eq!(volume_phase(&world, "right").as_deref(), Some("Released"));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_for_a_claim_grows_with_it_and_goes_with_it() {
    let world = World::new(1).await;
    world.add_storage_class("Immediate").await;
    let made = world.create::<PersistentVolumeClaim>(claim("data", json!({}))).await;
    world.wait(5).await;
    let name = format!("pvc-{}", made.metadata.uid.as_ref().unwrap());
    assert_eq!(state(&world, "data"), ("Bound".into(), name.clone()));
    assert_eq!(live(&world, "data").unwrap().spec.as_ref().unwrap().storage_class_name.as_deref(), Some("fast"));
    let events = world.events("data").await;
    assert_eq!(events.last().unwrap(), &format!("ProvisioningSucceeded: Successfully provisioned volume {name}"));

    let more = json!({"spec": {"resources": {"requests": {"storage": "10Gi"}}}});
    world.patch::<PersistentVolumeClaim>("data", more).await;
    world.wait(5).await;
    let capacity = live(&world, "data").unwrap().status.as_ref().unwrap().capacity.clone().unwrap();
    assert_eq!(capacity["storage"].0, "10Gi");
    let volume = world.caches().volumes.get(&name).unwrap();
    assert_eq!(volume.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "10Gi");
    world.assert_settled().await;

    world.delete(&*live(&world, "data").unwrap()).await.unwrap();
    world.wait(5).await;
    assert_eq!((world.caches().volume_claims.len(), world.caches().volumes.len()), (0, 0));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_its_pod_and_stays_while_it_is_used() {
    let world = World::new(2).await;
    world.add_storage_class("WaitForFirstConsumer").await;
    let made = world.create::<PersistentVolumeClaim>(claim("data", json!({}))).await;
    world.wait(60).await;
    assert_eq!(state(&world, "data"), ("Pending".into(), String::new()));
    world.assert_settled().await;
    let user = world.create::<Pod>(pod("user", "data")).await;
    world.wait(10).await;
    assert_eq!(state(&world, "data").0, "Bound");
    assert_eq!(phase(&world.caches().pods.get("default/user").unwrap()), "Running");

    world.delete(&*made).await.unwrap();
    world.wait(10).await;
    assert!(live(&world, "data").unwrap().metadata.deletion_timestamp.is_some());
    world.delete(&*user).await.unwrap();
    world.wait(10).await;
    assert!(live(&world, "data").is_none());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_gets_the_default_that_comes_later() {
    let world = World::new(1).await;
    world.create::<PersistentVolumeClaim>(claim("data", json!({}))).await;
    world.wait(5).await;
    let events = world.events("data").await;
    let message = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!(events, [message]);
    world.add_storage_class("Immediate").await;
    world.wait(5).await;
    assert_eq!(state(&world, "data").0, "Bound");
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_comes_and_goes_with_its_pod() {
    let world = World::new(1).await;
    world.add_storage_class("WaitForFirstConsumer").await;
    let spec = claim("", json!({}))["spec"].clone();
    let user = world
        .create::<Pod>(json!({"metadata": {"name": "user"}, "spec": {
            "containers": [{"name": "main", "image": "v1"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}],
        }}))
        .await;
    world.wait(10).await;
    assert_eq!(state(&world, "user-scratch").0, "Bound");
    assert_eq!(phase(&world.caches().pods.get("default/user").unwrap()), "Running");
    world.delete(&*user).await.unwrap();
    world.wait(10).await;
    assert_eq!((world.caches().volume_claims.len(), world.caches().volumes.len()), (0, 0));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_volume_is_gone_is_lost() {
    let world = World::new(1).await;
    world.create::<PersistentVolume>(volume("disk", "8Gi")).await;
    world.create::<PersistentVolumeClaim>(claim("data", json!({"storageClassName": "by-hand"}))).await;
    world.wait(5).await;
    let disk = world.caches().volumes.get("disk").unwrap();
    world.delete(&*disk).await.unwrap();
    world.wait(5).await;
    assert_eq!(volume_phase(&world, "disk").as_deref(), Some("Bound"), "a volume in use stays");
    let gone = json!({"metadata": {"finalizers": null}});
    let kind = capstan_apiserver::ops::PatchKind::Merge;
    world.user.patch::<PersistentVolume>(None, "disk", None, kind, gone).await.unwrap();
    world.wait(5).await;
    assert_eq!(state(&world, "data"), ("Lost".into(), "disk".into()));
    world.assert_settled().await;
}
