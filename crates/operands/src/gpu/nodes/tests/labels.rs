//! Which operands run where.

use super::*;

fn sandbox(workload: &str, mode: &str, cc_manager: bool) -> Wanted {
    policy(json!({
        "sandboxWorkloads": {"enabled": true, "defaultWorkload": workload, "mode": mode},
        "ccManager": {"enabled": cc_manager},
    }))
}

const CONTAINER: [&str; 9] = [
    "client",
    "container-toolkit",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "driver",
    "gpu-feature-discovery",
    "node-status-exporter",
    "operator-validator",
];
const DRA: [&str; 5] = ["dcgm-dra", "dcgm-exporter-dra", "dra-driver", "dra-validator", "driver"];

#[test]
fn any_label_of_a_gpu_makes_a_gpu_node() {
    let keys = ["pci-10de.present", "pci-0302_10de.present", "pci-0300_10de.present"];
    for key in keys {
        let host = Host::default()
            .label(&format!("feature.node.kubernetes.io/{key}"), "true")
            .settle(&policy(json!({})), &QUIET);
        assert_eq!(
            (host.get(keys::PRESENT), host.operands().as_slice()),
            (Some("true"), CONTAINER.as_slice()),
            "{key}"
        );
    }
    let none = Host::default().label(PCI, "false");
    assert_eq!(decide(&policy(json!({})), &none.node(), &QUIET), Decision::default());
}

#[test]
fn a_node_gets_everything_in_one_patch() {
    let drivers = [driver("nvd", json!({}))];
    let wanted = Wanted::of(
        Some(&cluster_policy(json!({"driver": {"useNvidiaDriverCRD": true}, "migManager": {"config": {}}}))),
        None,
        &drivers,
    );
    let host = Host::gpu().label(keys::PRODUCT, "NVIDIA-H100-80GB-HBM3").settle(&wanted, &QUIET);
    assert_eq!(host.get(keys::PRESENT), Some("true"));
    assert_eq!(host.get(keys::OWNER), Some("nvd"));
    assert_eq!(host.get(keys::MIG_MANAGER), Some("true"));
    assert_eq!(host.get(keys::MIG_CONFIG), Some("all-disabled"));
    assert_eq!(host.annotations[keys::AUTO_UPGRADE], "true");
    assert_eq!(host.get(upgrade_keys::STATE), Some("upgrade-done"));
}

#[test]
fn a_node_that_loses_its_gpus_loses_its_labels() {
    let wanted = policy(json!({}));
    let mut host = Host::gpu().label(keys::OWNER, "nvd").label("mine", "1").settle(&wanted, &QUIET);
    host.labels.remove(PCI);
    let host = host.settle(&wanted, &QUIET);
    assert_eq!((host.get(keys::PRESENT), host.operands().len(), host.get(keys::OWNER)), (Some("false"), 0, None));
    assert_eq!(host.get("mine"), Some("1"));
}

#[test]
fn workloads_choose_operands() {
    let passthrough = ["client", "kata-manager", "sandbox-device-plugin", "sandbox-validator", "vfio-manager"];
    let kata =
        ["cc-manager", "client", "kata-manager", "kata-sandbox-device-plugin", "sandbox-validator", "vfio-manager"];
    let vgpu = ["client", "sandbox-device-plugin", "sandbox-validator", "vgpu-device-manager", "vgpu-manager"];
    let on = sandbox("container", "kubevirt", false);
    let cases: [(&Wanted, &str, &[&str]); 6] = [
        (&on, "container", &CONTAINER),
        (&on, "vm-passthrough", &passthrough),
        (&sandbox("container", "kata", true), "vm-passthrough", &kata),
        (&on, "vm-vgpu", &vgpu),
        (&on, "nonsense", &CONTAINER),
        (&policy(json!({})), "vm-vgpu", &CONTAINER),
    ];
    for (wanted, workload, expected) in cases {
        let host = Host::gpu().label(keys::WORKLOAD, workload).settle(wanted, &QUIET);
        assert_eq!(host.operands(), expected, "{workload}");
    }
    assert_eq!(Host::gpu().settle(&sandbox("vm-vgpu", "kubevirt", false), &QUIET).operands(), vgpu, "the default");
    // Nothing of an earlier default is remembered.
    let first = Host::gpu().settle(&sandbox("vm-passthrough", "kubevirt", false), &QUIET);
    assert_eq!(first.settle(&policy(json!({})), &QUIET).operands(), CONTAINER);
}

