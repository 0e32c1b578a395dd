//! What all DaemonSets have in common: directories of the host, update strategy, scheduling, labels, network.

use super::*;

/// Everything that can run at once.
fn everything() -> Value {
    json!({
        "nodeStatusExporter": {"enabled": true}, "sandboxWorkloads": {"enabled": true},
        "vgpuManager": {"enabled": true}, "vgpuDeviceManager": {"enabled": true}, "vfioManager": {"enabled": true},
        "sandboxDevicePlugin": {"enabled": true},
    })
}

fn daemons(more: Value) -> Vec<Value> {
    let mut spec = everything();
    for (section, value) in more.as_object().unwrap() {
        spec[section] = value.clone();
    }
    let plan = on_ubuntu(spec);
    assert_eq!(condition(&plan, "Error").unwrap().1, "OperandNotReady", "{:?}", condition(&plan, "Error"));
    objects(&plan).iter().filter(|one| one.reference.gvk.kind == "DaemonSet").map(|one| one.body.clone()).collect()
}

#[test]
fn the_usual_host_root_changes_nothing() {
    let usual = daemons(json!({}));
    assert_eq!(usual.len(), 15);
    for root in ["", "/"] {
        assert_eq!(daemons(json!({"hostPaths": {"rootFS": root}})), usual);
    }
}

#[test]
fn another_host_root_moves_volumes_and_tells_every_container_of_such_a_pod() {
    for daemon in daemons(json!({"hostPaths": {"rootFS": "/mnt/host"}})) {
        let name = &daemon["metadata"]["name"];
        let root = volume(&daemon, "host-root");
        assert!(root.is_none_or(|root| root["hostPath"]["path"] == "/mnt/host"), "{name}");
        let devices = volume(&daemon, "host-dev-char");
        assert!(devices.is_none_or(|one| one["hostPath"]["path"] == "/mnt/host/dev/char"), "{name}");
        for container_name in containers(&daemon) {
            let env = env(container(&daemon, container_name).unwrap());
            // Its variable is a path inside the container.
            let expected = if container_name == "nvidia-vfio-manager" { "/host" } else { "/mnt/host" };
            assert_eq!(env.get("HOST_ROOT").copied(), root.map(|_| expected), "{name} {container_name}");
        }
    }
}

#[test]
fn another_driver_directory_moves_volumes_and_the_check_of_the_driver() {
    for dir in ["", "/run/nvidia/driver"] {
        assert_eq!(daemons(json!({"hostPaths": {"driverInstallDir": dir}})), daemons(json!({})));
    }
    let mut moved = 0;
    for daemon in daemons(json!({"hostPaths": {"driverInstallDir": "/opt/driver"}})) {
        let Some(volume) = volume(&daemon, "driver-install-dir") else { continue };
        assert_eq!(volume["hostPath"]["path"], "/opt/driver", "{}", daemon["metadata"]["name"]);
        moved += 1;
        if let Some(check) = container(&daemon, "driver-validation") {
            let env = env(check);
            assert_eq!((env["DRIVER_INSTALL_DIR"], env["DRIVER_INSTALL_DIR_CTR_PATH"]), ("/opt/driver", "/opt/driver"));
            assert!(mounts(check).contains(&"driver-install-dir /opt/driver H2C".into()));
        }
    }
    assert_eq!(moved, 6);
}

#[test]
fn another_kubelet_directory_moves_sockets_of_plugins_and_exporter() {
    for daemon in daemons(json!({"hostPaths": {"kubeletRootDir": "/var/lib/k0s/kubelet"}})) {
        for (name, path) in [("device-plugin", "device-plugins"), ("pod-gpu-resources", "pod-resources")] {
            let volume = volume(&daemon, name);
            let path = format!("/var/lib/k0s/kubelet/{path}");
            assert!(
                volume.is_none_or(|one| one["hostPath"]["path"] == path.as_str()),
                "{}",
                daemon["metadata"]["name"]
            );
        }
    }
}

#[test]
fn strategies_are_for_all_but_drivers() {
    let strategy = |settings: Value| {
        let list = daemons(json!({"daemonsets": settings}));
        let of = |name: &str| {
            list.iter().find(|one| one["metadata"]["name"] == name).unwrap()["spec"]["updateStrategy"].clone()
        };
        (of("nvidia-driver-daemonset"), of("nvidia-dcgm"))
    };
    let on_delete = json!({"type": "OnDelete"});
    let rolling = |share: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": share}});
    assert_eq!(strategy(json!({})), (on_delete.clone(), Value::Null));
    assert_eq!(strategy(json!({"updateStrategy": "RollingUpdate"})), (on_delete.clone(), Value::Null));
    assert_eq!(strategy(json!({"rollingUpdate": {"maxUnavailable": "3"}})), (on_delete.clone(), rolling(json!(3))));
    let share = json!({"updateStrategy": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}});
    assert_eq!(strategy(share), (on_delete.clone(), rolling(json!("10%"))));
    let both = json!({"updateStrategy": "OnDelete", "rollingUpdate": {"maxUnavailable": "3"}});
    assert_eq!(strategy(both), (on_delete.clone(), on_delete));
}

