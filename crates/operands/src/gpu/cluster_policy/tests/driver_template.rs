//! The driver's DaemonSet, line by line.

use super::*;

/// A driver with every container that there can be.
fn full() -> Plan<ClusterPolicyStatus> {
    let more = json!({"driver": {"rdma": {"enabled": true}}, "gds": {"enabled": true}, "gdrcopy": {"enabled": true}});
    fresh(&policy(more), &openshift(&["9.6.1"]))
}

#[test]
fn the_manager_unloads_the_old_driver_first() {
    let plan = on_ubuntu(json!({}));
    let manager = container(daemon(&plan, "nvidia-driver-daemonset"), "k8s-driver-manager").unwrap();
    assert_eq!(words(manager), ["driver-manager", "uninstall_driver"]);
    assert_eq!(manager["imagePullPolicy"], "IfNotPresent");
    let env = variables(manager);
    assert_eq!(
        env[..9],
        [
            "NODE_NAME<-spec.nodeName",
            "NVIDIA_VISIBLE_DEVICES=void",
            "ENABLE_GPU_POD_EVICTION=true",
            "ENABLE_AUTO_DRAIN=false",
            "DRAIN_USE_FORCE=false",
            "DRAIN_POD_SELECTOR_LABEL=",
            "DRAIN_TIMEOUT_SECONDS=0s",
            "DRAIN_DELETE_EMPTYDIR_DATA=false",
            "OPERATOR_NAMESPACE<-metadata.namespace",
        ]
    );
    assert!(env[9].starts_with("DRIVER_CONFIG_DIGEST=") && env.len() == 10, "{env:?}");
    assert_eq!(
        mounts(manager),
        [
            "run-nvidia /run/nvidia Bi",
            "host-root /host ro H2C",
            "host-sys /sys",
            "run-mellanox-drivers /run/mellanox/drivers H2C"
        ]
    );
    assert!(manager["securityContext"]["seLinuxOptions"].is_null());
}

#[test]
fn the_driver_container_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-driver-daemonset");
    assert_eq!(containers(daemon), ["k8s-driver-manager", "nvidia-driver-ctr"]);
    let driver = container(daemon, "nvidia-driver-ctr").unwrap();
    assert_eq!(words(driver), ["nvidia-driver", "init"]);
    assert_eq!(variables(driver)[..2], ["NODE_NAME<-spec.nodeName", "NODE_IP<-status.hostIP"]);
    assert_eq!(
        mounts(driver),
        [
            "run-nvidia /run/nvidia Bi",
            "run-nvidia-fabricmanager /run/nvidia-fabricmanager",
            "run-nvidia-topologyd /run/nvidia-topologyd",
            "var-log /var/log",
            "dev-log /dev/log",
            "host-os-release /host-etc/os-release ro",
            "mlnx-ofed-usr-src /run/mellanox/drivers/usr/src H2C",
            "run-mellanox-drivers /run/mellanox/drivers H2C",
            "host-sys-devices-system /sys/devices/system",
            "firmware-search-path /sys/module/firmware_class/parameters/path",
            "nv-firmware /lib/firmware",
            "driver-startup-probe-script /usr/local/bin/startup-probe.sh sub=startup-probe.sh",
        ]
    );
    assert_eq!(
        driver["startupProbe"],
        json!({"exec": {"command": ["sh", "/usr/local/bin/startup-probe.sh"]}, "initialDelaySeconds": 60,
            "failureThreshold": 120, "successThreshold": 1, "periodSeconds": 10, "timeoutSeconds": 60})
    );
    let stop = driver["lifecycle"]["preStop"].to_string();
    assert!(stop.contains(".driver-ctr-ready") && stop.contains(".driver-daemons-status"), "{stop}");
}

#[test]
fn its_volumes_are_those_of_the_node() {
    let plan = on_ubuntu(json!({}));
    assert_eq!(
        volumes(daemon(&plan, "nvidia-driver-daemonset")),
        [
            "dev-log /dev/log",
            "driver-startup-probe-script ConfigMap=nvidia-driver-startup-probe 755",
            "firmware-search-path /sys/module/firmware_class/parameters/path",
            "host-os-release /etc/os-release",
            "host-root /",
            "host-sys /sys Directory",
            "host-sys-devices-system /sys/devices/system Directory",
            "mlnx-ofed-usr-src /run/mellanox/drivers/usr/src DoC",
            "nv-firmware /run/nvidia/driver/lib/firmware DoC",
            "run-mellanox-drivers /run/mellanox/drivers DoC",
            "run-nvidia /run/nvidia DoC",
            "run-nvidia-fabricmanager /run/nvidia-fabricmanager DoC",
            "run-nvidia-topologyd /run/nvidia-topologyd DoC",
            "run-nvidia-validations /run/nvidia/validations DoC",
            "var-log /var/log",
        ]
    );
}

