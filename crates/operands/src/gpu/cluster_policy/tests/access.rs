//! Accounts, rights and OpenShift's constraints of every operand.

use super::*;

/// Every operand of both sandbox modes, on OpenShift.
fn all() -> Vec<Plan<ClusterPolicyStatus>> {
    let plan = |mode: &str| {
        let on = json!({"enabled": true});
        let more = json!({
            "nodeStatusExporter": on, "sandboxWorkloads": {"enabled": true, "mode": mode}, "vgpuManager": on,
            "vgpuDeviceManager": on, "vfioManager": on, "sandboxDevicePlugin": on, "kataSandboxDevicePlugin": on,
            "ccManager": on, "operator": {"use_ocp_driver_toolkit": false}, "dcgmExporter": {"enablePodUID": true},
        });
        fresh(&policy(more), &openshift(&["1"]))
    };
    vec![plan("kubevirt"), plan("kata")]
}

fn find_in<'a>(plans: &'a [Plan<ClusterPolicyStatus>], kind: &str, name: &str) -> Option<&'a Value> {
    plans.iter().find_map(|plan| find(plan, kind, name))
}

/// Rules as `group/resources: verbs`, sorted, without the use of constraints.
fn rules(role: &Value) -> Vec<String> {
    let words = |list: &Value| list.as_array().unwrap().iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    let one = |rule: &Value| {
        format!("{}/{}: {}", words(&rule["apiGroups"]), words(&rule["resources"]), words(&rule["verbs"]))
    };
    let list = role["rules"].as_array().into_iter().flatten().filter(|rule| rule["resourceNames"].is_null());
    let mut list: Vec<String> = list.map(one).collect();
    list.sort();
    list
}

#[test]
fn every_pod_runs_as_its_own_account_on_the_nodes_that_ask_for_it() {
    let plans = all();
    // DaemonSet, account, deploy label, constraints that OpenShift should choose.
    let table = [
        ("nvidia-driver-daemonset", "nvidia-driver", "driver", "nvidia-driver"),
        ("nvidia-container-toolkit-daemonset", "nvidia-container-toolkit", "container-toolkit", "hostmount-anyuid"),
        ("nvidia-operator-validator", "nvidia-operator-validator", "operator-validator", ""),
        ("nvidia-device-plugin-daemonset", "nvidia-device-plugin", "device-plugin", "hostmount-anyuid"),
        (
            "nvidia-device-plugin-mps-control-daemon",
            "nvidia-device-plugin-mps-control-daemon",
            "device-plugin",
            "hostmount-anyuid",
        ),
        ("nvidia-dcgm", "nvidia-dcgm", "dcgm", "hostmount-anyuid"),
        ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter", "dcgm-exporter", "nvidia-dcgm-exporter"),
        ("gpu-feature-discovery", "nvidia-gpu-feature-discovery", "gpu-feature-discovery", ""),
        ("nvidia-mig-manager", "nvidia-mig-manager", "mig-manager", ""),
        (
            "nvidia-node-status-exporter",
            "nvidia-node-status-exporter",
            "node-status-exporter",
            "nvidia-node-status-exporter",
        ),
        ("nvidia-vgpu-manager-daemonset", "nvidia-vgpu-manager", "vgpu-manager", "nvidia-vgpu-manager"),
        (
            "nvidia-vgpu-device-manager",
            "nvidia-vgpu-device-manager",
            "vgpu-device-manager",
            "nvidia-vgpu-device-manager",
        ),
        ("nvidia-sandbox-validator", "nvidia-sandbox-validator", "sandbox-validator", ""),
        ("nvidia-vfio-manager", "nvidia-vfio-manager", "vfio-manager", ""),
        (
            "nvidia-sandbox-device-plugin-daemonset",
            "nvidia-sandbox-device-plugin",
            "sandbox-device-plugin",
            "nvidia-sandbox-device-plugin",
        ),
        (
            "nvidia-kata-sandbox-device-plugin-daemonset",
            "nvidia-kata-sandbox-device-plugin",
            "kata-sandbox-device-plugin",
            "nvidia-kata-sandbox-device-plugin",
        ),
        ("nvidia-cc-manager", "nvidia-cc-manager", "cc-manager", ""),
    ];
    for (name, account, deploy, scc) in table {
        let daemon = find_in(&plans, "DaemonSet", name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(pod(daemon)["serviceAccountName"], account);
        assert_eq!(pod(daemon)["nodeSelector"][format!("nvidia.com/gpu.deploy.{deploy}")], "true", "{name}");
        assert_eq!(daemon["metadata"]["annotations"]["openshift.io/scc"].as_str().unwrap_or_default(), scc, "{name}");
        for kind in ["ServiceAccount", "Role", "RoleBinding"] {
            assert!(find_in(&plans, kind, account).is_some(), "{kind} {account}");
        }
        let binding = find_in(&plans, "RoleBinding", account).unwrap();
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": account, "namespace": "gpu-operator"}])
        );
        let role = find_in(&plans, "Role", account).unwrap();
        assert_eq!(
            role["rules"][0],
            json!({"apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
            "resourceNames": ["privileged"], "verbs": ["use"]}),
            "{account}"
        );
    }
    let mps = find_in(&plans, "DaemonSet", "nvidia-device-plugin-mps-control-daemon").unwrap();
    assert_eq!(pod(mps)["nodeSelector"]["nvidia.com/mps.capable"], "true");
}

