//! Fabric manager: without it GPUs behind NVSwitches do not initialize, even with a working driver.

use capstan_operands::causes::{Cause, Class, words};

use crate::doctor::finding::Finding;
use crate::doctor::index::{Index, Role, short};

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    let speaking = index.pods.iter().filter(|pod| !pod.is_ready() && !pod.node.is_empty());
    for (pod, (container, line)) in speaking.filter_map(|pod| Some((pod, index.find_output(pod, words::FABRIC)?))) {
        let line = format!("{}, container {container}: {}", pod.reference(), short(line));
        let known = all.iter_mut().find(|one| one.runs_on == pod.node);
        match known {
            Some(known) => *known = known.clone().object(pod.reference()).evidence(line),
            None => {
                let mut finding = Finding::on_node(pod.node, Cause::of(Class::FabricManager, "").what(""));
                finding.runs_on = pod.node.into();
                let driver = index.on_node(pod.node, Role::Driver).next();
                let fix = match driver {
                    Some(driver) => format!(
                        "the driver's pod starts it where it finds NVSwitches: kubectl logs -n {} {}; its version must \
                         be that of the driver",
                        driver.namespace, driver.name
                    ),
                    None => format!(
                        "on node {}: systemctl enable --now nvidia-fabricmanager, in the very version of the driver",
                        pod.node
                    ),
                };
                all.push(finding.object(pod.reference()).evidence(line).fix(fix));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn gpus_that_wait_for_their_fabric() {
        let line = "Failed to allocate device vector A (error code system not yet initialized)!";
        assert_only(&Cluster::healthy().crashing("validator", "gpu-1", "cuda-validation", line), "fabric-manager");
    }
}
