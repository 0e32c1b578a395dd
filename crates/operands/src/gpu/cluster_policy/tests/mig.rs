//! MIG manager and vGPU device manager: which layouts they know.

use super::*;

#[test]
fn without_a_name_the_layouts_are_ours() {
    for config in [json!({}), json!({"config": {}}), json!({"config": {"name": ""}})] {
        let plan = on_ubuntu(json!({"migManager": config}));
        let daemon = daemon(&plan, "nvidia-mig-manager");
        let env = env(container(daemon, "nvidia-mig-manager").unwrap());
        assert_eq!(env["DEFAULT_CONFIG_FILE"], "/mig-parted-config/config-default.yaml");
        assert!(!env.contains_key("CONFIG_FILE"));
        assert!(
            volumes(daemon).contains(
                &"mig-parted-config ConfigMap=default-mig-parted-config config.yaml:config-default.yaml".into()
            )
        );
        let layouts =
            find(&plan, "ConfigMap", "default-mig-parted-config").unwrap()["data"]["config.yaml"].as_str().unwrap();
        assert!(layouts.starts_with("version: v1\n") && layouts.contains("all-balanced:"));
    }
}

#[test]
fn layouts_of_the_user_take_their_place() {
    let plan = on_ubuntu(json!({"migManager": {"config": {"name": "mine"}, "gpuClientsConfig": {"name": "clients"}}}));
    let daemon = daemon(&plan, "nvidia-mig-manager");
    let env = env(container(daemon, "nvidia-mig-manager").unwrap());
    assert_eq!(env["CONFIG_FILE"], "/mig-parted-config/config.yaml");
    assert!(!env.contains_key("DEFAULT_CONFIG_FILE"));
    let volumes = volumes(daemon);
    assert!(
        volumes.contains(&"mig-parted-config ConfigMap=mine".into())
            && volumes.contains(&"gpu-clients ConfigMap=clients".into())
    );
    for name in ["default-mig-parted-config", "default-gpu-clients"] {
        assert!(find(&plan, "ConfigMap", name).is_none(), "{name}");
    }
}

#[test]
fn choosing_other_layouts_takes_ours_away() {
    let cluster = ubuntu();
    let live = applied(&fresh(&policy(json!({})), &cluster), 1, 1);
    let after = plan(&policy(json!({"migManager": {"config": {"name": "mine"}}})), &live, &cluster);
    let gone: Vec<String> =
        diff("u1", objects(&after), &live.live).delete.into_iter().map(|one| one.reference.name).collect();
    assert_eq!(gone, ["default-mig-parted-config"]);
}

#[test]
fn services_of_the_host_that_hold_gpus_are_listed() {
    let plan = on_ubuntu(json!({}));
    let clients = find(&plan, "ConfigMap", "default-gpu-clients").unwrap()["data"]["clients.yaml"].as_str().unwrap();
    let expected = [
        "nvsm",
        "nvsm-mqtt",
        "nvsm-core",
        "nvsm-api-gateway",
        "nvsm-notifier",
        "nv_peer_mem",
        "nvidia-dcgm",
        "dcgm",
        "dcgm-exporter",
    ];
    let lines: String = expected.iter().map(|name| format!("  - {name}.service\n")).collect();
    assert_eq!(clients, format!("version: v1\nsystemd-services:\n{lines}"));
}

fn vgpu(more: Value) -> Plan<ClusterPolicyStatus> {
    let mut manager = more;
    manager["enabled"] = true.into();
    on_ubuntu(json!({"sandboxWorkloads": {"enabled": true}, "vgpuDeviceManager": manager}))
}

#[test]
fn vgpu_devices_wait_for_a_manager_of_ours_or_of_the_host() {
    let plan = vgpu(json!({}));
    let wait = container(daemon(&plan, "nvidia-vgpu-device-manager"), "vgpu-manager-validation").unwrap();
    let script = words(wait)[2];
    assert!(
        script.contains("[ -f /run/nvidia/validations/vgpu-manager-ready ] || ")
            && script.contains("/host-vgpu-manager-ready ]"),
        "{script}"
    );
}

#[test]
fn sets_of_vgpu_devices_are_ours_or_those_of_the_user() {
    for (config, map, default, ours) in [
        (json!({}), "default-vgpu-devices-config", "default", true),
        (json!({"config": {"name": "", "default": ""}}), "default-vgpu-devices-config", "default", true),
        (json!({"config": {"name": "mine", "default": "A10-24Q"}}), "mine", "A10-24Q", false),
    ] {
        let plan = vgpu(config);
        let daemon = daemon(&plan, "nvidia-vgpu-device-manager");
        assert!(volumes(daemon).contains(&format!("vgpu-config ConfigMap={map}")));
        assert_eq!(env(container(daemon, "nvidia-vgpu-device-manager").unwrap())["DEFAULT_VGPU_CONFIG"], default);
        assert_eq!(find(&plan, "ConfigMap", "default-vgpu-devices-config").is_some(), ours);
    }
}
