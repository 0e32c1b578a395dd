//! DaemonSets of the container stack, line by line.

use super::*;

const VALIDATIONS: &str = "run-nvidia-validations /run/nvidia/validations";

#[test]
fn the_toolkit_waits_for_the_driver() {
    let plan = on_ubuntu(json!({}));
    for name in ["nvidia-container-toolkit-daemonset", "nvidia-operator-validator"] {
        let check = container(daemon(&plan, name), "driver-validation").unwrap();
        assert_eq!(words(check), ["sh", "-c", "nvidia-validator"]);
        assert_eq!(variables(check), ["WITH_WAIT=true", "COMPONENT=driver", "OPERATOR_NAMESPACE<-metadata.namespace"]);
        assert_eq!(
            mounts(check),
            [
                "driver-install-dir /run/nvidia/driver H2C",
                "run-nvidia-validations /run/nvidia/validations Bi",
                "host-root /host ro H2C",
                "host-dev-char /host-dev-char"
            ]
        );
        assert_eq!(
            check["securityContext"],
            json!({"privileged": true, "runAsUser": 0, "seLinuxOptions": {"level": "s0"}})
        );
    }
}

#[test]
fn the_toolkit_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-container-toolkit-daemonset");
    let main = container(daemon, "nvidia-container-toolkit-ctr").unwrap();
    assert_eq!(words(main), ["/bin/sh", "-c", "/bin/entrypoint.sh"]);
    assert_eq!(
        variables(main)[..5],
        [
            "ROOT=/usr/local/nvidia",
            "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND=management.nvidia.com/gpu",
            "NVIDIA_VISIBLE_DEVICES=void",
            "TOOLKIT_PID_FILE=/run/nvidia/toolkit/toolkit.pid",
            "NRI_NAMESPACE<-metadata.namespace",
        ]
    );
    assert_eq!(
        mounts(main)[..8],
        [
            "nvidia-container-toolkit-entrypoint /bin/entrypoint.sh ro sub=entrypoint.sh",
            "toolkit-root /run/nvidia/toolkit",
            VALIDATIONS,
            "toolkit-install-dir /usr/local/nvidia",
            "crio-hooks /usr/share/containers/oci/hooks.d",
            "driver-install-dir /driver-root H2C",
            "host-root /host ro H2C",
            "cdi-root /var/run/cdi",
        ]
    );
    let all = volumes(daemon);
    for expected in [
        "toolkit-root /run/nvidia/toolkit DoC",
        "run-nvidia-validations /run/nvidia/validations DoC",
        "driver-install-dir /run/nvidia/driver DoC",
        "host-root /",
        "toolkit-install-dir /usr/local/nvidia",
        "crio-hooks /run/containers/oci/hooks.d",
        "host-dev-char /dev/char",
        "cdi-root /var/run/cdi DoC",
        "nvidia-container-toolkit-entrypoint ConfigMap=nvidia-container-toolkit-entrypoint 700",
    ] {
        assert!(all.contains(&expected.to_owned()), "{expected} in {all:?}");
    }
    let script = find(&plan, "ConfigMap", "nvidia-container-toolkit-entrypoint").unwrap();
    assert_eq!(script["metadata"]["labels"]["app"], "nvidia-container-toolkit-daemonset");
    assert!(script["data"]["entrypoint.sh"].as_str().unwrap().ends_with("sleep 5\nexec nvidia-toolkit\n"));
}

#[test]
fn the_validator_checks_one_after_the_other() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-operator-validator");
    let of = |name: &str| variables(container(daemon, name).unwrap());
    assert_eq!(of("toolkit-validation"), ["NVIDIA_VISIBLE_DEVICES=all", "WITH_WAIT=false", "COMPONENT=toolkit"]);
    let node = ["NODE_NAME<-spec.nodeName", "OPERATOR_NAMESPACE<-metadata.namespace"];
    assert_eq!(of("cuda-validation")[..4], ["WITH_WAIT=false", "COMPONENT=cuda", node[0], node[1]]);
    assert_eq!(
        of("plugin-validation")[..6],
        ["COMPONENT=plugin", "WITH_WAIT=false", "WITH_WORKLOAD=false", "MIG_STRATEGY=", node[0], node[1]]
    );
    for name in ["toolkit-validation", "cuda-validation", "plugin-validation", "nvidia-operator-validator"] {
        assert_eq!(mounts(container(daemon, name).unwrap()), [format!("{VALIDATIONS} Bi")]);
        assert_eq!(container(daemon, name).unwrap()["securityContext"]["privileged"], true);
    }
    let stop = container(daemon, "nvidia-operator-validator").unwrap()["lifecycle"]["preStop"].to_string();
    assert!(stop.contains("/run/nvidia/validations/*-ready"), "{stop}");
    assert_eq!(
        volumes(daemon),
        [
            "driver-install-dir /run/nvidia/driver",
            "host-dev-char /dev/char",
            "host-root /",
            "run-nvidia-validations /run/nvidia/validations DoC"
        ]
    );
}

