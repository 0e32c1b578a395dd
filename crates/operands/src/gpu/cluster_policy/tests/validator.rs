//! The validator, in its own pods and in those of others.

use super::*;

const NAME: &str = "nvidia-operator-validator";

fn settings() -> Value {
    json!({
        "repository": "r.io", "image": "validator", "version": "2", "imagePullPolicy": "Always", "imagePullSecrets": ["a", "b"],
        "resources": {"limits": {"cpu": "1"}}, "args": ["x"], "env": [{"name": "MAIN", "value": "1"}],
        "driver": {"env": [{"name": "DRIVER", "value": "1"}]}, "toolkit": {"env": [{"name": "TOOLKIT", "value": "1"}]},
        "cuda": {"env": [{"name": "CUDA", "value": "1"}]}, "plugin": {"env": [{"name": "PLUGIN", "value": "1"}, {"name": "WITH_WORKLOAD", "value": "true"}]},
        "vfioPCI": {"env": [{"name": "VFIO", "value": "1"}]}, "vgpuManager": {"env": [{"name": "VGPU", "value": "1"}]},
        "vgpuDevices": {"env": [{"name": "DEVICES", "value": "1"}]},
    })
}

#[test]
fn every_check_runs_the_validator_as_the_policy_has_it() {
    let plan = on_ubuntu(json!({"validator": settings()}));
    let daemon = daemon(&plan, NAME);
    assert_eq!(
        containers(daemon),
        ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation", NAME]
    );
    for name in containers(daemon) {
        let one = container(daemon, name).unwrap();
        assert_eq!((&one["image"], &one["imagePullPolicy"]), (&json!("r.io/validator:2"), &json!("Always")));
        assert_eq!(
            (&one["resources"]["limits"]["cpu"], &one["securityContext"]["runAsUser"]),
            (&json!("1"), &json!(0)),
            "{name}"
        );
    }
    for (name, variable) in [("driver", "DRIVER"), ("toolkit", "TOOLKIT"), ("cuda", "CUDA"), ("plugin", "PLUGIN")] {
        let all = ["DRIVER", "TOOLKIT", "CUDA", "PLUGIN", "MAIN"];
        let env = env(container(daemon, &format!("{name}-validation")).unwrap());
        assert_eq!(all.into_iter().filter(|one| env.contains_key(one)).collect::<Vec<_>>(), [variable]);
    }
    let main = container(daemon, NAME).unwrap();
    assert_eq!((variables(main), words(main)), (vec!["MAIN=1".to_owned()], vec!["sh", "-c", "x"]));
    assert_eq!(pod(daemon)["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
}

#[test]
fn checks_that_start_pods_know_how() {
    let plan =
        on_ubuntu(json!({"validator": settings(), "mig": {"strategy": "single"}, "operator": {"runtimeClass": "gpu"}}));
    let daemon = daemon(&plan, NAME);
    for name in ["cuda-validation", "plugin-validation"] {
        let env = env(container(daemon, name).unwrap());
        assert_eq!((env["VALIDATOR_IMAGE"], env["VALIDATOR_IMAGE_PULL_POLICY"]), ("r.io/validator:2", "Always"));
        assert_eq!((env["VALIDATOR_IMAGE_PULL_SECRETS"], env["VALIDATOR_RUNTIME_CLASS"]), ("a,b", "gpu"));
    }
    let plugin = env(container(daemon, "plugin-validation").unwrap());
    assert_eq!((plugin["MIG_STRATEGY"], plugin["WITH_WORKLOAD"]), ("single", "true"));
    let plan = on_ubuntu(json!({"cdi": {"nriPluginEnabled": true}}));
    let bare = env(container(super::daemon(&plan, NAME), "cuda-validation").unwrap());
    assert!(!bare.contains_key("VALIDATOR_RUNTIME_CLASS") && !bare.contains_key("VALIDATOR_IMAGE_PULL_SECRETS"));
}

#[test]
fn init_containers_of_others_run_it_too() {
    let plan = on_ubuntu(json!({"validator": settings()}));
    let table = [
        ("nvidia-container-toolkit-daemonset", "driver-validation", "DRIVER"),
        ("nvidia-device-plugin-daemonset", "toolkit-validation", "TOOLKIT"),
        ("nvidia-device-plugin-mps-control-daemon", "toolkit-validation", "TOOLKIT"),
        ("nvidia-dcgm", "toolkit-validation", "TOOLKIT"),
        ("nvidia-dcgm-exporter", "toolkit-validation", "TOOLKIT"),
        ("gpu-feature-discovery", "toolkit-validation", "TOOLKIT"),
        ("nvidia-mig-manager", "toolkit-validation", "TOOLKIT"),
    ];
    for (name, check, variable) in table {
        let one = container(daemon(&plan, name), check).unwrap();
        assert_eq!(
            (&one["image"], &one["securityContext"]["runAsUser"]),
            (&json!("r.io/validator:2"), &json!(0)),
            "{name}"
        );
        assert_eq!(env(one)[variable], "1", "{name}");
    }
}

#[test]
fn a_pull_policy_of_init_containers_is_set_only_by_the_user() {
    let plan = on_ubuntu(json!({}));
    assert!(container(daemon(&plan, "nvidia-dcgm"), "toolkit-validation").unwrap()["imagePullPolicy"].is_null());
    assert_eq!(container(daemon(&plan, "nvidia-dcgm"), "nvidia-dcgm-ctr").unwrap()["imagePullPolicy"], "IfNotPresent");
}

#[test]
fn nobody_waits_for_a_device_plugin_that_is_off() {
    let plan = on_ubuntu(json!({"devicePlugin": {"enabled": false}}));
    assert_eq!(containers(daemon(&plan, NAME)), ["driver-validation", "toolkit-validation", "cuda-validation", NAME]);
}

fn sandbox(mode: &str, cc: bool) -> Plan<ClusterPolicyStatus> {
    on_ubuntu(json!({
        "validator": settings(), "sandboxWorkloads": {"enabled": true, "mode": mode, "defaultWorkload": "vm-vgpu"},
        "ccManager": {"enabled": cc},
    }))
}

#[test]
fn checks_of_sandboxes_have_variables_of_their_own() {
    let plan = sandbox("kubevirt", false);
    let daemon = daemon(&plan, "nvidia-sandbox-validator");
    for (name, variable) in [("vfio-pci", "VFIO"), ("vgpu-manager", "VGPU"), ("vgpu-devices", "DEVICES")] {
        let one = container(daemon, &format!("{name}-validation")).unwrap();
        let env = env(one);
        assert_eq!(
            (env["WITH_WAIT"], env["COMPONENT"], env["DEFAULT_GPU_WORKLOAD_CONFIG"], env[variable]),
            ("true", name, "vm-vgpu", "1")
        );
        assert_eq!(one["resources"]["limits"]["cpu"], "1");
    }
}

#[test]
fn nobody_waits_for_a_manager_of_confidential_computing_that_is_not_there() {
    for (mode, cc, expected) in
        [("kubevirt", false, false), ("kubevirt", true, false), ("kata", false, false), ("kata", true, true)]
    {
        let plan = sandbox(mode, cc);
        let waits = container(daemon(&plan, "nvidia-sandbox-validator"), "cc-manager-validation").is_some();
        let there = find(&plan, "DaemonSet", "nvidia-cc-manager").is_some();
        assert_eq!((waits, there), (expected, expected), "{mode} {cc}");
    }
}
