//! Driver installation failures, classified by the log of the installer and kernel messages.

use std::collections::BTreeMap;

use capstan_operands::causes::{Cause, Class, words};

use crate::doctor::finding::Finding;
use crate::doctor::index::{Classified, Index, Pod, Role, condition, label, reference, short, text};

/// Class of a driver pod's failure, with the log line.
fn class<'a>(index: &Index<'a>, pod: &Pod<'a>) -> Classified<'a> {
    let of = |pod: &Pod<'a>| {
        words::DRIVER.iter().find_map(|(class, words)| {
            let (container, line) = index.find_output(pod, words)?;
            Some((*class, container, line))
        })
    };
    let all = index.driver_classes.get_or_init(|| {
        let drivers = index.pods.iter().filter(|pod| pod.role == Role::Driver && !pod.is_ready());
        drivers.map(|pod| ((pod.namespace, pod.name), of(pod))).collect()
    });
    match all.get(&(pod.namespace, pod.name)) {
        Some(known) => *known,
        None => of(pod),
    }
}

/// Driver pods that fail for this reason, with evidence. Logs are read from a sample of failed pods: if they agree, the
/// other pods of the DaemonSet are assumed to fail for the same reason.
fn failing<'a>(index: &Index<'a>, wanted: Class) -> Vec<(Pod<'a>, String)> {
    let drivers = || index.pods.iter().filter(|pod| pod.role == Role::Driver && !pod.is_ready());
    let mut reported: BTreeMap<&str, Vec<Option<Class>>> = BTreeMap::new();
    for pod in drivers().filter(|pod| !has_no_output(index, pod)) {
        reported.entry(pod.owner()).or_default().push(class(index, pod).map(|(class, ..)| class));
    }
    let all_agree =
        |pod: &Pod<'_>| reported.get(pod.owner()).is_some_and(|all| all.iter().all(|one| *one == Some(wanted)));
    drivers()
        .filter_map(|pod| match class(index, pod) {
            Some((class, container, line)) if class == wanted => {
                Some((*pod, format!("{}, container {container}: {}", pod.reference(), short(line))))
            }
            None if pod.failure().is_some() && has_no_output(index, pod) && all_agree(pod) => {
                Some((*pod, format!("{} fails as the others do; its log was not read", pod.reference())))
            }
            _ => None,
        })
        .collect()
}

fn has_no_output<'a>(index: &Index<'a>, pod: &Pod<'a>) -> bool {
    index.output_lines(pod).next().is_none()
}

/// Kernel version of a node, as its kubelet reports it.
fn kernel<'a>(index: &Index<'a>, node: &str) -> &'a str {
    let Some(node) = index.node(node) else { return "of the node" };
    let full = label(node, "feature.node.kubernetes.io/kernel-version.full");
    if full.is_empty() { text(&node["status"]["nodeInfo"]["kernelVersion"]) } else { full }
}

fn findings(index: &Index<'_>, class: Class, fix: impl Fn(&str) -> String) -> Vec<Finding> {
    let cause = Cause::of(class, "");
    let one = |(pod, line): (Pod<'_>, String)| {
        let kernel = kernel(index, pod.node);
        pod.finding(index, cause.what(kernel)).evidence(line).fix(fix(kernel))
    };
    failing(index, class).into_iter().map(one).collect()
}

pub(super) fn headers(index: &Index<'_>) -> Vec<Finding> {
    findings(index, Class::Headers, |kernel| {
        format!(
            "let nodes reach a mirror that has linux-headers-{kernel} (kernel-devel on RHEL): \
             spec.driver.repoConfig.configMapName of the ClusterPolicy; or take a driver that is built already: \
             spec.driver.usePrecompiled: true"
        )
    })
}

pub(super) fn nouveau(index: &Index<'_>) -> Vec<Finding> {
    let fix = "on the node: printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/nouveau.conf, renew \
               the initramfs (update-initramfs -u, or dracut --force), and reboot";
    findings(index, Class::Nouveau, |_| fix.into())
}

pub(super) fn secure_boot(index: &Index<'_>) -> Vec<Finding> {
    let fix = "take a driver signed for this system (spec.driver.usePrecompiled: true, or the host's own with \
               spec.driver.enabled: false), enroll the signing key with mokutil --import, or switch Secure Boot off";
    findings(index, Class::SecureBoot, |_| fix.into())
}

pub(super) fn in_use(index: &Index<'_>) -> Vec<Finding> {
    let fix = "see who uses it: `fuser -v /dev/nvidia*` on the node; end that, or let the upgrade evict pods: \
               spec.driver.upgradePolicy.gpuPodDeletion and .drain of the ClusterPolicy; the last resort is a reboot";
    findings(index, Class::InUse, |_| fix.into())
}

fn kernel_fix(kernel: &str) -> String {
    format!(
        "set spec.driver.version of the ClusterPolicy to one that supports kernel {kernel}, or boot the node with a \
         kernel that the driver supports"
    )
}