#[test]
fn the_cc_manager_is_deployed_by_one_rule() {
    let spec = |mode: &str, enabled: bool| json!({"sandboxWorkloads": {"enabled": true, "mode": mode}, "ccManager": {"enabled": enabled}});
    for (mode, enabled, expected) in [("kata", true, true), ("kata", false, false), ("kubevirt", true, false)] {
        let policy = cluster_policy(spec(mode, enabled));
        assert_eq!(deploys_cc_manager(&policy.spec), expected);
        let wanted = Wanted::of(Some(&policy), None, &[]);
        for workload in ["vm-passthrough", "vm-vgpu"] {
            let host = Host::gpu().label(keys::WORKLOAD, workload).settle(&wanted, &QUIET);
            assert_eq!(host.operands().contains(&"cc-manager"), expected, "{mode} {enabled} {workload}");
        }
    }
}

#[test]
fn labels_are_swept_when_the_stack_changes() {
    let (plugins, dra) = (policy(json!({})), Wanted::of(None, Some(&gpu_cluster()), &[]));
    let before = Host::gpu().label(keys::PRODUCT, "A100").settle(&plugins, &QUIET);
    let host = before.settle(&dra, &QUIET);
    assert_eq!(host.operands(), DRA);
    let back = host.settle(&plugins, &QUIET);
    assert_eq!(back.labels, before.labels);
    let vgpu = Host::gpu().operand("vgpu-manager", "true").settle(&dra, &QUIET);
    assert!(vgpu.operands().contains(&"vgpu-manager"), "a GPUCluster leaves the driver of vGPU hosts alone");
}

#[test]
fn pauses_are_kept_and_empty_values_filled() {
    for wanted in [policy(json!({})), Wanted::of(None, Some(&gpu_cluster()), &[])] {
        let host =
            Host::gpu().operand("driver", "paused-for-driver-upgrade").operand("dra-driver", "").operand("dcgm", "");
        let host = host.settle(&wanted, &QUIET);
        assert_eq!(host.get("nvidia.com/gpu.deploy.driver"), Some("paused-for-driver-upgrade"));
        assert!(host.labels.values().all(|value| !value.is_empty()), "{:?}", host.labels);
    }
}

#[test]
fn what_users_set_is_never_changed() {
    let users = |host: Host| {
        host.operand("dcgm", "false")
            .operand("cc-manager", "false")
            .operand("mine", "true")
            .label(keys::MIG_CONFIG, "all-1g.10gb")
    };
    for wanted in [
        policy(json!({"migManager": {"config": {}}})),
        Wanted::of(None, Some(&gpu_cluster()), &[]),
        Wanted::of(None, None, &[]),
    ] {
        let host = users(Host::gpu().label(keys::PRODUCT, "A100")).settle(&wanted, &QUIET);
        for (key, value) in users(Host::default()).labels {
            assert_eq!(host.get(&key), Some(value.as_str()), "{key}");
        }
    }
}

#[test]
fn users_can_keep_operands_off_a_node() {
    let stacks = [policy(json!({})), Wanted::of(None, Some(&gpu_cluster()), &[])];
    for wanted in stacks {
        let host = Host::gpu().settle(&wanted, &QUIET).label(keys::OPERANDS, "false").settle(&wanted, &QUIET);
        assert_eq!((host.operands().len(), host.get(keys::OPERANDS)), (0, Some("false")));
        let back = host.label(keys::OPERANDS, "true").settle(&wanted, &QUIET);
        assert!(back.operands().len() >= 5);
    }
}

