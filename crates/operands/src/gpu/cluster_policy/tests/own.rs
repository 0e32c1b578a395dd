//! Operands that nobody names an image for, and that our own image runs.

use super::*;
use crate::gpu::{Agent, Layout};

const OWN: &str = "r.io/capstan:v1";
const AGENT: &str = "capstan-node-agent";
const PLUGIN: &str = "nvidia-device-plugin-daemonset";
const VALIDATOR: &str = "nvidia-operator-validator";

/// One Ubuntu node, and images only for what our own cannot do.
fn around(layout: Layout) -> Cluster {
    let mut cluster = ubuntu();
    let done = ["DEVICE_PLUGIN_IMAGE", "GFD_IMAGE", "DCGM_EXPORTER_IMAGE", "DCGM_IMAGE", "VALIDATOR_IMAGE"];
    cluster.images.retain(|variable, _| !done.contains(&variable.as_str()));
    let pull_secrets = vec!["key".to_owned()];
    cluster.agent = Agent { image: OWN.into(), pull_policy: Some("Always".into()), pull_secrets, layout };
    cluster
}

fn combined(more: Value) -> Plan<ClusterPolicyStatus> {
    fresh(&policy(more), &around(Layout::Combined))
}

fn apart(more: Value) -> Plan<ClusterPolicyStatus> {
    fresh(&policy(more), &around(Layout::PerComponent))
}

/// The roles in the shared pod, if there is one.
fn roles(plan: &Plan<ClusterPolicyStatus>) -> Option<String> {
    let main = container(find(plan, "DaemonSet", AGENT)?, AGENT)?;
    words(main).last().map(|roles| (*roles).to_owned())
}

/// What the container runs, after the program's name.
fn run(daemon: &Value, name: &str) -> String {
    let one = container(daemon, name).unwrap_or_else(|| panic!("there is no container {name}"));
    assert_eq!((one["image"].as_str(), one["imagePullPolicy"].as_str()), (Some(OWN), Some("Always")), "{name}");
    let words = words(one);
    assert_eq!(words[0], "/usr/bin/capstan");
    words[1..].join(" ")
}

const AFTER_DRIVER: &str = "agent after --variables=/run/nvidia/validations/driver-ready \
    --when-loaded=gdrdrv:GDRCOPY_ENABLED --when-loaded=nvidia_fs:GDS_ENABLED,MOFED_ENABLED -- agent ";
const AFTER_TOOLKIT: &str = "agent after --file=/run/nvidia/validations/toolkit-ready";

#[test]
fn each_component_runs_its_role_in_its_own_daemon_set() {
    let plan =
        apart(json!({"nodeStatusExporter": {"enabled": true}, "devicePlugin": {"args": ["--mig-strategy=none"]}}));
    let table = [
        (PLUGIN, "nvidia-device-plugin", &*format!("{AFTER_DRIVER}device-plugin --mig-strategy=none")),
        ("gpu-feature-discovery", "gpu-feature-discovery", "agent feature-discovery"),
        ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter", "agent exporter"),
        ("nvidia-node-status-exporter", "nvidia-node-status-exporter", "agent node-status-exporter"),
        ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-ctr", "agent mps-control-daemon"),
        ("nvidia-device-plugin-mps-control-daemon", "mps-control-daemon-mounts", "agent mps-control-daemon mount-shm"),
    ];
    for (set, main, expected) in table {
        let daemon = daemon(&plan, set);
        assert_eq!(run(daemon, main), expected);
        assert_eq!(pod(daemon)["imagePullSecrets"], json!([{"name": "key"}]), "{set}");
        if container(daemon, "toolkit-validation").is_some() {
            assert_eq!(run(daemon, "toolkit-validation"), AFTER_TOOLKIT);
        }
    }
    assert!(find(&plan, "ConfigMap", "nvidia-device-plugin-entrypoint").is_none(), "there is no shell to run it");
    assert!(volume(daemon(&plan, PLUGIN), "nvidia-device-plugin-entrypoint").is_none());
    assert!(find(&plan, "DaemonSet", AGENT).is_none());
}

