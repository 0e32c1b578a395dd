//! Device plugin, MPS daemon and feature discovery, as a policy changes them.

use super::*;

const NAME: &str = "nvidia-device-plugin-daemonset";
const MAIN: &str = "nvidia-device-plugin";

fn plugin(more: Value) -> Value {
    daemon(&on_ubuntu(more), NAME).clone()
}

#[test]
fn variables_come_in_the_order_that_pods_have() {
    let daemon = plugin(
        json!({"devicePlugin": {"env": [{"name": "PASS_DEVICE_SPECS", "value": "false"}, {"name": "MINE", "value": "1"}]}}),
    );
    assert_eq!(
        variables(container(&daemon, MAIN).unwrap()),
        [
            "PASS_DEVICE_SPECS=false",
            "FAIL_ON_INIT_ERROR=true",
            "DEVICE_LIST_STRATEGY=cdi-annotations,cdi-cri",
            "DEVICE_ID_STRATEGY=uuid",
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=all",
            "MPS_ROOT=/run/nvidia/mps",
            "NVIDIA_MIG_MONITOR_DEVICES=all",
            "CDI_ENABLED=true",
            "CDI_ANNOTATION_PREFIX=cdi.k8s.io/",
            "NVIDIA_CDI_HOOK_PATH=/usr/local/nvidia/toolkit/nvidia-cdi-hook",
            "MINE=1",
        ]
    );
}

#[test]
fn the_hook_is_there_with_cdi_and_the_toolkit_only() {
    let env_of = |more: Value| {
        let daemon = plugin(more);
        let env = env(container(&daemon, MAIN).unwrap());
        (
            env["DEVICE_LIST_STRATEGY"].to_owned(),
            env.contains_key("CDI_ENABLED"),
            env.contains_key("NVIDIA_CDI_HOOK_PATH"),
        )
    };
    assert_eq!(env_of(json!({"toolkit": {"enabled": false}})), ("cdi-annotations,cdi-cri".into(), true, false));
    assert_eq!(env_of(json!({"cdi": {"enabled": false}})), ("envvar".into(), false, false));
}

#[test]
fn modules_beside_the_driver_are_said() {
    let daemon = plugin(json!({"gds": {"enabled": true}, "gdrcopy": {"enabled": true}}));
    let env = env(container(&daemon, MAIN).unwrap());
    assert_eq!((env["GDS_ENABLED"], env["MOFED_ENABLED"], env["GDRCOPY_ENABLED"]), ("true", "true", "true"));
}

#[test]
fn arguments_are_for_the_program_behind_the_script() {
    for (section, name, main) in
        [("devicePlugin", NAME, MAIN), ("migManager", "nvidia-mig-manager", "nvidia-mig-manager")]
    {
        let plan = on_ubuntu(json!({section: {"args": ["--a", "b c"]}}));
        assert_eq!(
            words(container(daemon(&plan, name), main).unwrap()),
            ["/bin/sh", "-c", "/bin/entrypoint.sh \"$@\"", "/bin/entrypoint.sh", "--a", "b c"]
        );
        let script =
            find(&plan, "ConfigMap", &format!("{main}-entrypoint")).unwrap()["data"]["entrypoint.sh"].as_str().unwrap();
        assert!(script.trim_end().ends_with(&format!("exec {main} \"$@\"")), "{script}");
    }
}

#[test]
fn without_configurations_nobody_looks_for_them() {
    let plan = on_ubuntu(json!({"devicePlugin": {"config": {"name": "", "default": "x"}}}));
    for name in [NAME, "nvidia-device-plugin-mps-control-daemon", "gpu-feature-discovery"] {
        let daemon = daemon(&plan, name);
        assert!(containers(daemon).iter().all(|one| !one.starts_with("config-manager")), "{name}");
        assert!(pod(daemon)["shareProcessNamespace"].is_null());
    }
}

