//! Model profiles that no GPU of the cluster can run, or that the image does not have.

use crate::doctor::finding::Finding;
use crate::doctor::index::{Index, condition, reference, short, text};

const PROFILE_MESSAGES: &[&str] = &[
    "could not find a profile",
    "no compatible profile",
    "profile not found",
    "not found in the manifest",
    "no runnable profile",
];

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let caches = index.snapshot.of("apps.nvidia.com", "NIMCache").iter();
    let reported = caches.filter_map(|cache| {
        let reported = condition(cache, "NIM_CACHE_RECONCILE_FAILED")
            .filter(|one| one["status"] == "True" && one["reason"] == "NoProfileSelected")?;
        let finding = Finding::about(cache, text(&reported["message"]));
        let finding =
            finding.evidence(format!("{}, condition NIM_CACHE_RECONCILE_FAILED: NoProfileSelected", reference(cache)));
        Some(
            finding.fix("loosen spec.source.ngc.model, or name profiles of the list in spec.source.ngc.model.profiles"),
        )
    });
    let downloads = index.pods.iter().filter(|pod| !pod.is_ready() && index.serves(pod));
    let messages = downloads.filter_map(|pod| {
        let (container, line) = index.find_output(pod, PROFILE_MESSAGES)?;
        let finding = pod.finding(index, "the image has no profile that fits");
        let finding = finding.evidence(format!("{}, container {container}: {}", pod.reference(), short(line)));
        Some(finding.fix("choose a profile of `list-model-profiles` in the image: NIM_MODEL_PROFILE in spec.env, or spec.storage.nimCache.profile"))
    });
    reported.chain(messages).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn a_cache_without_a_profile_is_told_in_the_words_of_its_condition() {
        let cluster = Cluster::healthy().add(json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "metadata": {"name": "c", "namespace": "nim"},
            "status": {"state": "NotReady", "conditions": [{
                "type": "NIM_CACHE_RECONCILE_FAILED", "status": "True", "reason": "NoProfileSelected",
                "message": "no profiles are selected for caching",
            }]},
        }));
        let report = assert_only(&cluster, "cache-profile");
        assert_eq!(report.causes[0].title, "NIMCache nim/c: no profiles are selected for caching");
    }

    #[test]
    fn a_server_that_finds_no_profile() {
        let line = "ERROR Could not find a profile that is currently runnable with the detected hardware.";
        assert_only(&Cluster::healthy().crashing("llama", "gpu-0", "llama-ctr", line), "cache-profile");
    }
}