#[test]
fn one_pod_has_the_variables_mounts_and_ports_of_all_three() {
    let plan = combined(json!({"dcgmExporter": {"env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "5000"}]}}));
    let daemon = daemon(&plan, AGENT);
    assert_eq!(containers(daemon), ["toolkit-validation", AGENT]);
    let expected = format!("{AFTER_DRIVER}--roles device-plugin,feature-discovery,exporter");
    assert_eq!(run(daemon, AGENT), expected);
    let main = container(daemon, AGENT).unwrap();
    assert_eq!(
        variables(main),
        [
            "NODE_NAME<-spec.nodeName",
            "FOLLOW_NODE_LABELS=true",
            "PASS_DEVICE_SPECS=true",
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
            "GFD_SLEEP_INTERVAL=60s",
            "GFD_FAIL_ON_INIT_ERROR=true",
            "NAMESPACE<-metadata.namespace",
            "POD_NAME<-metadata.name",
            "DCGM_EXPORTER_LISTEN=:9400",
            "DCGM_EXPORTER_KUBERNETES=true",
            "DCGM_EXPORTER_INTERVAL=5000",
        ]
    );
    assert_eq!(
        mounts(main),
        [
            "device-plugin /var/lib/kubelet/device-plugins",
            "run-nvidia-validations /run/nvidia/validations",
            "driver-install-dir /driver-root H2C",
            "host-root /host ro H2C",
            "cdi-root /var/run/cdi",
            "mps-shm /dev/shm",
            "mps-root /mps",
            "output-dir /etc/kubernetes/node-feature-discovery/features.d",
            "host-sys /sys ro",
            "pod-gpu-resources /var/lib/kubelet/pod-resources ro",
        ]
    );
    let mut used: Vec<String> = mounts(main).iter().map(|one| one.split(' ').next().unwrap().to_owned()).collect();
    used.sort();
    let there: Vec<String> = volumes(daemon).iter().map(|one| one.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(there, used, "no volume is left over");
    assert_eq!(main["ports"], json!([{"name": "metrics", "containerPort": 9400}]));
    assert_eq!(main["securityContext"], json!({"privileged": true, "runAsUser": 0}));
    assert_eq!(pod(daemon)["runtimeClassName"], "nvidia");
    for other in [PLUGIN, "gpu-feature-discovery", "nvidia-dcgm-exporter"] {
        assert!(find(&plan, "DaemonSet", other).is_none(), "{other}");
    }
}

#[test]
fn it_is_on_nodes_that_want_any_of_them_and_never_beside_another_device_plugin() {
    let plan = combined(json!({}));
    let pod = pod(daemon(&plan, AGENT));
    assert!(pod["nodeSelector"].is_null());
    let affinity = &pod["affinity"];
    let terms = affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    let label = |name: &str| {
        let key = format!("nvidia.com/gpu.deploy.{name}");
        json!({"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}]})
    };
    assert_eq!(terms.unwrap(), &json!(["device-plugin", "gpu-feature-discovery", "dcgm-exporter"].map(label)));
    let beside = &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        beside,
        &json!([{"labelSelector": {"matchLabels": {"app": PLUGIN}}, "topologyKey": "kubernetes.io/hostname"}])
    );
    let template = &daemon(&plan, AGENT)["spec"]["template"]["metadata"]["labels"];
    assert_eq!(template["app"], PLUGIN, "who unloads drivers waits until pods of this label are gone");
    assert_eq!(daemon(&plan, AGENT)["spec"]["selector"]["matchLabels"], json!({"app.kubernetes.io/name": AGENT}));
}

#[test]
fn what_cannot_share_a_pod_has_one_of_its_own() {
    let all = "device-plugin,feature-discovery,exporter";
    let named = json!({"repository": "r.io", "image": "i", "version": "v1"});
    let mine = |value: &str| json!({"env": [{"name": "MINE", "value": value}]});
    let table = [
        (json!({}), Some(all)),
        (json!({"devicePlugin": {"args": ["--mig-strategy=none"]}}), Some("feature-discovery,exporter")),
        (json!({"gfd": {"resources": {"limits": {"memory": "64Mi"}}}}), Some("device-plugin,exporter")),
        (json!({"dcgmExporter": {"hostNetwork": true}}), Some("device-plugin,feature-discovery")),
        (json!({"dcgmExporter": {"hostPID": true}}), Some("device-plugin,feature-discovery")),
        (json!({"dcgmExporter": named}), Some("device-plugin,feature-discovery")),
        (json!({"gfd": {"enabled": false}}), Some("device-plugin,exporter")),
        (json!({"devicePlugin": mine("1"), "gfd": mine("2")}), Some("device-plugin,exporter")),
        (json!({"devicePlugin": mine("1"), "gfd": mine("1")}), Some(all)),
        (json!({"devicePlugin": named, "gfd": named}), None),
    ];
    for (more, expected) in table {
        let plan = combined(more.clone());
        assert_eq!(roles(&plan).as_deref(), expected, "{more}");
        for (role, set) in [
            ("device-plugin", PLUGIN),
            ("feature-discovery", "gpu-feature-discovery"),
            ("exporter", "nvidia-dcgm-exporter"),
        ] {
            let shared = expected.is_some_and(|roles| roles.contains(role));
            let off = role == "feature-discovery" && more["gfd"]["enabled"] == false;
            assert_eq!(find(&plan, "DaemonSet", set).is_some(), !shared && !off, "{more}: {set}");
        }
    }
}

#[test]
fn images_of_the_policy_and_of_the_environment_come_first() {
    let mut cluster = ubuntu();
    cluster.agent.image = OWN.into();
    let plan = fresh(&policy(json!({})), &cluster);
    assert_eq!(objects(&plan).len(), objects(&fresh(&policy(json!({})), &ubuntu())).len());
    assert!(objects(&plan).iter().all(|object| !object.body.to_string().contains(OWN)));
    let half = combined(json!({"devicePlugin": {"image": "plugin", "version": "1"}}));
    let (_, reason, message) = condition(&half, "DevicePlugin").unwrap();
    assert_eq!(reason, "Failed");
    assert!(message.starts_with("invalid image specification"), "{message}");
}

#[test]
fn the_agent_may_do_what_its_roles_do_and_nothing_else() {
    let plan = combined(json!({}));
    let rules = |kind: &str| find(&plan, kind, AGENT).unwrap()["rules"].clone();
    let here = rules("Role");
    assert_eq!(
        here.as_array().unwrap()[1..],
        [
            json!({"apiGroups": ["nfd.k8s-sigs.io"], "resources": ["nodefeatures"], "verbs": ["get", "create", "patch"]}),
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
        ]
    );
    let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]);
    assert_eq!(rules("ClusterRole"), nodes);
    for account in ["nvidia-device-plugin", "nvidia-gpu-feature-discovery", "nvidia-dcgm-exporter"] {
        assert!(find(&plan, "ServiceAccount", account).is_none(), "{account}");
    }
    let own = find(&plan, "ValidatingAdmissionPolicy", "nodefeatures-policy-capstan-node-agent").unwrap();
    let condition = own["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    assert_eq!(condition, "request.userInfo.username == 'system:serviceaccount:gpu-operator:capstan-node-agent'");
    assert!(find(&plan, "ValidatingAdmissionPolicyBinding", "nodefeatures-policy-capstan-node-agent").is_some());
    let labelled = combined(json!({"dcgmExporter": {"enablePodLabels": true}}));
    let rules = find(&labelled, "ClusterRole", AGENT).unwrap()["rules"].to_string();
    assert!(rules.contains("pods"), "{rules}");
}

#[test]
fn configs_are_chosen_by_a_role_of_the_same_process_and_need_no_restart() {
    let more = json!({"devicePlugin": {"config": {"name": "plugins", "default": "any"}}});
    let facts = with_files(&[("ConfigMap", "plugins", json!({"any": "version: v1"}))]);
    let plan = plan(&policy(more), &facts, &around(Layout::Combined));
    let daemon = daemon(&plan, AGENT);
    assert_eq!(containers(daemon), ["toolkit-validation", "config-manager-init", AGENT]);
    assert_eq!(run(daemon, "config-manager-init"), "agent config-manager");
    assert_eq!(roles(&plan).as_deref(), Some("config-manager,device-plugin,feature-discovery,exporter"));
    let env = env(container(daemon, AGENT).unwrap());
    assert_eq!((env["CONFIG_FILE"], env["DEFAULT_CONFIG"]), ("/config/config.yaml", "any"));
    assert!(!env.contains_key("CONFIG_FILE_SRCDIR"), "the device plugin would choose by itself, and end on a mistake");
    assert!(daemon.pointer("/spec/template/metadata/annotations/nvidia.com~1config-hash").is_none());
}

#[test]
fn the_validator_runs_every_check_without_a_shell() {
    let plan = combined(json!({}));
    let validator = daemon(&plan, VALIDATOR);
    for name in ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"] {
        assert_eq!(run(validator, name), "agent validator");
    }
    assert_eq!(run(validator, VALIDATOR), "agent hold --suffix=-ready");
    let main = container(validator, VALIDATOR).unwrap();
    assert!(main["lifecycle"].is_null() && main["securityContext"]["privileged"].is_null());
    assert!(mounts(main).iter().all(|mount| !mount.ends_with(" Bi")), "only privileged containers may");
    let cuda = env(container(validator, "cuda-validation").unwrap());
    assert_eq!((cuda["VALIDATOR_IMAGE"], cuda["VALIDATOR_IMAGE_PULL_SECRETS"]), (OWN, "key"));
    assert_eq!(cuda["NVIDIA_VISIBLE_DEVICES"], "all");
    let toolkit = daemon(&plan, "nvidia-container-toolkit-daemonset");
    assert_eq!(run(toolkit, "driver-validation"), "agent validator");
    let verbs = find(&plan, "Role", VALIDATOR).unwrap()["rules"].to_string();
    assert!(verbs.contains("deletecollection"), "{verbs}");
}

#[test]
fn an_init_container_that_needs_a_shell_says_what_to_name() {
    let more = json!({"sandboxWorkloads": {"enabled": true}, "sandboxDevicePlugin": {"enabled": true}});
    let plan = combined(more);
    let (_, reason, message) = condition(&plan, "SandboxDevicePlugin").unwrap();
    assert_eq!(reason, "Failed");
    assert!(message.contains("needs an image with a shell: name one in spec.validator"), "{message}");
}

#[test]
fn our_exporter_needs_no_engine_unless_one_is_named() {
    let plan = combined(json!({}));
    assert_eq!(condition(&plan, "Dcgm").unwrap(), ("True", "Ready", "disabled: the exporter reads NVML itself"));
    assert!(find(&plan, "DaemonSet", "nvidia-dcgm").is_none() && find(&plan, "Service", "nvidia-dcgm").is_none());
    let plan = combined(json!({"dcgm": {"repository": "r.io", "image": "dcgm", "version": "v1"}}));
    assert!(find(&plan, "DaemonSet", "nvidia-dcgm").is_some());
    let theirs = json!({"repository": "r.io", "image": "exporter", "version": "v1"});
    let plan = combined(json!({"dcgmExporter": theirs}));
    assert_eq!(condition(&plan, "Dcgm").unwrap().1, "Failed", "that one needs an engine");
}

#[test]
fn every_component_judges_the_shared_pods_by_its_own_nodes() {
    let mut cluster = around(Layout::Combined);
    let wants = |labels: &[&str]| {
        let mut node = node("n", ("ubuntu", "24.04"), "6.8");
        for label in labels {
            node["metadata"]["labels"][format!("nvidia.com/gpu.deploy.{label}")] = "true".into();
        }
        node
    };
    let nodes = [wants(&["device-plugin", "dcgm-exporter"]), wants(&["dcgm-exporter"])];
    cluster.fleet = super::cluster(&nodes).fleet;
    let policy = policy(json!({"driver": {"enabled": false}, "toolkit": {"enabled": false}}));
    let first = plan(&policy, &facts(), &cluster);
    let later = plan(&policy, &applied(&first, 2, 2), &cluster);
    assert_eq!(condition(&later, "DevicePlugin").unwrap().2, "1 of 1 nodes");
    assert_eq!(condition(&later, "DcgmExporter").unwrap().2, "2 of 2 nodes");
    let waiting = plan(&policy, &applied(&first, 2, 1), &cluster);
    assert_eq!(condition(&waiting, "DcgmExporter").unwrap().2, "1 of 2 nodes");
}