/// An init container that waits for the toolkit, with this mount.
fn waits(daemon: &Value, mount: &str) {
    let wait = container(daemon, "toolkit-validation").unwrap();
    assert!(words(wait)[2].contains("[ -f /run/nvidia/validations/toolkit-ready ]"));
    assert_eq!(mounts(wait), [mount]);
}

#[test]
fn the_device_plugin_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-device-plugin-daemonset");
    waits(daemon, &format!("{VALIDATIONS} H2C"));
    let main = container(daemon, "nvidia-device-plugin").unwrap();
    assert_eq!(words(main), ["/bin/sh", "-c", "/bin/entrypoint.sh"]);
    assert_eq!(
        mounts(main),
        [
            "nvidia-device-plugin-entrypoint /bin/entrypoint.sh ro sub=entrypoint.sh",
            "device-plugin /var/lib/kubelet/device-plugins",
            VALIDATIONS,
            "driver-install-dir /driver-root H2C",
            "host-root /host ro H2C",
            "cdi-root /var/run/cdi",
            "mps-shm /dev/shm",
            "mps-root /mps",
        ]
    );
    assert_eq!(
        volumes(daemon),
        [
            "cdi-root /var/run/cdi DoC",
            "device-plugin /var/lib/kubelet/device-plugins",
            "driver-install-dir /run/nvidia/driver DoC",
            "host-root /",
            "mps-root /run/nvidia/mps DoC",
            "mps-shm /run/nvidia/mps/shm",
            "nvidia-device-plugin-entrypoint ConfigMap=nvidia-device-plugin-entrypoint 700",
            "run-nvidia-validations /run/nvidia/validations DoC",
        ]
    );
    let script =
        find(&plan, "ConfigMap", "nvidia-device-plugin-entrypoint").unwrap()["data"]["entrypoint.sh"].as_str().unwrap();
    for part in ["driver-ready", "gdrdrv", "GDRCOPY_ENABLED", "nvidia_fs", "GDS_ENABLED", "MOFED_ENABLED"] {
        assert!(script.contains(part), "{part}");
    }
}

#[test]
fn the_mps_daemon_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-device-plugin-mps-control-daemon");
    assert_eq!(containers(daemon), ["toolkit-validation", "mps-control-daemon-mounts", "mps-control-daemon-ctr"]);
    waits(daemon, "run-nvidia /run/nvidia H2C");
    let first = container(daemon, "mps-control-daemon-mounts").unwrap();
    assert_eq!(
        (words(first), mounts(first)),
        (vec!["mps-control-daemon", "mount-shm"], vec!["mps-root /mps Bi".to_owned()])
    );
    let main = container(daemon, "mps-control-daemon-ctr").unwrap();
    assert_eq!(
        variables(main)[..3],
        ["NODE_NAME<-spec.nodeName", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    );
    assert_eq!(mounts(main), ["mps-shm /dev/shm", "mps-root /mps"]);
    assert_eq!(
        volumes(daemon),
        ["mps-root /run/nvidia/mps DoC", "mps-shm /run/nvidia/mps/shm", "run-nvidia /run/nvidia Directory"]
    );
}

#[test]
fn the_engine_and_its_exporter_are_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let engine = daemon(&plan, "nvidia-dcgm");
    waits(engine, "run-nvidia /run/nvidia H2C");
    assert_eq!(volumes(engine), ["run-nvidia /run/nvidia Directory"]);
    let main = container(engine, "nvidia-dcgm-ctr").unwrap();
    assert_eq!(main["ports"], json!([{"name": "dcgm", "containerPort": 5555}]));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(main[probe], json!({"tcpSocket": {"port": 5555}, "initialDelaySeconds": 15}));
    }
    let exporter = daemon(&plan, "nvidia-dcgm-exporter");
    waits(exporter, "run-nvidia /run/nvidia H2C");
    assert_eq!(volumes(exporter), ["pod-gpu-resources /var/lib/kubelet/pod-resources", "run-nvidia /run/nvidia"]);
    let main = container(exporter, "nvidia-dcgm-exporter").unwrap();
    assert_eq!(
        variables(main)[..4],
        [
            "DCGM_EXPORTER_LISTEN=:9400",
            "DCGM_EXPORTER_KUBERNETES=true",
            "DCGM_EXPORTER_COLLECTORS=/etc/dcgm-exporter/dcp-metrics-included.csv",
            "NODE_NAME<-spec.nodeName"
        ]
    );
    assert_eq!(mounts(main), ["pod-gpu-resources /var/lib/kubelet/pod-resources ro"]);
    assert_eq!(main["ports"], json!([{"name": "metrics", "containerPort": 9400}]));
    let asks = json!({"path": "/health", "port": 9400});
    assert_eq!(main["livenessProbe"], json!({"httpGet": asks, "initialDelaySeconds": 45, "periodSeconds": 5}));
    assert_eq!(main["readinessProbe"], json!({"httpGet": asks, "initialDelaySeconds": 45}));
}

