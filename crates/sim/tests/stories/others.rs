//! PodDisruptionBudgets, ResourceQuotas, ServiceAccounts, ResourceClaims, events.

use capstan_sim::Pod;
use capstan_sim::controllers::Settings;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use serde_json::{Value, json};

use crate::world::{World, template};

fn deployment(replicas: i32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v1"),
    }})
}

fn budget(world: &World) -> PodDisruptionBudgetStatus {
    let budget = world.caches().disruption_budgets.find("default", "web").unwrap();
    PodDisruptionBudgetStatus { conditions: None, ..budget.status.clone().unwrap_or_default() }
}

#[tokio::test(start_paused = true)]
async fn a_budget_counts_and_evictions_keep_to_it() {
    let world = World::new(2).await;
    world.create::<Deployment>(deployment(4)).await;
    let spec = json!({"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}});
    world.create::<PodDisruptionBudget>(json!({"metadata": {"name": "web"}, "spec": spec})).await;
    world.wait(20).await;
    let expected = PodDisruptionBudgetStatus {
        current_healthy: Some(4),
        desired_healthy: Some(3),
        expected_pods: Some(4),
        disruptions_allowed: Some(1),
        observed_generation: Some(1),
        ..PodDisruptionBudgetStatus::default()
    };
    assert_eq!(budget(&world), expected);
    world.assert_settled().await;
    let evict = async |index: usize| {
        let pod = world.pods("app", "web")[index].clone();
        let name = pod.metadata.name.clone().unwrap();
        world.user.post::<Pod>("default", &name, "eviction", json!({"metadata": {"name": name}})).await
    };
    evict(0).await.unwrap();
    let refused = evict(1).await.unwrap_err();
    assert_eq!(refused.code, 429);
    world.wait(20).await;
    evict(0).await.unwrap();
    world.wait(20).await;
    assert_eq!(budget(&world), expected);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_gets_an_account() {
    let world = World::new(0).await;
    let namespace = world.create::<Namespace>(json!({"metadata": {"name": "team"}})).await;
    world.wait(1).await;
    let account = world.caches().service_accounts.find("team", "default").unwrap();
    world.delete(&*account).await.unwrap();
    world.wait(1).await;
    assert!(world.caches().service_accounts.find("team", "default").is_some());
    world.delete(&*namespace).await.unwrap();
    world.wait(30).await;
    assert!(world.caches().namespaces.get("team").is_none());
    assert!(world.caches().service_accounts.in_namespace("team").is_empty());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_holds_a_deployment_back_until_there_is_room() {
    let world = World::new(2).await;
    let quota = |pods: &str| json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": pods}}});
    world.create::<ResourceQuota>(quota("2")).await;
    world.wait(1).await;
    world.create::<Deployment>(deployment(3)).await;
    world.wait(20).await;
    let used = |world: &World| {
        let quota = world.caches().resource_quotas.find("default", "few").unwrap();
        quota.status.as_ref().unwrap().used.as_ref().unwrap()["pods"].0.clone()
    };
    assert_eq!((world.pods("app", "web").len(), used(&world)), (2, "2".to_owned()));
    let set = world.caches().replica_sets.list()[0].metadata.name.clone().unwrap();
    let failed = world.events(&set).await.into_iter().find(|event| event.contains("exceeded quota: few")).unwrap();
    assert!(failed.contains("requested: pods=1, used: pods=2, limited: pods=2"), "{failed}");
    world.patch::<ResourceQuota>("few", quota("5")).await;
    world.wait(600).await;
    assert_eq!((world.pods("app", "web").len(), used(&world)), (3, "3".to_owned()));
    world.patch::<Deployment>("web", json!({"spec": {"replicas": 1}})).await;
    world.wait(60).await;
    assert_eq!((world.pods("app", "web").len(), used(&world)), (1, "1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_devices_lives_as_long_as_its_pod() {
    let world = World::new(1).await;
    world
        .create::<ResourceClaimTemplate>(json!({"metadata": {"name": "one"}, "spec": {
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        }}))
        .await;
    let pod = world
        .create::<Pod>(json!({"metadata": {"name": "user"}, "spec": {
            "containers": [{"name": "main", "image": "v1", "resources": {"claims": [{"name": "dev"}]}}],
            "resourceClaims": [{"name": "dev", "resourceClaimTemplateName": "one"}],
        }}))
        .await;
    world.wait(5).await;
    let claim = world.caches().resource_claims.list()[0].clone();
    assert!(claim.metadata.name.as_ref().unwrap().starts_with("user-dev-"));
    let status = world.caches().pods.get("default/user").unwrap().status.clone().unwrap();
    assert_eq!(status.resource_claim_statuses.unwrap()[0].resource_claim_name, claim.metadata.name);
    world.wait(600).await;
    world.delete(&*pod).await.unwrap();
    world.wait(10).await;
    assert!(world.caches().resource_claims.is_empty());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn events_go_after_an_hour() {
    let world = World::with(Settings { node_grace: None, ..Settings::default() }, 1).await;
    world.create::<Deployment>(deployment(1)).await;
    world.wait(3500).await;
    assert_eq!(world.events("web").await.len(), 1);
    world.wait(200).await;
    assert_eq!(world.events("web").await.len(), 0);
    world.assert_settled().await;
}
