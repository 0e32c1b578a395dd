//! Labels of the operands' namespace: Pod Security, DRA admin access, OpenShift monitoring.
//!
//! Previous values are stored in an annotation and restored when the labels are no longer needed.

use std::collections::BTreeMap;

use capstan_api::gpu::{ClusterPolicy, GpuCluster};
use serde_json::{Map, Value, json};

/// Allows claims with DRA admin access.
pub const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";
const MONITORING: &str = "openshift.io/cluster-monitoring";
const SECURITY: [&str; 3] =
    ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/warn"];
/// Annotation: labels that we set, with their previous values.
pub const BEFORE: &str = "capstan.dev/labels-before";
/// The default namespace on OpenShift.
const USUAL: &str = "nvidia-gpu-operator";

/// Labels and values.
pub type Labels = BTreeMap<&'static str, &'static str>;

/// The desired labels.
pub fn wanted(
    policy: Option<&ClusterPolicy>,
    cluster: Option<&GpuCluster>,
    openshift: bool,
    namespace: &str,
) -> Labels {
    let mut labels = Labels::new();
    let usual = namespace == USUAL;
    let secured = policy.and_then(|policy| policy.spec.psa.as_ref()?.enabled) == Some(true);
    // OpenShift labels namespaces itself.
    if secured && (!openshift || usual) {
        labels.extend(SECURITY.map(|key| (key, "privileged")));
    }
    if openshift && usual && (policy.is_some() || cluster.is_some()) {
        labels.insert(MONITORING, "true");
    }
    if cluster.is_some() {
        labels.insert(ADMIN_ACCESS, "true");
    }
    labels
}

/// The merge patch to the desired labels; `None` if there is no difference.
pub fn patch(live: &Value, wanted: &Labels) -> Option<Value> {
    let label = |key: &str| live["metadata"]["labels"][key].as_str();
    let annotation = live["metadata"]["annotations"][BEFORE].as_str();
    let before: Map<String, Value> = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let (mut labels, mut kept) = (Map::new(), before.clone());
    for (key, value) in wanted {
        // An explicit value of the monitoring label is the user's choice.
        let theirs = *key == MONITORING && label(key).is_some();
        if label(key) != Some(value) && !theirs {
            labels.insert((*key).into(), (*value).into());
            kept.entry(*key).or_insert(label(key).into());
        }
    }
    for (key, old) in before.iter().filter(|(key, _)| !wanted.contains_key(key.as_str())) {
        kept.remove(key);
        // A value that was changed since is not ours.
        if label(key).is_some_and(|value| value == "true" || value == "privileged") {
            labels.insert(key.clone(), old.clone());
        }
    }
    let note = (!kept.is_empty()).then(|| Value::Object(kept).to_string());
    if labels.is_empty() && note.as_deref() == annotation {
        return None;
    }
    Some(json!({"metadata": {"labels": labels, "annotations": {BEFORE: note}}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(psa: bool) -> ClusterPolicy {
        let spec = json!({"metadata": {"name": "p"}, "spec": {
            "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
            "dcgmExporter": {}, "gfd": {}, "nodeStatusExporter": {}, "psa": {"enabled": psa},
        }});
        serde_json::from_value(spec).unwrap()
    }

    fn cluster() -> GpuCluster {
        serde_json::from_value(json!({"metadata": {"name": "gpu-cluster"}, "spec": {"draDriver": {}}})).unwrap()
    }

    /// What the server makes of a patch.
    fn patched(live: &Value, wanted: &Labels) -> Value {
        let mut live = live.clone();
        let Some(patch) = patch(&live, wanted) else { return live };
        for part in ["labels", "annotations"] {
            for (key, value) in patch["metadata"][part].as_object().unwrap() {
                match value {
                    Value::Null => drop(live["metadata"][part].as_object_mut().map(|map| map.remove(key))),
                    value => live["metadata"][part][key] = value.clone(),
                }
            }
        }
        live
    }

    fn bare() -> Value {
        json!({"metadata": {"labels": {}, "annotations": {}}})
    }

    #[test]
    fn pods_may_do_everything_only_where_the_policy_says_so() {
        assert_eq!(wanted(Some(&policy(true)), None, false, "gpu").len(), 3);
        assert!(wanted(Some(&policy(false)), None, false, "gpu").is_empty());
        assert!(wanted(None, None, false, "gpu").is_empty());
    }

    #[test]
    fn on_openshift_only_the_usual_namespace_is_labelled() {
        assert!(wanted(Some(&policy(true)), None, true, "gpu").is_empty());
        assert_eq!(wanted(Some(&policy(true)), None, true, USUAL).len(), 4);
        assert_eq!(wanted(Some(&policy(false)), None, true, USUAL), Labels::from([(MONITORING, "true")]));
    }

    #[test]
    fn monitoring_that_was_switched_off_stays_off() {
        let mut off = bare();
        off["metadata"]["labels"][MONITORING] = "false".into();
        assert_eq!(patch(&off, &Labels::from([(MONITORING, "true")])), None);
    }

    #[test]
    fn claims_of_a_gpu_cluster_may_see_all_gpus() {
        assert_eq!(wanted(None, Some(&cluster()), false, "gpu"), Labels::from([(ADMIN_ACCESS, "true")]));
    }

    #[test]
    fn what_was_there_before_comes_back() {
        let mut before = bare();
        before["metadata"]["labels"] = json!({SECURITY[0]: "baseline", "mine": "x"});
        let labels = wanted(Some(&policy(true)), None, false, "gpu");
        let after = patched(&before, &labels);
        assert_eq!(after["metadata"]["labels"][SECURITY[0]], "privileged");
        assert_eq!(patch(&after, &labels), None, "said once");
        assert_eq!(patched(&after, &Labels::new()), before);
    }

    #[test]
    fn what_a_person_changed_since_stays() {
        let labels = wanted(Some(&policy(true)), None, false, "gpu");
        let mut changed = patched(&bare(), &labels);
        changed["metadata"]["labels"][SECURITY[1]] = "restricted".into();
        let after = patched(&changed, &Labels::new());
        assert_eq!(after["metadata"]["labels"], json!({SECURITY[1]: "restricted"}));
    }
}