#[test]
fn a_share_that_is_none_is_told() {
    for text in ["10%abc", "x", "%", "1.5"] {
        let plan = on_ubuntu(json!({"daemonsets": {"rollingUpdate": {"maxUnavailable": text}}}));
        let (_, reason, message) = condition(&plan, "Error").unwrap();
        assert_eq!(reason, "ReconcileFailed");
        assert!(message.contains(&format!("maxUnavailable is {text:?}")), "{message}");
    }
}

#[test]
fn scheduling_and_security_are_the_same_everywhere() {
    let usual = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    for daemon in daemons(json!({"daemonsets": {"tolerations": []}})) {
        assert_eq!(pod(&daemon)["tolerations"], usual);
        assert_eq!(pod(&daemon)["priorityClassName"], "system-node-critical");
    }
    let settings = json!({"tolerations": [{"operator": "Exists"}], "priorityClassName": "high", "podSecurityContext": {"fsGroup": 7}});
    for daemon in daemons(json!({"daemonsets": settings})) {
        assert_eq!(pod(&daemon)["tolerations"], json!([{"operator": "Exists"}]));
        assert_eq!(pod(&daemon)["priorityClassName"], "high");
        assert_eq!(pod(&daemon)["securityContext"], json!({"fsGroup": 7}));
    }
}

#[test]
fn labels_by_which_pods_are_selected_stay() {
    let labels = json!({"app": "x", "app.kubernetes.io/part-of": "x", "name": "x", "team": "a"});
    for daemon in daemons(json!({"daemonsets": {"labels": labels, "annotations": {"note": "b"}}})) {
        let name = &daemon["metadata"]["name"];
        for metadata in [&daemon["metadata"], &daemon["spec"]["template"]["metadata"]] {
            assert_eq!(
                (&metadata["labels"]["team"], &metadata["annotations"]["note"]),
                (&json!("a"), &json!("b")),
                "{name}"
            );
            assert_ne!(metadata["labels"]["app"], "x", "{name}");
        }
        for (key, value) in daemon["spec"]["selector"]["matchLabels"].as_object().unwrap() {
            assert_eq!(&daemon["spec"]["template"]["metadata"]["labels"][key], value, "{name}");
        }
    }
}

#[test]
fn the_network_of_the_node_is_shared_when_asked_for() {
    let sections = [
        ("driver", "nvidia-driver-daemonset"),
        ("toolkit", "nvidia-container-toolkit-daemonset"),
        ("validator", "nvidia-operator-validator"),
        ("validator", "nvidia-sandbox-validator"),
        ("devicePlugin", "nvidia-device-plugin-daemonset"),
        ("devicePlugin", "nvidia-device-plugin-mps-control-daemon"),
        ("dcgm", "nvidia-dcgm"),
        ("dcgmExporter", "nvidia-dcgm-exporter"),
        ("gfd", "gpu-feature-discovery"),
        ("migManager", "nvidia-mig-manager"),
        ("nodeStatusExporter", "nvidia-node-status-exporter"),
        ("vgpuManager", "nvidia-vgpu-manager-daemonset"),
        ("vgpuDeviceManager", "nvidia-vgpu-device-manager"),
        ("vfioManager", "nvidia-vfio-manager"),
        ("sandboxDevicePlugin", "nvidia-sandbox-device-plugin-daemonset"),
    ];
    for (section, name) in sections {
        let of = |wanted: Value| {
            let mut settings = json!({"hostNetwork": wanted});
            if section != "validator" {
                settings["enabled"] = true.into();
            }
            let list = daemons(json!({section: settings}));
            let daemon = list.into_iter().find(|one| one["metadata"]["name"] == name).unwrap();
            (pod(&daemon)["hostNetwork"].clone(), pod(&daemon)["dnsPolicy"].clone())
        };
        assert_eq!(of(json!(true)), (json!(true), json!("ClusterFirstWithHostNet")), "{name}");
        assert_eq!(of(json!(false)), (Value::Null, Value::Null), "{name}");
    }
}

#[test]
fn registry_credentials_are_listed_once() {
    let plan =
        on_ubuntu(json!({"dcgm": {"imagePullSecrets": ["a", "b"]}, "validator": {"imagePullSecrets": ["b", "c"]}}));
    let names = json!([{"name": "b"}, {"name": "c"}, {"name": "a"}]);
    assert_eq!(pod(daemon(&plan, "nvidia-dcgm"))["imagePullSecrets"], names);
}
