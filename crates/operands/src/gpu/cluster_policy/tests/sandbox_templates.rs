//! DaemonSets of nodes that run virtual machines or confidential containers, line by line.

use super::*;

fn sandbox(mode: &str, more: Value) -> Plan<ClusterPolicyStatus> {
    let mut spec = json!({"sandboxWorkloads": {"enabled": true, "mode": mode}});
    for name in [
        "vgpuManager",
        "vgpuDeviceManager",
        "vfioManager",
        "sandboxDevicePlugin",
        "kataSandboxDevicePlugin",
        "ccManager",
    ] {
        spec[name] = json!({"enabled": true});
    }
    for (section, value) in more.as_object().unwrap() {
        spec[section].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    }
    fresh(&policy(spec), &ubuntu())
}

#[test]
fn sandboxes_are_off_until_they_are_switched_on() {
    let on = json!({"enabled": true});
    let plan =
        on_ubuntu(json!({"vgpuManager": on, "vgpuDeviceManager": on, "vfioManager": on, "sandboxDevicePlugin": on}));
    let daemons = objects(&plan).iter().filter(|one| one.reference.gvk.kind == "DaemonSet").count();
    assert_eq!(daemons, 9);
}

#[test]
fn the_mode_chooses_the_device_plugin() {
    let names =
        ["nvidia-sandbox-device-plugin-daemonset", "nvidia-kata-sandbox-device-plugin-daemonset", "nvidia-cc-manager"];
    let there = |mode: &str| names.map(|name| find(&sandbox(mode, json!({})), "DaemonSet", name).is_some());
    assert_eq!(there("kubevirt"), [true, false, false]);
    assert_eq!(there("kata"), [false, true, true]);
}

#[test]
fn managers_of_drivers_evict_nobody_there() {
    let plan = sandbox("kubevirt", json!({}));
    for name in ["nvidia-vgpu-manager-daemonset", "nvidia-vfio-manager"] {
        let manager = container(daemon(&plan, name), "k8s-driver-manager").unwrap();
        assert_eq!(
            variables(manager),
            [
                "NODE_NAME<-spec.nodeName",
                "NVIDIA_VISIBLE_DEVICES=void",
                "ENABLE_GPU_POD_EVICTION=false",
                "ENABLE_AUTO_DRAIN=false",
                "OPERATOR_NAMESPACE<-metadata.namespace"
            ]
        );
        assert_eq!(mounts(manager), ["run-nvidia /run/nvidia Bi", "host-root /host ro H2C", "host-sys /sys"]);
    }
}

