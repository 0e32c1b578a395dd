//! Printers of workloads: Deployments and the like, Jobs, autoscalers.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::{
    NONE, UNKNOWN, UNSET, boolean, containers, count, duration, has_condition, labels, list, number, selector, since,
    text, text_or,
};
use super::{AGE, CONTAINERS, Cells, Column, IMAGES, NAME, Printer, age, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("apps", "Deployment") => (DEPLOYMENT, deployment),
        ("apps", "ReplicaSet") => (REPLICA_SET, replica_set),
        ("apps", "DaemonSet") => (DAEMON_SET, daemon_set),
        ("apps", "StatefulSet") => (STATEFUL_SET, stateful_set),
        ("apps", "ControllerRevision") => (REVISION, revision),
        ("", "ReplicationController") => (REPLICATION_CONTROLLER, replica_set),
        ("", "PodTemplate") => (POD_TEMPLATE, pod_template),
        ("batch", "Job") => (JOB, job),
        ("batch", "CronJob") => (CRON_JOB, cron_job),
        ("autoscaling", "HorizontalPodAutoscaler") => (AUTOSCALER, autoscaler),
        _ => return None,
    };
    Some(Printer { columns, cells })
}

/// The `scale` subresource.
pub(super) const SCALE: Printer = Printer {
    columns: &[
        Column { format: "", ..NAME },
        Column::of("Desired", "integer", "autoscaling.v1.ScaleSpec", "replicas"),
        Column::of("Available", "integer", "autoscaling.v1.ScaleStatus", "replicas"),
        AGE,
    ],
    cells: |scale, now| {
        let (desired, available) = (number(scale, "/spec/replicas"), number(scale, "/status/replicas"));
        vec![name(scale), desired.into(), available.into(), age(scale, now)]
    },
};

const fn selector_of(definition: &'static str) -> Column {
    Column::of("Selector", "string", definition, "selector").wide()
}

const DEPLOYMENT: &[Column] = &[
    NAME,
    Column::own("Ready", "string", "Number of the pod with ready state"),
    Column::of("Up-to-date", "string", "apps.v1.DeploymentStatus", "updatedReplicas"),
    Column::of("Available", "string", "apps.v1.DeploymentStatus", "availableReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("apps.v1.DeploymentSpec"),
];

fn template(object: &Value) -> [Value; 2] {
    let (names, images) = containers(object.pointer("/spec/template/spec"));
    [names.into(), images.into()]
}

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = template(object);
    vec![
        name(object),
        format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into(),
        number(object, "/status/updatedReplicas").into(),
        number(object, "/status/availableReplicas").into(),
        age(object, now),
        names,
        images,
        selector(object.pointer("/spec/selector")).into(),
    ]
}

const REPLICA_SET: &[Column] = &[
    NAME,
    Column::of("Desired", "integer", "apps.v1.ReplicaSetSpec", "replicas"),
    Column::of("Current", "integer", "apps.v1.ReplicaSetStatus", "replicas"),
    Column::of("Ready", "integer", "apps.v1.ReplicaSetStatus", "readyReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("apps.v1.ReplicaSetSpec"),
];

const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    Column::of("Desired", "integer", "core.v1.ReplicationControllerSpec", "replicas"),
    Column::of("Current", "integer", "core.v1.ReplicationControllerStatus", "replicas"),
    Column::of("Ready", "integer", "core.v1.ReplicationControllerStatus", "readyReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("core.v1.ReplicationControllerSpec"),
];

fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = template(object);
    let chosen = match text(object, "/kind") {
        "ReplicationController" => labels(object.pointer("/spec/selector")),
        _ => selector(object.pointer("/spec/selector")),
    };
    vec![
        name(object),
        number(object, "/spec/replicas").into(),
        number(object, "/status/replicas").into(),
        number(object, "/status/readyReplicas").into(),
        age(object, now),
        names,
        images,
        chosen.into(),
    ]
}

const DAEMON_SET: &[Column] = &[
    NAME,
    Column::of("Desired", "integer", "apps.v1.DaemonSetStatus", "desiredNumberScheduled"),
    Column::of("Current", "integer", "apps.v1.DaemonSetStatus", "currentNumberScheduled"),
    Column::of("Ready", "integer", "apps.v1.DaemonSetStatus", "numberReady"),
    Column::of("Up-to-date", "integer", "apps.v1.DaemonSetStatus", "updatedNumberScheduled"),
    Column::of("Available", "integer", "apps.v1.DaemonSetStatus", "numberAvailable"),
    Column::of("Node Selector", "string", "core.v1.PodSpec", "nodeSelector"),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("apps.v1.DaemonSetSpec"),
];

fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = template(object);
    vec![
        name(object),
        number(object, "/status/desiredNumberScheduled").into(),
        number(object, "/status/currentNumberScheduled").into(),
        number(object, "/status/numberReady").into(),
        number(object, "/status/updatedNumberScheduled").into(),
        number(object, "/status/numberAvailable").into(),
        labels(object.pointer("/spec/template/spec/nodeSelector")).into(),
        age(object, now),
        names,
        images,
        selector(object.pointer("/spec/selector")).into(),
    ]
}

const STATEFUL_SET: &[Column] =
    &[NAME, Column::own("Ready", "string", "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES];

fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = template(object);
    let ready = format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"));
    vec![name(object), ready.into(), age(object, now), names, images]
}

const REVISION: &[Column] = &[
    NAME,
    Column::own("Controller", "string", "Controller of the object"),
    Column::of("Revision", "string", "apps.v1.ControllerRevision", "revision"),
    AGE,
];

fn revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
    let owner = owner.map_or(NONE.to_owned(), |owner| {
        let (group, _) = crate::registry::group_version(text(owner, "/apiVersion"));
        let kind = text(owner, "/kind").to_lowercase();
        let qualified = if group.is_empty() { kind } else { format!("{kind}.{group}") };
        format!("{qualified}/{}", text(owner, "/name"))
    });
    vec![name(object), owner.into(), number(object, "/revision").into(), age(object, now)]
}

const POD_TEMPLATE: &[Column] = &[
    NAME,
    Column::own("Containers", "string", "Names of each container in the template."),
    Column::own("Images", "string", "Images referenced by each container in the template."),
    Column::own("Pod Labels", "string", "The labels for the pod template."),
];

fn pod_template(object: &Value, _now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(object.pointer("/template/spec"));
    vec![name(object), names.into(), images.into(), labels(object.pointer("/template/metadata/labels")).into()]
}

const JOB: &[Column] = &[
    NAME,
    Column::own("Status", "string", "Status of the job."),
    Column::of("Completions", "string", "batch.v1.JobStatus", "succeeded"),
    Column::own("Duration", "string", "Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("batch.v1.JobSpec"),
];

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "/status/succeeded");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match number(object, "/spec/parallelism") {
            parallel @ 2.. => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let time = |pointer: &str| text(object, pointer).parse::<Timestamp>().ok();
    let took = time("/status/startTime").map_or(String::new(), |start| {
        let end = time("/status/completionTime").unwrap_or(now);
        duration(end.as_second() - start.as_second())
    });
    let deleting = !object["metadata"]["deletionTimestamp"].is_null();
    let told = [("Complete", "Complete"), ("Failed", "Failed")];
    let later =
        [("Suspended", "Suspended"), ("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet")];
    let find = |known: &[(&str, &'static str)]| {
        known.iter().find(|(kind, _)| has_condition(object, kind)).map(|(_, shown)| *shown)
    };
    let status = find(&told).or(deleting.then_some("Terminating")).or_else(|| find(&later)).unwrap_or("Running");
    let [names, images] = template(object);
    vec![
        name(object),
        status.into(),
        completions.into(),
        took.into(),
        age(object, now),
        names,
        images,
        selector(object.pointer("/spec/selector")).into(),
    ]
}

const CRON_JOB: &[Column] = &[
    NAME,
    Column::of("Schedule", "string", "batch.v1.CronJobSpec", "schedule"),
    Column::of("Timezone", "string", "batch.v1.CronJobSpec", "timeZone"),
    Column::of("Suspend", "boolean", "batch.v1.CronJobSpec", "suspend"),
    Column::of("Active", "integer", "batch.v1.CronJobStatus", "active"),
    Column::of("Last Schedule", "string", "batch.v1.CronJobStatus", "lastScheduleTime"),
    AGE,
    CONTAINERS,
    IMAGES,
    selector_of("batch.v1.JobSpec"),
];

fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let last = match object.pointer("/status/lastScheduleTime") {
        Some(time) if !time.is_null() => since(time, now),
        _ => NONE.to_owned(),
    };
    let (names, images) = containers(object.pointer("/spec/jobTemplate/spec/template/spec"));
    vec![
        name(object),
        text(object, "/spec/schedule").into(),
        text_or(object, "/spec/timeZone", NONE).into(),
        boolean(object.pointer("/spec/suspend")).into(),
        count(object, "/status/active").into(),
        last.into(),
        age(object, now),
        names.into(),
        images.into(),
        selector(object.pointer("/spec/jobTemplate/spec/selector")).into(),
    ]
}