#[test]
fn the_dra_driver_goes_last() {
    let plugins = policy(json!({}));
    let host = Host::gpu().settle(&Wanted::of(None, Some(&gpu_cluster()), &[]), &QUIET);
    assert!(needs_claims(&plugins, &host.node()));
    for claims_in_use in [None, Some(true)] {
        let facts = NodeFacts { claims_in_use, ..QUIET };
        let decision = decide(&plugins, &host.node(), &facts);
        assert_eq!(decision.requeue, Some(Duration::from_secs(30)));
        assert!(!decision.patch.labels.contains_key(keys::DRA_DRIVER));
        assert_eq!(decision.patch.labels.get("nvidia.com/gpu.deploy.dcgm-dra"), Some(&None), "the others go at once");
    }
    assert_eq!(decide(&plugins, &host.node(), &QUIET).requeue, None);
    let off = host.label(keys::OPERANDS, "false");
    let dra = Wanted::of(None, Some(&gpu_cluster()), &[]);
    assert_eq!(decide(&dra, &off.node(), &NodeFacts::default()).requeue, Some(Duration::from_secs(30)));
    assert!(!needs_claims(&plugins, &Host::gpu().node()));
}

#[test]
fn mig_is_offered_where_gpus_can_be_partitioned() {
    let cases = [
        (keys::PRODUCT, "NVIDIA-H100-PCIe", true),
        (keys::PRODUCT, "nvidia-a30", true),
        (keys::PRODUCT, "Tesla-T4", false),
        (keys::MIG_CAPABLE, "true", true),
        (keys::MIG_CAPABLE, "false", false),
    ];
    let off = policy(json!({"migManager": {"config": {"default": "all-disabled"}}}));
    for (key, value, expected) in cases {
        let host = Host::gpu().label(key, value).settle(&off, &QUIET);
        assert_eq!(host.get(keys::MIG_MANAGER).is_some(), expected, "{value}");
        assert_eq!(host.get(keys::MIG_CONFIG).is_some(), expected, "{value}");
        let guest = Host::gpu().label(key, value).label(keys::VGPU_HOST_DRIVER, "580").settle(&off, &QUIET);
        assert_eq!(guest.get(keys::MIG_MANAGER), None, "a guest's GPU cannot be partitioned");
    }
    let discovered = Host::gpu().label(keys::PRODUCT, "A100").label(keys::MIG_CAPABLE, "false").settle(&off, &QUIET);
    assert_eq!(discovered.get(keys::MIG_MANAGER), None, "what feature discovery says wins");
    for spec in [
        json!({}),
        json!({"migManager": {"config": {"default": ""}}}),
        json!({"migManager": {"enabled": false, "config": {}}}),
    ] {
        let host = Host::gpu().label(keys::PRODUCT, "A100").settle(&policy(spec.clone()), &QUIET);
        assert_eq!(host.get(keys::MIG_CONFIG), None, "{spec}");
    }
    let paused =
        Host::gpu().label(keys::PRODUCT, "A100").operand("mig-manager", "paused-for-mig-change").settle(&off, &QUIET);
    assert_eq!(paused.get(keys::MIG_MANAGER), Some("paused-for-mig-change"));
}

#[test]
fn the_driver_manager_is_told_about_automatic_upgrades() {
    let on = json!({"driver": {"upgradePolicy": {"autoUpgrade": true}}});
    let cases = [
        (on.clone(), true),
        (json!({}), false),
        (json!({"driver": {"upgradePolicy": {}}}), false),
        (json!({"driver": {"enabled": false, "upgradePolicy": {"autoUpgrade": true}}}), false),
        (json!({"driver": {"upgradePolicy": {"autoUpgrade": true}}, "sandboxWorkloads": {"enabled": true}}), false),
    ];
    for (spec, expected) in cases {
        let host = Host::gpu().annotation(keys::AUTO_UPGRADE, "stale").settle(&policy(spec.clone()), &QUIET);
        assert_eq!(host.annotations.get(keys::AUTO_UPGRADE).map(String::as_str), expected.then_some("true"), "{spec}");
        assert_eq!(host.get(upgrade_keys::STATE).is_some(), expected, "{spec}");
    }
}

#[test]
fn a_node_under_way_is_given_back_when_upgrades_are_switched_off() {
    let mut host = Host::gpu().label(upgrade_keys::STATE, "drain-required").annotation(upgrade_keys::SINCE, "1");
    host.unschedulable = true;
    let host = host.settle(&policy(json!({})), &QUIET);
    assert!(!host.unschedulable && host.annotations.is_empty() && host.get(upgrade_keys::STATE).is_none());
}

