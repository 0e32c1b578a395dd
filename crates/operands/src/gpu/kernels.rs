//! Kernels without a precompiled driver: their driver pods cannot pull an image.
//!
//! Registry tags are not listed; the evidence is the image pull error of the driver pod, which clears when the image is
//! published.

use std::collections::{BTreeMap, BTreeSet};

use capstan_plan::conditions::{self, Wanted};
use capstan_plan::{LiveObjects, Tree};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::fleet::KERNEL;

/// Type of the condition.
pub const CONDITION: &str = "UnsupportedKernel";

/// Label of driver pods whose driver was compiled for one kernel: `true`.
const PRECOMPILED: &str = "nvidia.com/precompiled";
/// Waiting reasons of image pull errors.
const REASONS: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];
/// Number of example kernels.
const EXAMPLES: usize = 3;

/// A driver pod without an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// UID of its DaemonSet.
    daemon_set: String,
    kernel: String,
    node: String,
    why: String,
}

impl Unsupported {
    /// From a cached driver pod; `None` if its image was pulled or is not kernel-specific. `kernel` returns the kernel
    /// of a node.
    pub fn of<T: Tree>(pod: &T, kernel: impl FnOnce(&str) -> Option<String>) -> Option<Self> {
        let meta = pod.at("metadata");
        let text = |value: &T| value.text().unwrap_or_default().to_owned();
        if !meta.at("labels").at(PRECOMPILED).says("true") {
            return None;
        }
        let mut containers = pod.at("status").at("containerStatuses").items().iter();
        let waits = containers.find_map(|one| {
            let waiting = one.at("state").at("waiting");
            waiting.at("reason").text().is_some_and(|reason| REASONS.contains(&reason)).then_some(waiting)
        })?;
        let message = waits.at("message").text().filter(|message| !message.is_empty());
        let node = text(pod.at("spec").at("nodeName"));
        Some(Self {
            daemon_set: meta.at("ownerReferences").items().first().map(|one| text(one.at("uid"))).unwrap_or_default(),
            kernel: kernel(&node).unwrap_or_default(),
            node,
            why: message.map_or_else(|| text(waits.at("reason")), str::to_owned),
        })
    }
}

/// The kernel of a node, by NFD label.
pub fn kernel_of<T: Tree>(node: &T) -> Option<String> {
    node.at("metadata").at("labels").at(KERNEL).text().map(str::to_owned)
}

/// Sets or clears the condition of the custom resource that owns the DaemonSets of these pods.
pub(super) fn show(
    list: &mut Vec<Condition>,
    pods: &[Unsupported],
    live: &LiveObjects,
    generation: Option<i64>,
    now: Timestamp,
) {
    let own: BTreeSet<&str> = live.iter().filter_map(|(_, object)| object["metadata"]["uid"].as_str()).collect();
    let mut kernels: BTreeMap<&str, Vec<&Unsupported>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| own.contains(&*pod.daemon_set)) {
        kernels.entry(&pod.kernel).or_default().push(pod);
    }
    if kernels.is_empty() {
        conditions::clear(list, CONDITION);
        return;
    }
    let one = |(kernel, pods): (&&str, &Vec<&Unsupported>)| {
        let first = pods.iter().min_by_key(|pod| &pod.node);
        let (node, why) = first.map_or(("", ""), |pod| (&*pod.node, &*pod.why));
        format!("{kernel} on {} nodes, such as {node}: {why}", pods.len())
    };
    let examples: Vec<String> = kernels.iter().take(EXAMPLES).map(one).collect();
    let more = kernels.len().saturating_sub(EXAMPLES);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let message = format!(
        "there is no precompiled driver for kernel {}{more}: boot a kernel that has one, or switch usePrecompiled off",
        examples.join("; ")
    );
    let wanted = Wanted { type_: CONDITION, status: true, reason: "NoPrecompiledDriver", message: &message };
    conditions::set(list, wanted, generation, now);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_plan::Ref;
    use k8s_openapi::api::apps::v1::DaemonSet;
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, owner: &str, state: &Value) -> Value {
        json!({
            "metadata": {"labels": {PRECOMPILED: "true"}, "ownerReferences": [{"uid": owner}]},
            "spec": {"nodeName": node}, "status": {"containerStatuses": [{"name": "nvidia-driver-ctr", "state": state}]},
        })
    }

    #[test]
    fn a_kernel_whose_image_cannot_be_pulled_is_named_until_it_can() {
        let missing = json!({"waiting": {"reason": "ImagePullBackOff", "message": "driver:580-6.8.0: not found"}});
        let running = json!({"running": {}});
        let pods = [pod("b", "ours", &missing), pod("a", "ours", &missing), pod("c", "theirs", &missing)];
        let node = json!({"metadata": {"labels": {KERNEL: "6.8.0-45-generic"}}});
        let pods: Vec<_> = pods.iter().filter_map(|pod| Unsupported::of(pod, |_| kernel_of(&node))).collect();
        assert_eq!((pods.len(), Unsupported::of(&pod("d", "ours", &running), |_| None)), (3, None));
        let mut live = LiveObjects::default();
        let set = json!({"metadata": {"name": "driver", "uid": "ours"}});
        live.insert(Ref::of::<DaemonSet>("ns", "driver"), Arc::new(set));
        let mut list = Vec::new();
        show(&mut list, &pods, &live, None, Timestamp::UNIX_EPOCH);
        assert_eq!((list[0].type_.as_str(), list[0].status.as_str()), ("UnsupportedKernel", "True"));
        assert_eq!(
            list[0].message,
            "there is no precompiled driver for kernel 6.8.0-45-generic on 2 nodes, such as a: driver:580-6.8.0: not \
             found: boot a kernel that has one, or switch usePrecompiled off"
        );
        show(&mut list, &[], &live, None, Timestamp::UNIX_EPOCH);
        assert!(list.is_empty());
    }
}
