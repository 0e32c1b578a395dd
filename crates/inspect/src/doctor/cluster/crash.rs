//! Containers that fail for a reason that no other rule knows: the end of their log is quoted.

use capstan_operands::causes::{Cause, Class};

use crate::doctor::finding::Finding;
use crate::doctor::index::{Index, Pod, Role, condition, reference, short, text};
use crate::snapshot::named;

/// Model servers and the operator itself: pods of other products are out of scope.
pub(super) fn workloads(index: &Index<'_>) -> Vec<Finding> {
    let ours = |pod: &Pod<'_>| {
        pod.role == Role::Workload && (index.serves(pod) || pod.label("app.kubernetes.io/name") == "capstan")
    };
    let mut all = failing(index, ours);
    // The pods of a failed download may be deleted.
    for cache in index.snapshot.of("apps.nvidia.com", "NIMCache") {
        let failed = condition(cache, "Failed").filter(|one| one["status"] == "True" && one["reason"] == "JobFailed");
        let name = reference(cache);
        if let Some(failed) = failed.filter(|_| !all.iter().any(|finding| finding.objects.contains(&name))) {
            let line = format!("{name}, condition Failed: JobFailed");
            let (namespace, cache_name) = named(cache);
            let fix = format!("kubectl logs -n {namespace} job/{cache_name}-job");
            all.push(Finding::about(cache, text(&failed["message"])).evidence(line).fix(fix));
        }
    }
    all
}

/// The failed containers of these pods.
pub(in crate::doctor) fn failing(index: &Index<'_>, wanted: impl Fn(&Pod<'_>) -> bool) -> Vec<Finding> {
    let pods = index.pods.iter().filter(|pod| wanted(pod));
    let failing = pods.filter_map(|pod| Some((pod, pod.failure()?)));
    failing
        .map(|(pod, container)| {
            let end = container.failure();
            let code = end.and_then(|end| end["exitCode"].as_u64()).unwrap_or(0);
            let killed = end.is_some_and(|end| end["reason"] == "OOMKilled");
            let class = if killed { Class::OutOfMemory } else { Class::Crashes };
            let what = Cause::crash(class, container.name, code).what("");
            let logs = format!("kubectl logs -n {} {} -c {} --previous", pod.namespace, pod.name, container.name);
            let mut finding = pod.finding(index, what).fix(if killed { "raise its memory limit".into() } else { logs });
            if let Some(line) = index.last_line(pod, container.name) {
                finding =
                    finding.evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(line)));
            }
            finding.evidence(format!("{}: {} restarts", pod.reference(), container.restarts()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn a_model_server_that_crashes() {
        assert_only(&Cluster::healthy().crashing("llama", "gpu-0", "llama-ctr", "boom"), "pod-crashes");
    }

    #[test]
    fn memory_that_ran_out_is_named() {
        let cluster =
            Cluster::healthy().crashing("llama", "gpu-0", "llama-ctr", "").edit("Pod", "llama-gpu-0", |pod| {
                pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] = "OOMKilled".into();
            });
        let report = assert_only(&cluster, "pod-crashes");
        assert!(report.causes[0].title.contains("more memory than it may have"), "{report:?}");
    }
}