#[test]
fn its_pods_stay_until_somebody_deletes_them_and_never_share_a_node() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-driver-daemonset");
    assert_eq!(daemon["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(pod(daemon)["hostPID"], true);
    for labels in [&daemon["metadata"]["labels"], &daemon["spec"]["template"]["metadata"]["labels"]] {
        assert_eq!(labels["app"], "nvidia-driver-daemonset");
        assert_eq!(labels["nvidia.com/precompiled"], "false");
        assert_eq!(labels["app.kubernetes.io/component"], "nvidia-driver");
    }
    let annotations = &daemon["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "nvidia-driver-ctr");
    let path = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(
        pod(daemon).pointer(path).unwrap(),
        &json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [
            {"key": "app.kubernetes.io/component", "operator": "In", "values": ["nvidia-driver"]}]}}])
    );
}

#[test]
fn sidecars_load_further_modules() {
    let plan = full();
    let daemon = daemon(&plan, "nvidia-driver-daemonset-9.6.1");
    assert_eq!(
        containers(daemon),
        [
            "k8s-driver-manager",
            "nvidia-driver-ctr",
            "nvidia-peermem-ctr",
            "nvidia-fs-ctr",
            "nvidia-gdrcopy-ctr",
            "openshift-driver-toolkit-ctr"
        ]
    );
    let peermem = container(daemon, "nvidia-peermem-ctr").unwrap();
    assert_eq!(words(peermem), ["nvidia-driver", "reload_nvidia_peermem"]);
    assert_eq!(
        mounts(peermem),
        [
            "run-nvidia /run/nvidia Bi",
            "var-log /var/log",
            "dev-log /dev/log ro",
            "run-mellanox-drivers /run/mellanox/drivers H2C"
        ]
    );
    let command = json!({"command": ["sh", "-c", "nvidia-driver probe_nvidia_peermem"]});
    assert_eq!(
        peermem["startupProbe"],
        json!({"exec": command, "initialDelaySeconds": 10, "failureThreshold": 120, "periodSeconds": 10, "timeoutSeconds": 10})
    );
    assert_eq!(
        peermem["livenessProbe"],
        json!({"exec": command, "initialDelaySeconds": 30, "failureThreshold": 1, "periodSeconds": 30, "timeoutSeconds": 10})
    );
    for (name, module) in [("nvidia-fs-ctr", "nvidia_fs"), ("nvidia-gdrcopy-ctr", "gdrdrv")] {
        let one = container(daemon, name).unwrap();
        assert_eq!(mounts(one)[..3], ["run-nvidia /run/nvidia H2C", "var-log /var/log", "dev-log /dev/log ro"]);
        let probe = &one["startupProbe"];
        assert!(probe["exec"].to_string().contains(module), "{probe}");
        assert_eq!((&probe["initialDelaySeconds"], &probe["failureThreshold"]), (&json!(10), &json!(120)));
    }
    for name in containers(daemon).into_iter().skip(1) {
        let context = &container(daemon, name).unwrap()["securityContext"];
        assert_eq!(*context, json!({"privileged": true, "seLinuxOptions": {"level": "s0"}}), "{name}");
    }
}

#[test]
fn sidecars_run_where_the_driver_is_built_without_openshift_too() {
    let plan = on_ubuntu(json!({"gds": {"enabled": true}, "gdrcopy": {"enabled": true}}));
    let daemon = daemon(&plan, "nvidia-driver-daemonset");
    for (name, install) in [
        ("nvidia-fs-ctr", "exec nvidia-gds-driver install"),
        ("nvidia-gdrcopy-ctr", "exec nvidia-gdrcopy-driver install"),
    ] {
        let words = words(container(daemon, name).unwrap());
        assert_eq!(words[..2], ["bash", "-xc"]);
        assert!(words[2].contains("/run/nvidia/driver/usr/src") && words[2].ends_with(install), "{words:?}");
    }
}

#[test]
fn the_probe_says_what_the_validator_reads() {
    let plan = on_ubuntu(json!({}));
    let map = find(&plan, "ConfigMap", "nvidia-driver-startup-probe").unwrap();
    assert_eq!(map["metadata"]["labels"]["app"], "nvidia-driver-daemonset");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/component"], "nvidia-driver");
    let script = map["data"]["startup-probe.sh"].as_str().unwrap();
    for part in [
        "/sys/module/nvidia/refcnt",
        ".driver-daemons-status",
        "nvidia-smi",
        ".driver-ctr-ready",
        "GDRCOPY_ENABLED: ",
        "GDS_ENABLED: ",
        "GPU_DIRECT_RDMA_ENABLED: ",
    ] {
        assert!(script.contains(part), "{part}");
    }
}