#[test]
fn feature_discovery_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "gpu-feature-discovery");
    waits(daemon, "run-nvidia /run/nvidia H2C");
    let main = container(daemon, "gpu-feature-discovery").unwrap();
    assert_eq!(
        variables(main)[..5],
        [
            "GFD_SLEEP_INTERVAL=60s",
            "GFD_FAIL_ON_INIT_ERROR=true",
            "NAMESPACE<-metadata.namespace",
            "NODE_NAME<-spec.nodeName",
            "POD_NAME<-metadata.name"
        ]
    );
    let dir = "/etc/kubernetes/node-feature-discovery/features.d";
    assert_eq!(mounts(main), [format!("output-dir {dir}"), "host-sys /sys ro".into()]);
    assert_eq!(
        volumes(daemon),
        ["host-sys /sys".to_owned(), format!("output-dir {dir}"), "run-nvidia /run/nvidia Directory".into()]
    );
}

#[test]
fn the_mig_manager_is_what_nodes_know() {
    let plan = on_ubuntu(json!({}));
    let daemon = daemon(&plan, "nvidia-mig-manager");
    let main = container(daemon, "nvidia-mig-manager").unwrap();
    assert_eq!(
        variables(main),
        [
            "NODE_NAME<-spec.nodeName",
            "POD_NAME<-metadata.name",
            "POD_NAMESPACE<-metadata.namespace",
            "GPU_CLIENTS_FILE=/gpu-clients/clients.yaml",
            "DEFAULT_GPU_CLIENTS_NAMESPACE<-metadata.namespace",
            "DEFAULT_CONFIG_FILE=/mig-parted-config/config-default.yaml",
            "CDI_ENABLED=true",
            "NVIDIA_CDI_HOOK_PATH=/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        ]
    );
    assert_eq!(
        mounts(main),
        [
            "nvidia-mig-manager-entrypoint /bin/entrypoint.sh ro sub=entrypoint.sh",
            VALIDATIONS,
            "host-sys /sys",
            "host-root /host H2C",
            "gpu-clients /gpu-clients",
            "mig-parted-config /mig-parted-config",
            "driver-install-dir /driver-root H2C",
            "cdi-root /var/run/cdi",
        ]
    );
    assert!(volumes(daemon).contains(&"host-sys /sys Directory".into()));
    let script =
        find(&plan, "ConfigMap", "nvidia-mig-manager-entrypoint").unwrap()["data"]["entrypoint.sh"].as_str().unwrap();
    assert!(script.contains("WITH_SHUTDOWN_HOST_GPU_CLIENTS=\"$IS_HOST_DRIVER\""), "{script}");
}

#[test]
fn the_status_exporter_is_what_nodes_know() {
    let plan = on_ubuntu(json!({"nodeStatusExporter": {"enabled": true}}));
    let daemon = daemon(&plan, "nvidia-node-status-exporter");
    let main = container(daemon, "nvidia-node-status-exporter").unwrap();
    assert_eq!(words(main), ["nvidia-validator"]);
    assert_eq!(
        variables(main),
        [
            "NVIDIA_VISIBLE_DEVICES=void",
            "COMPONENT=metrics",
            "METRICS_PORT=8000",
            "NODE_NAME<-spec.nodeName",
            "OPERATOR_NAMESPACE<-metadata.namespace"
        ]
    );
    assert_eq!(mounts(main), ["run-nvidia /run/nvidia H2C", "host-root /host ro H2C"]);
    assert_eq!(volumes(daemon), ["host-root /", "run-nvidia /run/nvidia Directory"]);
    assert_eq!((&main["ports"][0]["containerPort"], &main["securityContext"]["runAsUser"]), (&json!(8000), &json!(0)));
    let service = find(&plan, "Service", "nvidia-node-status-exporter").unwrap();
    assert_eq!(
        (&service["spec"]["ports"][0]["name"], &service["spec"]["ports"][0]["port"]),
        (&json!("node-status"), &json!(8000))
    );
}