#[test]
fn configurations_are_chosen_by_a_manager_beside_the_plugin() {
    let more = json!({
        "devicePlugin": {"config": {"name": "sets", "default": "any"}, "imagePullPolicy": "Always",
            "resources": {"limits": {"cpu": "1"}}},
        "gfd": {"resources": {"limits": {"cpu": "2"}}},
    });
    let plan = on_ubuntu(more);
    let table = [
        (NAME, MAIN, "nvidia-device-plugin", "1"),
        ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-ctr", "/usr/bin/mps-control-daemon", "1"),
        ("gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery", "2"),
    ];
    for (name, main, process, cpu) in table {
        let daemon = daemon(&plan, name);
        let main = container(daemon, main).unwrap();
        assert_eq!(env(main)["CONFIG_FILE"], "/config/config.yaml");
        let both = ["config /config".to_owned(), "sets /available-configs".to_owned()];
        assert!(both.iter().all(|mount| mounts(main).contains(mount)), "{name}");
        for (manager, once) in [("config-manager-init", true), ("config-manager", false)] {
            let one = container(daemon, manager).unwrap();
            let said = |flag: bool| if flag { "true" } else { "false" };
            assert_eq!(
                variables(one),
                [
                    format!("ONESHOT={}", said(once)),
                    "KUBECONFIG=".into(),
                    "NODE_NAME<-spec.nodeName".into(),
                    "NODE_LABEL=nvidia.com/device-plugin.config".into(),
                    "CONFIG_FILE_SRCDIR=/available-configs".into(),
                    "CONFIG_FILE_DST=/config/config.yaml".into(),
                    "DEFAULT_CONFIG=any".into(),
                    format!("SEND_SIGNAL={}", said(!once)),
                    format!("SIGNAL={}", if once { "" } else { "1" }),
                    format!("PROCESS_TO_SIGNAL={}", if once { "" } else { process }),
                    "FALLBACK_STRATEGIES=empty".into(),
                ]
            );
            assert_eq!(words(one), ["config-manager"]);
            assert_eq!(mounts(one), both);
            assert_eq!(
                (&one["image"], &one["imagePullPolicy"]),
                (&json!("r.io/device_plugin_image:v1"), &json!("Always"))
            );
            assert_eq!(one["resources"]["limits"]["cpu"], cpu, "{name} {manager}");
        }
        assert_eq!(container(daemon, "config-manager").unwrap()["securityContext"]["privileged"], true);
        assert!(
            volumes(daemon).contains(&"sets ConfigMap=sets".into())
                && volumes(daemon).contains(&"config emptyDir".into())
        );
        let shared = &pod(daemon)["shareProcessNamespace"];
        assert_eq!(shared.as_bool(), pod(daemon)["hostPID"].is_null().then_some(true), "{name}");
    }
}

#[test]
fn changed_configurations_make_other_pods() {
    let policy = policy(json!({"devicePlugin": {"config": {"name": "sets"}}}));
    let with = |text: &str| {
        let plan = plan(&policy, &with_files(&[("ConfigMap", "sets", json!({"any": text}))]), &ubuntu());
        [NAME, "nvidia-device-plugin-mps-control-daemon", "gpu-feature-discovery"]
            .map(|name| daemon(&plan, name)["spec"]["template"].clone())
    };
    let (one, other) = (with("a"), with("b"));
    assert_eq!(one, with("a"));
    assert!(one.iter().zip(&other).all(|(one, other)| one != other));
}

#[test]
fn strategies_of_mig_reach_all_three() {
    for (strategy, expected) in [
        (json!({}), vec!["NVIDIA_MIG_MONITOR_DEVICES=all"]),
        (json!({"strategy": "none"}), vec!["MIG_STRATEGY=none"]),
        (json!({"strategy": "single"}), vec!["MIG_STRATEGY=single", "NVIDIA_MIG_MONITOR_DEVICES=all"]),
        (json!({"strategy": "mixed"}), vec!["MIG_STRATEGY=mixed", "NVIDIA_MIG_MONITOR_DEVICES=all"]),
    ] {
        let plan = on_ubuntu(json!({"mig": strategy}));
        for (name, main) in [
            (NAME, MAIN),
            ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-ctr"),
            ("gpu-feature-discovery", "gpu-feature-discovery"),
        ] {
            let all = variables(container(daemon(&plan, name), main).unwrap());
            let mig: Vec<_> = all.into_iter().filter(|one| one.contains("MIG_")).collect();
            assert_eq!(mig, expected, "{name}");
        }
    }
}

#[test]
fn mps_may_live_elsewhere_and_has_no_arguments_or_variables_of_the_plugin() {
    let plan = on_ubuntu(
        json!({"devicePlugin": {"mps": {"root": "/mps"}, "args": ["--x"], "env": [{"name": "MINE", "value": "1"}],
        "resources": {"limits": {"cpu": "1"}}}}),
    );
    for name in [NAME, "nvidia-device-plugin-mps-control-daemon"] {
        let daemon = daemon(&plan, name);
        assert!(
            volumes(daemon).contains(&"mps-root /mps DoC".into())
                && volumes(daemon).contains(&"mps-shm /mps/shm".into())
        );
    }
    assert_eq!(env(container(daemon(&plan, NAME), MAIN).unwrap())["MPS_ROOT"], "/mps");
    let mps = daemon(&plan, "nvidia-device-plugin-mps-control-daemon");
    let main = container(mps, "mps-control-daemon-ctr").unwrap();
    assert_eq!(words(main), ["mps-control-daemon"]);
    assert!(!env(main).contains_key("MINE"));
    let mounter = container(mps, "mps-control-daemon-mounts").unwrap();
    assert_eq!((&mounter["image"], &mounter["resources"]["limits"]["cpu"]), (&main["image"], &json!("1")));
}