const AUTOSCALER: &[Column] = &[
    NAME,
    Column::of("Reference", "string", "autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    Column::of("Targets", "string", "autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics"),
    Column::of("MinPods", "string", "autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas"),
    Column::of("MaxPods", "string", "autoscaling.v2.HorizontalPodAutoscalerSpec", "maxReplicas"),
    Column::of("Replicas", "string", "autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas"),
    AGE,
];

fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = &object["spec"]["scaleTargetRef"];
    let least = object.pointer("/spec/minReplicas").and_then(Value::as_i64);
    vec![
        name(object),
        format!("{}/{}", text(target, "/kind"), text(target, "/name")).into(),
        targets(object).into(),
        least.map_or(UNSET.to_owned(), |least| least.to_string()).into(),
        number(object, "/spec/maxReplicas").into(),
        number(object, "/status/currentReplicas").into(),
        age(object, now),
    ]
}

/// `cpu: 10%/80%, 3/5 + 1 more...`, as far as the metrics are known.
fn targets(object: &Value) -> String {
    let current = list(object, "/status/currentMetrics");
    let specs = match list(object, "/spec/metrics") {
        [] => older_metrics(object),
        specs => specs.to_vec(),
    };
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let shown: Vec<String> = specs.iter().enumerate().map(|(index, spec)| metric(spec, current.get(index))).collect();
    let most = shown.len().min(2);
    let text = shown[..most].join(", ");
    if shown.len() > 2 { format!("{text} + {} more...", shown.len() - 2) } else { text }
}

/// Metrics of an autoscaling/v1 object: one percentage, and the rest in an annotation.
fn older_metrics(object: &Value) -> Vec<Value> {
    let rest = object["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str();
    let rest: Vec<Value> = rest.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let percent = object.pointer("/spec/targetCPUUtilizationPercentage").and_then(Value::as_i64);
    let cpu = percent.map(|percent| {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    });
    cpu.into_iter().chain(rest).collect()
}

fn metric(spec: &Value, current: Option<&Value>) -> String {
    let (field, prefix) = match text(spec, "/type") {
        "Resource" => ("resource", format!("{}: ", text(spec, "/resource/name"))),
        "ContainerResource" => ("containerResource", format!("{}: ", text(spec, "/containerResource/name"))),
        "Pods" => ("pods", String::new()),
        "Object" => ("object", String::new()),
        "External" => ("external", String::new()),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, now) = (&spec[field]["target"], current.map(|current| &current[field]["current"]));
    if let Some(wanted) = target["averageUtilization"].as_i64() {
        let now = now.and_then(|now| now["averageUtilization"].as_i64());
        let now = now.map_or(UNKNOWN.to_owned(), |now| format!("{now}%"));
        return format!("{prefix}{now}/{wanted}%");
    }
    let (key, suffix) = if target["averageValue"].is_null() { ("value", "") } else { ("averageValue", " (avg)") };
    let suffix = if matches!(field, "external" | "object") { suffix } else { "" };
    let now = now.and_then(|now| now[key].as_str()).unwrap_or(UNKNOWN);
    format!("{prefix}{now}/{}{suffix}", text(target, &format!("/{key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_tells_how_far_it_is() {
        let now = "2024-01-01T00:05:00Z".parse().unwrap();
        let done = json!({"metadata": {"name": "j"}, "spec": {"completions": 3},
            "status": {"succeeded": 3, "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-01T00:00:30Z",
                "conditions": [{"type": "Complete", "status": "True"}]}});
        assert_eq!(&job(&done, now)[1..4], &[json!("Complete"), json!("3/3"), json!("30s")]);
        let queue = json!({"metadata": {"name": "j"}, "spec": {"parallelism": 4},
            "status": {"startTime": "2024-01-01T00:00:00Z"}});
        assert_eq!(&job(&queue, now)[1..4], &[json!("Running"), json!("0/1 of 4"), json!("5m")]);
    }

    #[test]
    fn an_autoscaler_shows_two_metrics() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"averageValue": "5"}}});
        let object = json!({"spec": {"metrics": [cpu, pods, pods]},
            "status": {"currentMetrics": [{"resource": {"current": {"averageUtilization": 10}}}]}});
        assert_eq!(targets(&object), "cpu: 10%/80%, <unknown>/5 + 1 more...");
    }
}
