//! Jobs and CronJobs.

use k8s_openapi::api::batch::v1::{CronJob, Job, JobStatus};
use serde_json::{Value, json};

use crate::world::World;

fn job_spec(image: &str, more: Value) -> Value {
    let mut spec = json!({"template": {"metadata": {"labels": {"app": "task"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": image}],
    }}});
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn job(image: &str, more: Value) -> Value {
    json!({"metadata": {"name": "task"}, "spec": job_spec(image, more)})
}

fn status(world: &World) -> JobStatus {
    world.caches().jobs.get("default/task").unwrap().status.clone().unwrap_or_default()
}

fn conditions(status: &JobStatus) -> Vec<(String, String)> {
    let conditions = status.conditions.clone().unwrap_or_default();
    conditions
        .into_iter()
        .filter(|one| one.status == "True")
        .map(|one| (one.type_, one.reason.unwrap_or_default()))
        .collect()
}

fn has(status: &JobStatus, kind: &str) -> bool {
    conditions(status).iter().any(|(mine, _)| mine == kind)
}

async fn ended(world: &World, kind: &str) {
    world
        .until(kind, |caches| {
            caches.jobs.get("default/task").is_some_and(|job| has(&job.status.clone().unwrap_or_default(), kind))
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_completes_as_often_as_asked() {
    let world = World::new(1).await;
    world.create::<Job>(job("done", json!({"completions": 5, "parallelism": 2}))).await;
    world.wait(5).await;
    assert_eq!((status(&world).active, status(&world).succeeded), (Some(2), None));
    ended(&world, "Complete").await;
    let status = status(&world);
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    assert!(status.completion_time.is_some());
    let complete = [("SuccessCriteriaMet", "CompletionsReached"), ("Complete", "CompletionsReached")];
    assert_eq!(conditions(&status), complete.map(|(kind, reason)| (kind.to_owned(), reason.to_owned())));
    let pods = world.caches().pods.list();
    assert_eq!(pods.len(), 5);
    assert!(pods.iter().all(|pod| pod.metadata.finalizers.iter().flatten().next().is_none()));
    world.assert_settled().await;
    assert_eq!(world.events("task").await.last().unwrap(), "Completed: Job completed");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_ever_more_slowly_until_the_limit() {
    let world = World::new(1).await;
    world.create::<Job>(job("fail", json!({"backoffLimit": 3}))).await;
    ended(&world, "Failed").await;
    let status = status(&world);
    assert_eq!((status.failed, status.succeeded), (Some(4), None));
    assert_eq!(conditions(&status)[0], ("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned()));
    let mut starts: Vec<i64> = world
        .caches()
        .pods
        .list()
        .iter()
        .map(|pod| pod.metadata.creation_timestamp.as_ref().unwrap().0.as_second())
        .collect();
    starts.sort_unstable();
    let gaps: Vec<i64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Ten seconds to fail, then a backoff of ten, twenty, forty.
    assert_eq!(gaps, [20, 30, 50]);
    world.assert_settled().await;
    let message = "BackoffLimitExceeded: Job has reached the specified backoff limit";
    assert_eq!(world.events("task").await.last().unwrap(), message);
}

#[tokio::test(start_paused = true)]
async fn every_index_completes_once() {
    let world = World::new(1).await;
    world.create::<Job>(job("done", json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"}))).await;
    ended(&world, "Complete").await;
    let status = status(&world);
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded), (Some("0-3"), Some(4)));
    let pods = world.caches().pods.list();
    let hosts: Vec<_> = pods.iter().map(|pod| pod.spec.as_ref().unwrap().hostname.clone().unwrap()).collect();
    assert_eq!(hosts, ["task-0", "task-1", "task-2", "task-3"]);
    let env = pods[2].spec.as_ref().unwrap().containers[0].env.clone().unwrap();
    assert_eq!(env[0].name, "JOB_COMPLETION_INDEX");
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods() {
    let world = World::new(1).await;
    world.create::<Job>(job("v1", json!({"parallelism": 2, "completions": 2}))).await;
    world.wait(5).await;
    world.patch::<Job>("task", json!({"spec": {"suspend": true}})).await;
    world.wait(10).await;
    let now = status(&world);
    assert_eq!((now.active, now.failed, now.start_time.clone()), (None, None, None));
    assert!(has(&now, "Suspended"));
    assert!(world.pods("app", "task").is_empty());
    world.assert_settled().await;
    world.patch::<Job>("task", json!({"spec": {"suspend": false}})).await;
    world.wait(10).await;
    assert_eq!(status(&world).active, Some(2));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_past_its_deadline_fails_and_its_pods_go() {
    let world = World::new(1).await;
    world.create::<Job>(job("v1", json!({"activeDeadlineSeconds": 30}))).await;
    world.wait(25).await;
    assert!(!has(&status(&world), "FailureTarget"));
    ended(&world, "Failed").await;
    assert_eq!(conditions(&status(&world))[0].1, "DeadlineExceeded");
    assert!(world.pods("app", "task").is_empty());
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_policy_ends_a_job_at_once() {
    let world = World::new(1).await;
    let policy = json!({"backoffLimit": 9, "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    ]}});
    world.create::<Job>(job("fail", policy)).await;
    ended(&world, "Failed").await;
    let status = status(&world);
    assert_eq!(conditions(&status)[0].1, "PodFailurePolicy");
    let message = status.conditions.unwrap()[0].message.clone().unwrap();
    assert!(message.starts_with("Container main for pod default/task-"), "{message}");
    assert!(message.ends_with("failed with exit code 1 matching FailJob rule at index 1"), "{message}");
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_time_to_live_goes_with_its_pods() {
    let world = World::new(1).await;
    world.create::<Job>(job("done", json!({"ttlSecondsAfterFinished": 60}))).await;
    ended(&world, "Complete").await;
    world.wait(50).await;
    assert_eq!(world.caches().jobs.len(), 1);
    world.wait(30).await;
    assert_eq!((world.caches().jobs.len(), world.caches().pods.len()), (0, 0));
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_runs_every_hour_for_two_days_and_keeps_three() {
    let world = World::new(1).await;
    world
        .create::<CronJob>(json!({"metadata": {"name": "hourly"}, "spec": {
            "schedule": "0 * * * *", "jobTemplate": {"spec": job_spec("done", json!({}))},
        }}))
        .await;
    world.wait(48 * 3600 + 60).await;
    let cron = world.caches().cron_jobs.get("default/hourly").unwrap();
    let status = cron.status.clone().unwrap();
    assert_eq!(status.active, None);
    assert_eq!(status.last_schedule_time.unwrap().0.to_string(), "2026-01-03T00:00:00Z");
    assert_eq!(status.last_successful_time.unwrap().0.to_string(), "2026-01-03T00:00:10Z");
    let jobs = world.caches().jobs.list();
    let names: Vec<_> = jobs.iter().map(|job| job.metadata.name.clone().unwrap()).collect();
    let at = "2026-01-03T00:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() / 60;
    assert_eq!(names, [-120, -60, 0].map(|minutes| format!("hourly-{}", at + minutes)));
    assert_eq!(world.caches().pods.len(), 3);
    world.assert_settled().await;
}

#[tokio::test(start_paused = true)]
async fn concurrency_policies() {
    let world = World::new(1).await;
    for (name, policy) in [("allow", "Allow"), ("forbid", "Forbid"), ("replace", "Replace")] {
        world
            .create::<CronJob>(json!({"metadata": {"name": name}, "spec": {
                "schedule": "*/10 * * * *", "concurrencyPolicy": policy,
                "jobTemplate": {"spec": job_spec("v1", json!({}))},
            }}))
            .await;
    }
    world.wait(1805).await;
    let active = |name: &str| {
        let cron = world.caches().cron_jobs.get(&format!("default/{name}")).unwrap();
        let active = cron.status.as_ref().unwrap().active.clone().unwrap_or_default();
        active.iter().map(|one| one.name.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!([active("allow").len(), active("forbid").len(), active("replace").len()], [3, 1, 1]);
    assert!(active("replace")[0] > active("forbid")[0].replace("forbid", "replace"));
}
