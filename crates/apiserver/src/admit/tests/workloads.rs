//! Workloads: defaulting and validation through the whole server.

use super::*;

#[tokio::test]
async fn a_new_pod_is_pending() {
    let bench = Bench::new(Settings::alone()).await;
    let mut body = pod("p");
    body["status"] = json!({"phase": "Running"});
    body["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
    let pod = bench.create("pods", body).await.unwrap();
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
}

#[tokio::test]
async fn a_job_selects_the_pods_that_carry_its_uid() {
    let bench = Bench::new(Settings::alone()).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let job = bench.create("jobs", job).await.unwrap();
    let uid = &job["metadata"]["uid"];
    assert_eq!(job["spec"]["selector"]["matchLabels"], json!({"batch.kubernetes.io/controller-uid": uid}));
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
        "batch.kubernetes.io/job-name": "j", "job-name": "j",
    });
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
}