#[test]
fn uninstalling_leaves_the_node_as_it_was() {
    let spec = json!({"migManager": {"config": {}}, "driver": {"upgradePolicy": {"autoUpgrade": true}}});
    let drivers = [driver("nvd", json!({}))];
    let (plugins, dra) = (policy(spec), Wanted::of(None, Some(&gpu_cluster()), &drivers));
    let before =
        Host::gpu().label(keys::PRODUCT, "A100").label(keys::OPERANDS, "true").label(keys::WORKLOAD, "container");
    let before = before.operand("dcgm", "false").annotation("mine", "1");
    for wanted in [plugins, dra] {
        let host = before.settle(&wanted, &QUIET).settle(&Wanted::of(None, None, &[]), &QUIET);
        assert_eq!((&host.labels, &host.annotations), (&before.labels, &before.annotations));
    }
    let chosen = before.clone().label(keys::MIG_CONFIG, "all-disabled");
    let host = chosen
        .settle(&policy(json!({"migManager": {"config": {}}})), &QUIET)
        .settle(&Wanted::of(None, None, &[]), &QUIET);
    assert_eq!(host.get(keys::MIG_CONFIG), Some("all-disabled"), "the user's choice stays");
}

#[test]
fn a_node_is_not_patched_for_nothing() {
    let untouched = Host::default().label("mine", "1");
    for wanted in [policy(json!({})), Wanted::of(None, None, &[]), Wanted::of(None, Some(&gpu_cluster()), &[])] {
        assert_eq!(decide(&wanted, &untouched.node(), &QUIET), Decision::default());
    }
}

#[test]
fn two_stacks_at_once_change_nothing() {
    let wanted = Wanted::of(Some(&cluster_policy(json!({}))), Some(&gpu_cluster()), &[]);
    assert_eq!(decide(&wanted, &Host::gpu().node(), &QUIET), Decision::default());
    let refusal = wanted.refusal.unwrap();
    assert!(refusal.message.contains("\"gpu-cluster\"") && refusal.message.contains("\"policy\""), "{refusal:?}");
}

#[test]
fn every_deploy_key_is_known_once() {
    let mut keys: Vec<_> = keys::all().collect();
    keys.sort_unstable();
    let count = keys.len();
    keys.dedup();
    assert_eq!((keys.len(), count), (22, 22), "{keys:?}");
}

#[test]
fn a_cached_node_is_read_and_its_patch_names_only_what_changes() {
    let node = json!({"metadata": {"name": "a", "labels": {PCI: "true", keys::PRESENT: "true"}}, "spec": {"unschedulable": true}});
    let patch = decide(&policy(json!({})), &Node::of(&node), &QUIET).patch;
    let body = patch.to_json(Some("7"));
    assert_eq!(body["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"], "true");
    assert_eq!(body["metadata"]["labels"].as_object().unwrap().len(), 9);
    assert_eq!((&body["metadata"]["resourceVersion"], body.get("spec")), (&json!("7"), None));
    let uncordon = NodePatch { unschedulable: Some(false), ..NodePatch::default() };
    assert!(uncordon.needs_lock() && !patch.needs_lock());
    assert_eq!(uncordon.to_json(None), json!({"metadata": {}, "spec": {"unschedulable": null}}));
}

#[test]
fn a_runtime_other_than_containerd_is_a_label_as_long_as_it_matters() {
    let host = |runtime| Host { runtime: Some(runtime), ..Host::gpu() };
    let plugins = policy(json!({}));
    assert_eq!(host(ContainerRuntime::Containerd).settle(&plugins, &QUIET).get(keys::RUNTIME), None);
    let crio = host(ContainerRuntime::Crio).settle(&plugins, &QUIET);
    assert_eq!(crio.get(keys::RUNTIME), Some("crio"));
    let moved = Host { runtime: Some(ContainerRuntime::Containerd), ..crio.clone() };
    assert_eq!(moved.settle(&plugins, &QUIET).get(keys::RUNTIME), None);
    assert_eq!(crio.settle(&Wanted::of(None, None, &[]), &QUIET).get(keys::RUNTIME), None);
}
