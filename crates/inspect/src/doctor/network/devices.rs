//! Network devices for pods: RDMA resources that no device plugin offers, and virtual functions that are not created.

use serde_json::Value;

use crate::doctor::finding::{Finding, Scope};
use crate::doctor::index::{Index, amount, items, reference, short, text};
use crate::snapshot::named;

const SRIOV: &str = "sriovnetwork.openshift.io";

/// Whether a resource is one of network devices.
fn is_network(index: &Index<'_>, resource: &str) -> bool {
    let (domain, name) = resource.split_once('/').unwrap_or(("", resource));
    let policies = index.snapshot.of(SRIOV, "SriovNetworkNodePolicy");
    ["rdma", "mellanox.com", "openshift.io"].contains(&domain)
        || (domain == "nvidia.com" && (name.contains("rdma") || name.contains("hostdev")))
        || policies.iter().any(|policy| text(&policy["spec"]["resourceName"]) == name)
}

pub(super) fn rdma(index: &Index<'_>) -> Vec<Finding> {
    let offered =
        |resource: &str| index.nodes().iter().any(|node| amount(&node["status"]["allocatable"][resource]) > 0);
    let waiting = index.pods.iter().filter_map(|pod| Some((pod, pod.unschedulable()?)));
    waiting
        .filter_map(|(pod, message)| {
            let resource = pod.devices().into_iter().find(|name| is_network(index, name) && !offered(name))?;
            let name = resource.split_once('/').map_or(resource, |(_, name)| name);
            Some(
                pod.finding(index, format!("no node offers {resource}"))
                    .evidence(format!("{}: {}", pod.reference(), short(message)))
                    .fix(format!(
                        "offer it: a NicClusterPolicy with rdmaSharedDevicePlugin, or a SriovNetworkNodePolicy with \
                         resourceName: {name} and isRdma: true; see that its device plugin runs"
                    )),
            )
        })
        .collect()
}

pub(super) fn vfs(index: &Index<'_>) -> Vec<Finding> {
    let policies = index.snapshot.of(SRIOV, "SriovNetworkNodePolicy").iter();
    let nowhere = policies.filter(|policy| named(policy).1 != "default").filter_map(|policy| {
        let selector = policy["spec"]["nodeSelector"].as_object()?;
        let matches = |node: &Value| selector.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value);
        if index.nodes().is_empty() || index.nodes().iter().any(matches) {
            return None;
        }
        let words: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={}", text(value))).collect();
        let finding = Finding::about(policy, format!("its nodeSelector {} matches no node", words.join(",")));
        Some(
            finding
                .evidence(format!("{} of {} nodes match", 0, index.nodes().len()))
                .fix(format!("correct spec.nodeSelector, or label nodes: kubectl label node NAME {}", words.join(" "))),
        )
    });
    let states = index.snapshot.of(SRIOV, "SriovNetworkNodeState").iter();
    nowhere.chain(states.flat_map(of_node)).collect()
}

/// Findings in a node's SR-IOV state.
fn of_node(state: &Value) -> Vec<Finding> {
    let node = named(state).1;
    let mut all = Vec::new();
    for wanted in items(&state["spec"]["interfaces"]) {
        let address = text(&wanted["pciAddress"]);
        let interface = items(&state["status"]["interfaces"]).iter().find(|one| text(&one["pciAddress"]) == address);
        let Some(interface) = interface else { continue };
        let (requested, most) = (amount(&wanted["numVfs"]), amount(&interface["totalvfs"]));
        if requested <= most {
            continue;
        }
        let policy =
            items(&wanted["vfGroups"]).iter().map(|group| text(&group["policyName"])).next().unwrap_or_default();
        let name = text(&interface["name"]);
        let mut finding = Finding::new(
            format!("node {node}"),
            format!("{requested} virtual functions are asked for, and the firmware of the network card allows {most}"),
            Scope::Objects,
        )
        .object(reference(state))
        .object(format!("Node {node}"));
        if !policy.is_empty() {
            finding = finding.object(format!("SriovNetworkNodePolicy {}/{policy}", named(state).0));
        }
        all.push(
            finding
                .evidence(format!("{}: {name} ({address}): numVfs {requested}, totalvfs {most}", reference(state)))
                .fix(format!(
                    "lower spec.numVfs of the policy {policy} to {most}, or raise it in the firmware: mlxconfig -d {address} set \
                     SRIOV_EN=1 NUM_OF_VFS={requested}, then a cold reboot"
                )),
        );
    }
    if all.is_empty() && state["status"]["syncStatus"] == "Failed" {
        let error = short(text(&state["status"]["lastSyncError"]));
        let finding = Finding::about(state, format!("the virtual functions were not set up: {error}"));
        let finding =
            finding.object(format!("Node {node}")).evidence(format!("{}: syncStatus Failed", reference(state)));
        all.push(finding.fix(format!("kubectl logs of the daemon sriov-network-config-daemon on node {node}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn policy(selector: Value) -> Value {
        json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy",
            "metadata": {"name": "rails", "namespace": "sriov"},
            "spec": {"resourceName": "rails", "numVfs": 16, "nodeSelector": selector, "nicSelector": {"pfNames": ["eth2"]}},
        })
    }

    fn state(requested: i64, most: i64) -> Value {
        json!({
            "apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodeState",
            "metadata": {"name": "gpu-1", "namespace": "sriov"},
            "spec": {"interfaces": [{"pciAddress": "0000:5e:00.0", "numVfs": requested, "vfGroups": [{"policyName": "rails"}]}]},
            "status": {"syncStatus": "Succeeded", "interfaces": [{"pciAddress": "0000:5e:00.0", "name": "eth2", "totalvfs": most}]},
        })
    }

    #[test]
    fn a_resource_that_no_node_offers() {
        let message = "0/3 nodes are available: 3 Insufficient rdma/rdma_shared_device_a.";
        let cluster = Cluster::healthy().unschedulable("train", "rdma/rdma_shared_device_a", 1, message);
        assert_only(&cluster, "rdma-missing");
    }

    #[test]
    fn a_policy_that_matches_no_node() {
        let cluster = Cluster::healthy().add(policy(json!({"rail": "optimized"})));
        let report = assert_only(&cluster, "vfs-missing");
        assert!(report.causes[0].title.ends_with("its nodeSelector rail=optimized matches no node"), "{report:?}");
    }

    #[test]
    fn more_functions_than_the_firmware_allows() {
        let matching = policy(json!({"kubernetes.io/hostname": "gpu-1"}));
        assert_only(&Cluster::healthy().add(matching.clone()).add(state(16, 8)), "vfs-missing");
        assert_healthy(&Cluster::healthy().add(matching).add(state(8, 8)));
    }

    #[test]
    fn functions_that_could_not_be_set_up() {
        let mut failed = state(8, 8);
        failed["status"]["syncStatus"] = "Failed".into();
        failed["status"]["lastSyncError"] = "cannot allocate memory".into();
        assert_only(&Cluster::healthy().add(failed), "vfs-missing");
    }
}