pub(super) fn kernel_unsupported(index: &Index<'_>) -> Vec<Finding> {
    let mut all = findings(index, Class::Kernel, kernel_fix);
    for pod in index.pods.iter().filter(|pod| pod.role == Role::Driver && pod.label("nvidia.com/precompiled") == "true")
    {
        let no_image =
            pod.containers().find_map(|one| one.waiting().filter(|(reason, _)| reason.contains("ImagePull")));
        if let Some((reason, message)) = no_image {
            let kernel = kernel(index, pod.node);
            let what = Cause::of(Class::NoPrecompiled, "").what(kernel);
            let mut finding =
                pod.finding(index, what).evidence(format!("{}: {reason}: {}", pod.reference(), short(message)));
            finding = conditions(index).fold(finding, Finding::evidence);
            all.push(finding.fix(format!("{}, or spec.driver.usePrecompiled: false", kernel_fix(kernel))));
        }
    }
    all
}

/// Conditions of custom resources about kernels.
fn conditions<'a>(index: &Index<'a>) -> impl Iterator<Item = String> + use<'a> {
    let policies = index.snapshot.of("nvidia.com", "ClusterPolicy").iter();
    policies.chain(index.snapshot.of("nvidia.com", "NVIDIADriver")).filter_map(|policy| {
        let reported = condition(policy, "UnsupportedKernel").filter(|one| one["status"] == "True")?;
        Some(format!("{}, condition UnsupportedKernel: {}", reference(policy), text(&reported["message"])))
    })
}

/// Driver pods that fail for an unclassified reason.
pub(super) fn crashes(index: &Index<'_>) -> Vec<Finding> {
    let drivers = || index.pods.iter().filter(|pod| pod.role == Role::Driver);
    let failing = || drivers().filter_map(|pod| Some((pod, pod.failure()?)));
    let some_speak = failing().any(|(pod, _)| !has_no_output(index, pod));
    failing()
        .filter(|(pod, _)| class(index, pod).is_none() && !(has_no_output(index, pod) && some_speak))
        .map(|(pod, container)| {
            let code = container.failure().map_or(0, |end| end["exitCode"].as_i64().unwrap_or(0));
            let line = index.last_line(pod, container.name).unwrap_or("nothing was logged");
            pod.finding(index, Cause::of(Class::DriverCrashes, container.name).what(""))
                .evidence(format!("{}: exit code {code} after {} restarts", pod.reference(), container.restarts()))
                .evidence(format!("{}, container {}: {}", pod.reference(), container.name, short(line)))
                .fix(format!("kubectl logs -n {} {} -c {} --previous", pod.namespace, pod.name, container.name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_only};

    fn driver(line: &str) -> Cluster {
        Cluster::healthy().crashing("driver", "gpu-1", "nvidia-driver-ctr", line)
    }

    #[test]
    fn headers_that_are_missing() {
        for line in [
            "Could not resolve Linux kernel version",
            "E: Unable to locate package linux-headers-6.8.0-45-generic",
            "Error: Unable to find a match: kernel-devel-5.14.0-503.el9.x86_64",
        ] {
            let report = assert_only(&driver(line), "driver-headers-missing");
            assert!(
                report.causes[0].title.starts_with("node gpu-1: the headers of kernel 6.8.0-45-generic"),
                "{report:?}"
            );
            assert!(report.causes[0].evidence[0].ends_with(line), "{report:?}");
        }
    }

    #[test]
    fn nouveau_that_is_loaded() {
        assert_only(
            &driver("ERROR: The Nouveau kernel driver is currently in use by your system."),
            "driver-nouveau-loaded",
        );
    }

    #[test]
    fn secure_boot_that_rejects_the_module() {
        for line in [
            "modprobe: ERROR: could not insert 'nvidia': Required key not available",
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        ] {
            assert_only(&driver(line), "driver-secure-boot");
        }
    }

    #[test]
    fn kernels_that_are_not_supported() {
        assert_only(&driver("ERROR: Unable to build the NVIDIA kernel module."), "driver-kernel-unsupported");
        assert_only(
            &driver("modprobe: ERROR: could not insert 'nvidia': Exec format error"),
            "driver-kernel-unsupported",
        );
    }

    #[test]
    fn kernels_without_a_precompiled_driver() {
        let cluster = Cluster::healthy()
            .edit("Pod", "driver-gpu-1", |pod| pod["metadata"]["labels"]["nvidia.com/precompiled"] = "true".into())
            .unpulled("driver", "gpu-1", "nvidia-driver-ctr", "manifest unknown: not found");
        assert_only(&cluster, "driver-kernel-unsupported");
    }

    #[test]
    fn drivers_that_are_in_use() {
        assert_only(&driver("Could not unload NVIDIA driver kernel modules, driver is in use"), "driver-in-use");
    }

    #[test]
    fn pods_whose_log_was_not_read_fail_as_the_others_do() {
        let line = "Could not resolve Linux kernel version";
        let mut cluster = driver(line).crashing("driver", "gpu-2", "nvidia-driver-ctr", line);
        cluster.snapshot.logs.retain(|key, _| !key.contains("gpu-2"));
        let report = assert_only(&cluster, "driver-headers-missing");
        assert_eq!(report.causes[0].count, 2, "{report:?}");
    }

    #[test]
    fn reasons_that_nobody_knows_are_quoted() {
        let report = assert_only(&driver("segmentation fault"), "driver-crashes");
        assert!(report.causes[0].evidence[1].ends_with("segmentation fault"), "{report:?}");
    }
}