#[test]
fn rights_are_what_each_operand_needs() {
    let nodes = "/nodes: get,list,watch";
    let versions = "config.openshift.io/clusterversions: get,list";
    let (pods, evict) = ("/pods: get,list,watch", "/pods/eviction: create");
    let all_verbs = "create,get,list,watch,update,patch,delete";
    let features = "nfd.k8s-sigs.io/nodefeatures: create,get,list,watch,update";
    let plugin_here = vec!["/pods: create,get,list,watch,delete".to_owned(), features.to_owned()];
    let plugin_all = vec!["/nodes,pods: get".to_owned(), versions.to_owned()];
    let list = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
    let table = [
        (
            "nvidia-driver",
            list(&[]),
            list(&[
                "/nodes: get,list,patch,update,watch",
                pods,
                evict,
                "apps/daemonsets: get",
                versions,
                "resource.k8s.io/resourceclaims: get,list",
            ]),
        ),
        ("nvidia-container-toolkit", list(&["apps/daemonsets: list"]), list(&[])),
        (
            "nvidia-operator-validator",
            list(&[&format!("/pods: {all_verbs}"), "apps/daemonsets: get,list,watch"]),
            list(&[nodes, &format!("nvidia.com/clusterpolicies/finalizers,nvidiadrivers/finalizers: {all_verbs}")]),
        ),
        ("nvidia-device-plugin", list(&[]), list(&[nodes])),
        ("nvidia-device-plugin-mps-control-daemon", list(&[]), list(&[nodes])),
        ("nvidia-dcgm", list(&[]), list(&[])),
        ("nvidia-dcgm-exporter", list(&["/configmaps: get,list"]), list(&[])),
        (
            "nvidia-gpu-feature-discovery",
            list(&["/pods: get", "nfd.k8s-sigs.io/nodefeatures: get,list,watch,create,update"]),
            list(&[nodes]),
        ),
        (
            "nvidia-mig-manager",
            list(&["/configmaps: create,get,list,update,patch", "/pods: get,list,watch,delete"]),
            list(&["/nodes: get,list,watch,update,patch", "/pods: list"]),
        ),
        ("nvidia-node-status-exporter", list(&["/pods: get,list", "apps/daemonsets: get,list,watch"]), list(&[nodes])),
        (
            "nvidia-vgpu-manager",
            list(&[]),
            list(&["/nodes: get,list,patch,watch", pods, evict, "apps/daemonsets: get", versions]),
        ),
        ("nvidia-vgpu-device-manager", list(&[pods]), list(&["/nodes: get,list,watch,update", versions])),
        ("nvidia-sandbox-validator", list(&[]), list(&["/nodes: get"])),
        ("nvidia-vfio-manager", list(&[]), list(&["/nodes: get,list,patch,watch", pods, evict, versions])),
        ("nvidia-sandbox-device-plugin", plugin_here.clone(), plugin_all.clone()),
        ("nvidia-kata-sandbox-device-plugin", plugin_here, plugin_all),
        ("nvidia-cc-manager", list(&[pods]), list(&["/nodes: get,list,patch,watch"])),
    ];
    let plans = all();
    for (account, here, everywhere) in table {
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        let (here, everywhere) = (sorted(here), sorted(everywhere));
        assert_eq!(rules(find_in(&plans, "Role", account).unwrap()), here, "{account}");
        assert_eq!(find_in(&plans, "ClusterRole", account).map(rules).unwrap_or_default(), everywhere, "{account}");
        let binding = find_in(&plans, "ClusterRoleBinding", account);
        assert_eq!(binding.is_some(), !everywhere.is_empty(), "{account}");
    }
    assert_eq!(rules(find_in(&plans, "ClusterRole", "nvidia-dcgm-exporter-read-pods").unwrap()), [pods]);
}