#[test]
fn the_vgpu_manager_is_what_nodes_know() {
    let more = json!({"vgpuManager": {"repository": "r.io", "image": "vgpu-manager", "version": "580", "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "value": "1"}], "driverManager": {"image": "r.io/manager:2", "env": [{"name": "B", "value": "2"}]}}});
    let plan = sandbox("kubevirt", more);
    let daemon = daemon(&plan, "nvidia-vgpu-manager-daemonset");
    assert_eq!(containers(daemon), ["k8s-driver-manager", "nvidia-vgpu-manager-ctr"]);
    let main = container(daemon, "nvidia-vgpu-manager-ctr").unwrap();
    assert_eq!((words(main), variables(main)), (vec!["nvidia-driver", "init"], vec!["A=1".to_owned()]));
    assert_eq!(main["image"], "r.io/vgpu-manager:580-ubuntu24.04");
    assert_eq!(
        mounts(main),
        [
            "run-nvidia /run/nvidia Bi",
            "host-os-release /host-etc/os-release ro",
            "vfio /dev/vfio",
            "cgroup /sys/fs/cgroup",
            "var-log /var/log",
            "dev-log /dev/log",
            "firmware-search-path /sys/module/firmware_class/parameters/path",
            "nv-firmware /lib/firmware",
        ]
    );
    let volumes = volumes(daemon);
    for one in ["vfio /dev/vfio Directory", "cgroup /sys/fs/cgroup Directory", "var-log /var/log Directory"] {
        assert!(volumes.contains(&one.to_owned()), "{one}");
    }
    let manager = container(daemon, "k8s-driver-manager").unwrap();
    assert_eq!((&manager["image"], env(manager)["B"]), (&json!("r.io/manager:2"), "2"));
    assert_eq!(manager["resources"]["limits"]["cpu"], "1");
    let annotations = &daemon["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "nvidia-vgpu-manager-ctr");
}

#[test]
fn the_vgpu_manager_is_built_with_the_toolkit_of_openshift() {
    let more = json!({"sandboxWorkloads": {"enabled": true}, "vgpuManager": {"enabled": true, "env": [{"name": "A", "value": "1"}]},
        "driver": {"resources": {"limits": {"cpu": "3"}}}});
    let plan = fresh(&policy(more), &openshift(&["9.6.1"]));
    let daemon = daemon(&plan, "nvidia-vgpu-manager-daemonset-9.6.1");
    let (main, toolkit) = (
        container(daemon, "nvidia-vgpu-manager-ctr").unwrap(),
        container(daemon, "openshift-driver-toolkit-ctr").unwrap(),
    );
    assert_eq!(words(main), ["ocp_dtk_entrypoint", "nv-ctr-run-with-dtk"]);
    assert_eq!((env(main)["OPENSHIFT_VERSION"], env(main)["A"]), ("4.19", "1"));
    assert_eq!((&toolkit["image"], &toolkit["resources"]["limits"]["cpu"]), (&json!("r.io/dtk:9.6.1"), &json!("3")));
    let mounts = mounts(toolkit);
    for one in ["run-nvidia /run/nvidia Bi", "dev-log /dev/log", "nv-firmware /lib/firmware"] {
        assert!(mounts.contains(&one.to_owned()), "{one}");
    }
}

#[test]
fn hosts_of_two_systems_get_a_vgpu_manager_each() {
    let nodes =
        [node("a", ("ubuntu", "24.04"), "k1"), node("b", ("ubuntu", "24.04"), "k1"), node("c", ("rhel", "9.4"), "k2")];
    let more = json!({"sandboxWorkloads": {"enabled": true}, "vgpuManager": {"enabled": true}});
    let plan = fresh(&policy(more), &cluster(&nodes));
    for (name, tag, id) in [
        ("nvidia-vgpu-manager-daemonset", "ubuntu24.04", "ubuntu"),
        ("nvidia-vgpu-manager-daemonset-rhel9", "rhel9", "rhel"),
    ] {
        let daemon = daemon(&plan, name);
        let main = container(daemon, "nvidia-vgpu-manager-ctr").unwrap();
        assert_eq!(main["image"], format!("r.io/vgpu_manager_image:v1-{tag}"));
        assert_eq!(pod(daemon)["nodeSelector"]["feature.node.kubernetes.io/system-os_release.ID"], id);
    }
}

#[test]
fn the_vgpu_device_manager_is_what_nodes_know() {
    let plan = sandbox("kubevirt", json!({}));
    let daemon = daemon(&plan, "nvidia-vgpu-device-manager");
    let main = container(daemon, "nvidia-vgpu-device-manager").unwrap();
    assert_eq!(
        variables(main),
        [
            "NAMESPACE<-metadata.namespace",
            "NODE_NAME<-spec.nodeName",
            "CONFIG_FILE=/vgpu-config/config.yaml",
            "DEFAULT_VGPU_CONFIG=default"
        ]
    );
    assert_eq!(
        mounts(main),
        ["vgpu-config /vgpu-config", "host-sys /sys", "host-root /host H2C", "driver-install-dir /driver-root H2C"]
    );
}

#[test]
fn the_sandbox_validator_is_what_nodes_know() {
    let plan = sandbox("kata", json!({}));
    let daemon = daemon(&plan, "nvidia-sandbox-validator");
    let checks = ["cc-manager-validation", "vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation"];
    assert_eq!(containers(daemon)[..4], checks);
    let (files, root) = ("run-nvidia-validations /run/nvidia/validations Bi", "host-root /host ro H2C");
    let of = |name: &str| mounts(container(daemon, name).unwrap());
    assert_eq!((of(checks[0]), of(checks[3])), (vec![files.to_owned()], vec![files.to_owned()]));
    assert_eq!(of(checks[1]), [files, root]);
    assert_eq!(of(checks[2]), [files, root, "driver-install-dir /run/nvidia/driver H2C"]);
    assert_eq!(
        variables(container(daemon, checks[0]).unwrap()),
        ["WITH_WAIT=true", "COMPONENT=cc-manager", "NODE_NAME<-spec.nodeName"]
    );
    let stop = container(daemon, "nvidia-sandbox-validator").unwrap()["lifecycle"]["preStop"].to_string();
    assert!(stop.contains("/run/nvidia/validations/*\""), "{stop}");
}

#[test]
fn the_vfio_manager_is_what_nodes_know() {
    let plan = sandbox("kubevirt", json!({}));
    let daemon = daemon(&plan, "nvidia-vfio-manager");
    let main = container(daemon, "nvidia-vfio-manager").unwrap();
    assert!(words(main)[2].starts_with("vfio-manage bind --all"));
    assert_eq!(variables(main), ["HOST_ROOT=/host"]);
    assert_eq!(mounts(main), ["host-sys /sys", "host-lib-modules /lib/modules ro", "host-root /host"]);
    assert_eq!(
        main["resources"],
        json!({"limits": {"memory": "200Mi"}, "requests": {"cpu": "100m", "memory": "200Mi"}})
    );
    assert!(main["lifecycle"]["preStop"].to_string().contains("vfio-manage unbind --all"));
    assert!(volumes(daemon).contains(&"host-lib-modules /lib/modules Directory".into()));
}

#[test]
fn device_plugins_of_sandboxes_are_what_nodes_know() {
    let (kubevirt, kata) = (sandbox("kubevirt", json!({})), sandbox("kata", json!({})));
    let (vm, cc) = (
        daemon(&kubevirt, "nvidia-sandbox-device-plugin-daemonset"),
        daemon(&kata, "nvidia-kata-sandbox-device-plugin-daemonset"),
    );
    assert_eq!(containers(vm), ["vfio-pci-validation", "vgpu-devices-validation", "nvidia-sandbox-device-plugin-ctr"]);
    assert_eq!(containers(cc), ["vfio-pci-validation", "nvidia-kata-sandbox-device-plugin-ctr"]);
    for (name, workload, ready) in [
        ("vfio-pci-validation", "vm-passthrough", "vfio-pci-ready"),
        ("vgpu-devices-validation", "vm-vgpu", "vgpu-devices-ready"),
    ] {
        let wait = container(vm, name).unwrap();
        let script = words(wait)[2];
        assert!(
            script.contains("workload-type")
                && script.contains(&format!("= {workload} ] || exit 0"))
                && script.contains(ready),
            "{script}"
        );
        assert_eq!(variables(wait), ["NVIDIA_VISIBLE_DEVICES=void"]);
    }
    let main = container(vm, "nvidia-sandbox-device-plugin-ctr").unwrap();
    assert_eq!(variables(main), ["NODE_NAME<-spec.nodeName", "POD_NAMESPACE<-metadata.namespace"]);
    assert_eq!(
        mounts(main),
        ["device-plugin /var/lib/kubelet/device-plugins", "vfio /dev/vfio", "cdi-root /var/run/cdi"]
    );
    let main = container(cc, "nvidia-kata-sandbox-device-plugin-ctr").unwrap();
    let account = "POD_SERVICE_ACCOUNT<-spec.serviceAccountName";
    assert_eq!(variables(main), ["NODE_NAME<-spec.nodeName", "POD_NAMESPACE<-metadata.namespace", account]);
    assert_eq!(mounts(main), ["device-plugin /var/lib/kubelet/device-plugins", "cdi-root /var/run/cdi"]);
}

#[test]
fn the_manager_of_confidential_computing_is_what_nodes_know() {
    let plan = sandbox("kata", json!({"ccManager": {"defaultMode": "devtools", "env": [{"name": "A", "value": "1"}]}}));
    let daemon = daemon(&plan, "nvidia-cc-manager");
    let main = container(daemon, "nvidia-cc-manager").unwrap();
    assert_eq!(containers(daemon), ["nvidia-cc-manager"]);
    assert_eq!(
        variables(main),
        ["NODE_NAME<-spec.nodeName", "NVIDIA_VISIBLE_DEVICES=void", "DEFAULT_CC_MODE=devtools", "A=1"]
    );
    assert_eq!(mounts(main), ["host-sys /sys", "run-nvidia /run/nvidia"]);
    assert!(volumes(daemon).contains(&"run-nvidia /run/nvidia DoC".into()));
    assert!(main["lifecycle"]["preStop"].to_string().contains(".cc-manager-ctr-ready"));
}
