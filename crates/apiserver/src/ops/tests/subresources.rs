//! scale, eviction, binding.

use super::*;

async fn post(bench: &Bench, name: &str, subresource: &str, body: Value) -> Result<Value> {
    let target = bench.one("pods", Some("default"), name).sub(subresource);
    let written = bench.server.create(&bench.caller, &target, body.into(), &WriteOptions::default()).await?;
    Ok(written.object.value())
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let bench = Bench::new().await;
    bench.pod("web", json!({})).await;
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}});
    let status = post(&bench, "web", "binding", binding.clone()).await.unwrap();
    assert_eq!(
        (&status["kind"], &status["status"], &status["code"]),
        (&json!("Status"), &json!("Success"), &json!(201))
    );
    let pod = bench.get(&bench.one("pods", Some("default"), "web")).await.unwrap();
    assert_eq!(
        (&pod["spec"]["nodeName"], &pod["status"]["conditions"][0]["type"]),
        (&json!("n1"), &json!("PodScheduled"))
    );
    let again = post(&bench, "web", "binding", binding).await.unwrap_err();
    assert_eq!(
        (again.code, again.message.as_str()),
        (409, "Operation cannot be fulfilled on pods/binding \"web\": pod web is already assigned to node \"n1\"")
    );
    let nowhere = post(&bench, "web", "binding", json!({"target": {}})).await.unwrap_err();
    assert_eq!((nowhere.code, nowhere.message.as_str()), (500, "target.name: Required value"));
}

async fn set_status(bench: &Bench, resource: &str, name: &str, status: Value) {
    let target = bench.one(resource, Some("default"), name);
    let mut object = bench.get(&target).await.unwrap();
    object["status"] = status;
    bench.put(&target.sub("status"), object).await.unwrap();
}

async fn guarded_pod(bench: &Bench, allowed: i64) {
    bench.pod("web", json!({"metadata": {"labels": {"app": "web"}}})).await;
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    set_status(bench, "pods", "web", ready).await;
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    let body = json!({"metadata": {"name": "guard"}, "spec": spec});
    bench.create("poddisruptionbudgets", Some("default"), body).await.unwrap();
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1 + allowed, "expectedPods": 1});
    set_status(bench, "poddisruptionbudgets", "guard", status).await;
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

#[tokio::test]
async fn a_budget_that_is_used_up_keeps_a_pod() {
    let bench = Bench::new().await;
    guarded_pod(&bench, 0).await;
    let refused = post(&bench, "web", "eviction", eviction("web")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.reason, refused.message.as_str()),
        (429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert_eq!(
        refused.details["causes"][0],
        json!({"reason": "DisruptionBudget", "message": "The disruption budget guard needs 1 healthy pods and has 1 currently"})
    );
    assert!(bench.get(&bench.one("pods", Some("default"), "web")).await.is_ok());
}

#[tokio::test]
async fn an_eviction_takes_from_the_budget() {
    let bench = Bench::new().await;
    guarded_pod(&bench, 1).await;
    post(&bench, "web", "eviction", eviction("web")).await.unwrap();
    assert_eq!(bench.get(&bench.one("pods", Some("default"), "web")).await.unwrap_err().code, 404);
    let budget = bench.get(&bench.one("poddisruptionbudgets", Some("default"), "guard")).await.unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"]["web"].is_string());
}

#[tokio::test]
async fn a_pod_without_budget_and_a_pod_that_is_over_may_go() {
    let bench = Bench::new().await;
    bench.pod("free", json!({})).await;
    set_status(&bench, "pods", "free", json!({"phase": "Running"})).await;
    post(&bench, "free", "eviction", eviction("free")).await.unwrap();
    guarded_pod(&bench, 0).await;
    set_status(&bench, "pods", "web", json!({"phase": "Succeeded"})).await;
    post(&bench, "web", "eviction", eviction("web")).await.unwrap();
    let odd = post(&bench, "web", "eviction", eviction("other")).await.unwrap_err();
    assert_eq!(odd.message, "name in URL does not match name in Eviction object");
}

#[tokio::test]
async fn two_budgets_are_one_too_many() {
    let bench = Bench::new().await;
    guarded_pod(&bench, 1).await;
    let body = json!({"metadata": {"name": "second"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    bench.create("poddisruptionbudgets", Some("default"), body).await.unwrap();
    let refused = post(&bench, "web", "eviction", eviction("web")).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    );
}

#[tokio::test]
async fn a_scale_shows_replicas_and_selector() {
    let bench = Bench::new().await;
    let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]});
    let body = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": selector}});
    bench.create("deployments", Some("default"), body).await.unwrap();
    let scale = bench.get(&bench.one("deployments", Some("default"), "web").sub("scale")).await.unwrap();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "a=1,b=2,c in (x,y)"}));
    assert_eq!(scale["metadata"]["resourceVersion"], "4");
}
