//! Autoscalers on given metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use capstan_sim::Pod;
use capstan_sim::controllers::{Metrics, Settings};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricIdentifier};
use serde_json::{Value, json};

use crate::world::{World, settings, template};

/// The total load, which the pods share.
#[derive(Default)]
struct Load(AtomicI64);

impl Metrics for Load {
    fn container(&self, _pod: &Pod, _container: &str, resource: &str) -> Option<i64> {
        (resource == "cpu").then(|| self.0.load(Ordering::Relaxed))
    }

    fn external(&self, _namespace: &str, metric: &MetricIdentifier) -> Option<Vec<i64>> {
        (metric.name == "queue").then(|| vec![self.0.load(Ordering::Relaxed)])
    }
}

async fn world(load: &Arc<Load>) -> World {
    let world = World::with(Settings { metrics: Some(load.clone()), ..settings() }, 2).await;
    let mut template = template("web", "v1");
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "200m"}});
    world
        .create::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template,
        }}))
        .await;
    world.wait(10).await;
    world
}

fn autoscaler(metric: Value, more: Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 10, "metrics": [metric],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    json!({"metadata": {"name": "web"}, "spec": spec})
}

fn cpu(percent: i32) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn size(world: &World) -> i32 {
    world.caches().deployments.get("default/web").unwrap().spec.replicas.unwrap()
}

fn conditions(world: &World) -> Vec<String> {
    let hpa = world.caches().autoscalers.get("default/web").unwrap();
    let conditions = hpa.status.clone().unwrap().conditions.unwrap();
    conditions.into_iter().map(|one| format!("{}={}:{}", one.type_, one.status, one.reason.unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn it_grows_at_once_and_shrinks_after_a_while() {
    let load = Arc::new(Load::default());
    let world = world(&load).await;
    load.0.store(100, Ordering::Relaxed);
    world.create::<HorizontalPodAutoscaler>(autoscaler(cpu(50), json!({}))).await;
    world.wait(60).await;
    assert_eq!(size(&world), 2);
    assert_eq!(
        conditions(&world),
        [
            "AbleToScale=True:ReadyForNewScale",
            "ScalingActive=True:ValidMetricFound",
            "ScalingLimited=False:DesiredWithinRange"
        ]
    );
    world.assert_settled().await;

    load.0.store(150, Ordering::Relaxed);
    world.wait(15).await;
    assert_eq!(size(&world), 3);
    let events = world.events("web").await;
    let reason = "cpu resource utilization (percentage of request) above target";
    assert!(events.contains(&format!("SuccessfulRescale: New size: 3; reason: {reason}")), "{events:?}");

    load.0.store(100, Ordering::Relaxed);
    world.wait(60).await;
    assert_eq!(size(&world), 3);
    load.0.store(20, Ordering::Relaxed);
    world.wait(200).await;
    assert_eq!(size(&world), 3);
    world.wait(200).await;
    assert_eq!(size(&world), 1);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn it_keeps_to_its_bounds_and_its_pace() {
    let load = Arc::new(Load::default());
    let world = world(&load).await;
    load.0.store(2000, Ordering::Relaxed);
    world.create::<HorizontalPodAutoscaler>(autoscaler(cpu(50), json!({}))).await;
    world.wait(1).await;
    // Four more or twice as many per 15 seconds: the larger of both.
    assert_eq!(size(&world), 6);
    assert!(conditions(&world).contains(&"ScalingLimited=True:ScaleUpLimit".to_owned()), "{:?}", conditions(&world));
    world.wait(40).await;
    assert_eq!(size(&world), 10);
    assert!(conditions(&world).contains(&"ScalingLimited=True:TooManyReplicas".to_owned()));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn it_follows_a_metric_from_outside() {
    let load = Arc::new(Load::default());
    let world = world(&load).await;
    load.0.store(90_000, Ordering::Relaxed);
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    let metric = json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}});
    world.create::<HorizontalPodAutoscaler>(autoscaler(metric, json!({}))).await;
    world.wait(60).await;
    assert_eq!(size(&world), 9);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn without_metrics_it_says_so_and_does_nothing() {
    let load = Arc::new(Load::default());
    let world = world(&load).await;
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    let metric = json!({"type": "External", "external": {"metric": {"name": "unknown"}, "target": target}});
    world.create::<HorizontalPodAutoscaler>(autoscaler(metric, json!({}))).await;
    world.wait(60).await;
    assert_eq!(size(&world), 2);
    assert_eq!(conditions(&world)[1], "ScalingActive=False:FailedGetExternalMetric");
}
