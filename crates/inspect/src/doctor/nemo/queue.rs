//! Training jobs that wait in a Volcano queue which is full, closed or not there.

use std::collections::BTreeSet;

use capstan_semantics::quantity::Quantity;
use serde_json::Value;

use crate::doctor::finding::{Finding, Severity};
use crate::doctor::index::{Index, reference, text};
use crate::snapshot::named;

const GROUP: &str = "scheduling.volcano.sh";

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let customizers = index.snapshot.of("apps.nvidia.com", "NemoCustomizer").iter();
    let namespaces: BTreeSet<&str> = customizers.map(|one| named(one).0).collect();
    let groups = index.snapshot.of(GROUP, "PodGroup").iter().filter(|group| namespaces.contains(named(group).0));
    groups.filter_map(|group| waits(index, group)).collect()
}

fn waits(index: &Index<'_>, group: &Value) -> Option<Finding> {
    let phase = text(&group["status"]["phase"]);
    if !["", "Pending", "Inqueue"].contains(&phase)
        || !index.exceeds_grace_period(&group["metadata"]["creationTimestamp"])
    {
        return None;
    }
    let name = Some(text(&group["spec"]["queue"])).filter(|name| !name.is_empty()).unwrap_or("default");
    let queue = index.snapshot.find(GROUP, "Queue", "", name);
    let (what, fix) = match queue {
        None if index.snapshot.unread.contains_key("Queue.scheduling.volcano.sh") => return None,
        None => (
            format!("Volcano has no queue {name}, in which training waits"),
            format!("create Queue {name}, or name one that is there"),
        ),
        Some(queue) if ["Closed", "Closing"].contains(&text(&queue["status"]["state"])) => {
            (format!("Volcano queue {name} is closed"), format!("open it: vcctl queue operate -a open -n {name}"))
        }
        Some(queue) => {
            let full = full(queue, group)?;
            (
                format!("Volcano queue {name} is full: {full}"),
                format!("wait for jobs of the queue, or raise its share: kubectl edit queue {name}, spec.capability"),
            )
        }
    };
    let (namespace, job) = named(group);
    let phase = if phase.is_empty() { "Pending" } else { phase };
    let finding = Finding::about(group, what).severity(Severity::Warning).object(format!("PodGroup {namespace}/{job}"));
    Some(finding.evidence(format!("{} is {phase} in queue {name}", reference(group))).fix(fix))
}

/// The first resource that the queue cannot give: how much is used, allowed and asked for.
fn full(queue: &Value, group: &Value) -> Option<String> {
    let units = |value: &Value| Quantity::from_json(value).ok().map(|amount| amount.units());
    let limits = queue["spec"]["capability"].as_object()?;
    limits.iter().find_map(|(resource, limit)| {
        let used = units(&queue["status"]["allocated"][resource]).unwrap_or(0);
        let asked = units(&group["spec"]["minResources"][resource]).unwrap_or(0);
        let limit = units(limit)?;
        (asked > 0 && used + asked > limit)
            .then(|| format!("{used} of {limit} {resource} are in use, and the job asks for {asked}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn cluster(queue: Option<Value>) -> Cluster {
        let meta = |name: &str| json!({"name": name, "namespace": "nim", "creationTimestamp": "2020-01-01T00:00:00Z"});
        let cluster = Cluster::healthy()
            .add(json!({
                "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoCustomizer", "metadata": meta("tuner"),
                "status": {"state": "Ready"},
            }))
            .add(json!({
                "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta("train-1"),
                "spec": {"queue": "team", "minResources": {"nvidia.com/gpu": 8}}, "status": {"phase": "Pending"},
            }));
        queue.into_iter().fold(cluster, Cluster::add)
    }

    fn queue(allocated: u32) -> Value {
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"},
            "spec": {"capability": {"nvidia.com/gpu": "16"}},
            "status": {"state": "Open", "allocated": {"nvidia.com/gpu": allocated.to_string()}},
        })
    }

    #[test]
    fn a_queue_that_is_full_is_named_with_what_is_used_and_asked_for() {
        let report = assert_only(&cluster(Some(queue(12))), "volcano-queue-full");
        let title = &report.causes[0].title;
        assert!(
            title.contains("queue team is full: 12 of 16 nvidia.com/gpu are in use, and the job asks for 8"),
            "{title}"
        );
    }

    #[test]
    fn a_queue_with_room_or_without_a_limit_is_healthy() {
        assert_healthy(&cluster(Some(queue(8))));
    }

    #[test]
    fn a_queue_that_is_closed_or_not_there_is_named() {
        let mut closed = queue(0);
        closed["status"]["state"] = "Closed".into();
        assert_only(&cluster(Some(closed)), "volcano-queue-full");
        let report = assert_only(&cluster(None), "volcano-queue-full");
        assert!(report.causes[0].title.contains("has no queue team"), "{report:?}");
    }
}