#[test]
fn constraints_allow_what_pods_share_with_their_node() {
    let plans = all();
    // Account, host namespaces, and whether anything may be asked for.
    let table = [
        ("nvidia-driver", vec!["HostPID"], true),
        ("nvidia-operator-validator", vec!["HostPID"], true),
        ("nvidia-dcgm", vec!["HostNetwork", "HostPorts"], true),
        ("nvidia-dcgm-exporter", vec!["HostPorts"], true),
        ("nvidia-gpu-feature-discovery", vec!["HostPID"], true),
        ("nvidia-mig-manager", vec!["HostIPC", "HostPID"], true),
        ("nvidia-node-status-exporter", vec![], true),
        ("nvidia-vgpu-manager", vec!["HostIPC", "HostPID"], true),
        ("nvidia-vgpu-device-manager", vec![], true),
        ("nvidia-sandbox-validator", vec![], true),
        ("nvidia-vfio-manager", vec![], true),
        ("nvidia-sandbox-device-plugin", vec![], false),
        ("nvidia-kata-sandbox-device-plugin", vec![], false),
        ("nvidia-cc-manager", vec![], true),
    ];
    for (account, shared, anything) in &table {
        let scc = find_in(&plans, "SecurityContextConstraints", account).unwrap_or_else(|| panic!("{account}"));
        let flags = ["HostIPC", "HostNetwork", "HostPID", "HostPorts"];
        let allowed: Vec<&str> = flags.into_iter().filter(|flag| scc[format!("allow{flag}")] == true).collect();
        assert_eq!(allowed, *shared, "{account}");
        assert_eq!(
            scc["allowedCapabilities"] == json!(["*"]) && scc["allowedUnsafeSysctls"] == json!(["*"]),
            *anything,
            "{account}"
        );
        assert_eq!(scc["users"], json!([format!("system:serviceaccount:gpu-operator:{account}")]));
        assert_eq!(scc["groups"], json!(["system:cluster-admins", "system:nodes", "system:masters"]));
        for flag in ["allowHostDirVolumePlugin", "allowPrivilegeEscalation", "allowPrivilegedContainer"] {
            assert_eq!(scc[flag], true);
        }
        for strategy in ["fsGroup", "runAsUser", "seLinuxContext", "supplementalGroups"] {
            assert_eq!(scc[strategy]["type"], "RunAsAny");
        }
        assert_eq!(
            (&scc["seccompProfiles"], &scc["volumes"], &scc["readOnlyRootFilesystem"]),
            (&json!(["*"]), &json!(["*"]), &json!(false))
        );
    }
    let count = |plan: &Plan<ClusterPolicyStatus>| {
        objects(plan).iter().filter(|one| one.reference.gvk.kind == "SecurityContextConstraints").count()
    };
    assert_eq!(count(&on_ubuntu(json!({}))), 0);
    for account in ["nvidia-container-toolkit", "nvidia-device-plugin", "nvidia-device-plugin-mps-control-daemon"] {
        assert!(find_in(&plans, "SecurityContextConstraints", account).is_none());
    }
}

