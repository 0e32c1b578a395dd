//! Volumes that are not provisioned, and volumes that are full.

use serde_json::Value;

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{Index, Pod, condition, items, reference, short, text};
use crate::snapshot::named;

const FULL_MESSAGES: &[&str] = &["no space left on device", "disk quota exceeded", "errno 28"];
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// The claims that a pod mounts.
fn claims<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let volumes = items(&pod.value["spec"]["volumes"]).iter();
    volumes.map(|one| text(&one["persistentVolumeClaim"]["claimName"])).filter(|name| !name.is_empty())
}

pub(super) fn pending(index: &Index<'_>) -> Vec<Finding> {
    let claims = index.snapshot.of("", "PersistentVolumeClaim").iter();
    claims.filter(|claim| claim["status"]["phase"] != "Bound").filter_map(|claim| unbound(index, claim)).collect()
}

fn unbound(index: &Index<'_>, claim: &Value) -> Option<Finding> {
    let (namespace, name) = named(claim);
    let users: Vec<&Pod<'_>> =
        index.pods.iter().filter(|pod| pod.namespace == namespace && claims(pod).any(|one| one == name)).collect();
    let classes = index.snapshot.of("storage.k8s.io", "StorageClass");
    let wanted = &claim["spec"]["storageClassName"];
    let class = classes.iter().find(|class| named(class).1 == text(wanted));
    let failed = index.warnings("PersistentVolumeClaim", namespace, name).last();
    let (what, fix) = if claim["status"]["phase"] == "Lost" {
        (
            "the volume of the claim is gone".to_owned(),
            "restore the PersistentVolume, or delete the claim and begin anew".to_owned(),
        )
    } else if text(wanted).is_empty() {
        let given = !text(&claim["spec"]["volumeName"]).is_empty();
        if given || classes.iter().any(|class| class["metadata"]["annotations"][DEFAULT] == "true") {
            return None;
        }
        let what = "the claim names no StorageClass, and the cluster has no default one".to_owned();
        (
            what,
            format!(
                "name one of `kubectl get storageclasses`, or make one the default: kubectl annotate storageclass NAME {DEFAULT}=true"
            ),
        )
    } else if class.is_none() && !index.snapshot.unread.contains_key("StorageClass.storage.k8s.io") {
        let known: Vec<&str> = classes.iter().map(|class| named(class).1).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        (
            format!("there is no StorageClass {}", text(wanted)),
            format!(
                "name one that is there ({known}): storage.pvc.storageClass of the NIMService or NIMCache; a claim cannot be changed, so delete it"
            ),
        )
    } else {
        let waits_for_pod = class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
        let placed = users.iter().any(|pod| !pod.node.is_empty());
        // With `WaitForFirstConsumer` no volume is provisioned before the pod is scheduled.
        if failed.is_none()
            && ((waits_for_pod && !placed) || !index.exceeds_grace_period(&claim["metadata"]["creationTimestamp"]))
        {
            return None;
        }
        let provisioner = class.map_or("", |class| text(&class["provisioner"]));
        (
            "no volume is made for the claim".to_owned(),
            format!("kubectl describe pvc -n {namespace} {name}; see that the provisioner {provisioner} runs"),
        )
    };
    let mut finding = Finding::about(claim, what).fix(fix);
    finding = finding.evidence(format!("{} is {}", reference(claim), text(&claim["status"]["phase"])));
    if let Some(event) = failed {
        finding = finding.evidence(format!("{}: {}", reference(claim), short(text(&event["message"]))));
    }
    if users.is_empty() {
        finding = finding.severity(Severity::Warning);
    }
    for pod in users {
        let reported = pod.finding(index, "");
        finding = reported.objects.into_iter().fold(finding, Finding::object);
        finding = finding.evidence(format!("{} waits for it", pod.reference()));
    }
    Some(finding)
}

pub(super) fn full(index: &Index<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for pod in index.pods.iter().filter(|pod| !pod.is_ready()) {
        let Some((container, line)) = index.find_output(pod, FULL_MESSAGES) else { continue };
        let names: Vec<&str> = claims(pod).collect();
        let (what, fix) = match names.first() {
            Some(name) => (
                format!("PersistentVolumeClaim {}/{name} is full", pod.namespace),
                format!(
                    "kubectl patch pvc -n {} {name} --type merge -p '{{\"spec\":{{\"resources\":{{\"requests\":{{\"storage\":\"<more>\"}}}}}}}}' \
                     if its class allows it to grow (allowVolumeExpansion), else a larger storage.pvc.size in a new claim",
                    pod.namespace
                ),
            ),
            None => (
                "the disk that it writes to is full".to_owned(),
                "give it a volume of its own, or more ephemeral-storage".to_owned(),
            ),
        };
        let mut finding = pod.finding(index, what).scope(Scope::Objects).fix(fix);
        finding.at = pod.reference();
        for name in names {
            finding = finding.object(format!("PersistentVolumeClaim {}/{name}", pod.namespace));
        }
        all.push(finding.evidence(format!("{}, container {container}: {}", pod.reference(), short(line))));
    }
    for node in index.nodes() {
        if let Some(pressure) = condition(node, "DiskPressure").filter(|one| one["status"] == "True") {
            let name = named(node).1;
            all.push(
                Finding::on_node(name, "the disk of the node is full")
                    .evidence(format!("Node {name}, condition DiskPressure: {}", short(text(&pressure["message"]))))
                    .fix(format!("on node {name}: crictl rmi --prune, df -h /var/lib")),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn claim(class: &str) -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": "nim", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"storageClassName": class}, "status": {"phase": "Pending"},
        })
    }

    #[test]
    fn a_class_that_is_not_there() {
        let report = assert_only(&Cluster::healthy().add(claim("fast")), "volume-pending");
        assert_eq!(report.causes[0].title, "PersistentVolumeClaim nim/models: there is no StorageClass fast");
    }

    #[test]
    fn a_claim_that_waits_for_its_first_pod_is_well() {
        assert_healthy(&Cluster::healthy().add(claim("standard")));
    }

    #[test]
    fn a_provisioner_that_fails() {
        let cluster = Cluster::healthy().add(claim("standard")).warning(
            "PersistentVolumeClaim",
            "nim",
            "models",
            "ProvisioningFailed",
            "quota of the storage system is used up",
        );
        assert_only(&cluster, "volume-pending");
    }

    #[test]
    fn a_volume_that_is_full() {
        let line = "OSError: [Errno 28] No space left on device: '/model-store/ngc'";
        let report = assert_only(&Cluster::healthy().crashing("llama", "gpu-0", "llama-ctr", line), "volume-full");
        assert_eq!(report.causes[0].title, "Pod nim/llama-gpu-0: PersistentVolumeClaim nim/llama-pvc is full");
    }

    #[test]
    fn a_disk_that_is_full() {
        let cluster = Cluster::healthy().edit("Node", "gpu-1", |node| {
            let pressure = json!({"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"});
            node["status"]["conditions"].as_array_mut().unwrap().push(pressure);
        });
        assert_only(&cluster, "volume-full");
    }
}