#[test]
fn pods_share_what_their_work_needs() {
    let plans = all();
    let table = [
        ("nvidia-driver-daemonset", true, false, Value::Null),
        ("nvidia-container-toolkit-daemonset", true, false, Value::Null),
        ("nvidia-operator-validator", false, false, Value::Null),
        ("nvidia-device-plugin-mps-control-daemon", true, false, Value::Null),
        ("nvidia-mig-manager", true, true, Value::Null),
        ("nvidia-vgpu-manager-daemonset", true, true, json!(120)),
        ("nvidia-vfio-manager", false, false, json!(30)),
        ("nvidia-cc-manager", false, false, json!(30)),
        ("nvidia-dcgm", false, false, Value::Null),
    ];
    for (name, pid, ipc, grace) in table {
        let pod = pod(find_in(&plans, "DaemonSet", name).unwrap());
        assert_eq!((pod["hostPID"] == true, pod["hostIPC"] == true), (pid, ipc), "{name}");
        assert_eq!(pod["terminationGracePeriodSeconds"], grace, "{name}");
    }
}

#[test]
fn pods_are_selected_by_the_labels_that_clusters_have() {
    let plans = all();
    let table = [
        (
            "nvidia-operator-validator",
            json!({"app": "nvidia-operator-validator", "app.kubernetes.io/part-of": "gpu-operator"}),
        ),
        (
            "nvidia-sandbox-validator",
            json!({"app": "nvidia-sandbox-validator", "app.kubernetes.io/part-of": "gpu-operator"}),
        ),
        ("gpu-feature-discovery", json!({"app": "gpu-feature-discovery", "app.kubernetes.io/part-of": "nvidia-gpu"})),
        ("nvidia-vfio-manager", json!({"name": "nvidia-vfio-manager"})),
        ("nvidia-cc-manager", json!({"name": "nvidia-cc-manager"})),
        ("nvidia-dcgm", json!({"app": "nvidia-dcgm"})),
        ("nvidia-driver-daemonset", json!({"app": "nvidia-driver-daemonset"})),
    ];
    for (name, selector) in table {
        let daemon = find_in(&plans, "DaemonSet", name).unwrap();
        assert_eq!(daemon["spec"]["selector"]["matchLabels"], selector);
        for (key, value) in selector.as_object().unwrap() {
            assert_eq!(&daemon["spec"]["template"]["metadata"]["labels"][key], value);
        }
    }
}

#[test]
fn everything_belongs_to_the_policy() {
    for plan in all() {
        for object in objects(&plan) {
            let owner = &object.body["metadata"]["ownerReferences"][0];
            assert_eq!(
                (&owner["kind"], &owner["controller"]),
                (&json!("ClusterPolicy"), &json!(true)),
                "{}",
                object.reference
            );
            assert_eq!(
                object.body["metadata"]["labels"]["app.kubernetes.io/managed-by"], "gpu-operator",
                "{}",
                object.reference
            );
        }
    }
}

#[test]
fn objects_of_exporters_carry_their_label() {
    let plans = all();
    for (name, kinds) in [
        (
            "nvidia-dcgm-exporter",
            &["ServiceAccount", "Role", "RoleBinding", "Service", "SecurityContextConstraints"][..],
        ),
        ("nvidia-node-status-exporter", &["ServiceAccount", "Role", "RoleBinding", "Service"]),
    ] {
        for kind in kinds {
            assert_eq!(find_in(&plans, kind, name).unwrap()["metadata"]["labels"]["app"], name, "{kind}");
        }
    }
    assert_eq!(
        find_in(&plans, "ClusterRole", "nvidia-dcgm-exporter-read-pods").unwrap()["metadata"]["labels"]["app"],
        "nvidia-dcgm-exporter"
    );
}
