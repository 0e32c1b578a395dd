//! Files, Secrets and subscriptions that drivers get.

use super::*;

const NAME: &str = "nvidia-driver-daemonset";
const MAIN: &str = "nvidia-driver-ctr";

fn on(os: (&str, &str), more: Value, files: &[(&str, &str, Value)]) -> Plan<ClusterPolicyStatus> {
    plan(&policy(more), &with_files(files), &cluster(&[node("n1", os, "k1")]))
}

/// Mounts of a container that are not in the template.
fn added(plan: &Plan<ClusterPolicyStatus>, name: &str) -> Vec<String> {
    let one = mounts(container(daemon(plan, NAME), name).unwrap());
    let template = on_ubuntu(
        json!({"driver": {"rdma": {"enabled": true}}, "gds": {"enabled": true}, "gdrcopy": {"enabled": true}}),
    );
    let template = mounts(container(daemon(&template, NAME), name).unwrap());
    one.into_iter().filter(|mount| !template.contains(mount)).collect()
}

#[test]
fn repositories_and_certificates_go_where_the_distribution_looks() {
    let files =
        [("ConfigMap", "repos", json!({"b.repo": "", "a.repo": ""})), ("ConfigMap", "certs", json!({"ca.pem": ""}))];
    let more = || {
        json!({"driver": {"repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"}},
        "gds": {"enabled": true}, "gdrcopy": {"enabled": true}})
    };
    let table = [
        ("rhel", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("centos", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("rocky", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("ol", "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"),
        ("ubuntu", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
        ("debian", "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates"),
    ];
    for (os, repos, certs) in table {
        let plan = on((os, "9"), more(), &files);
        for name in [MAIN, "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"] {
            assert_eq!(
                added(&plan, name),
                [
                    format!("repos {repos}/a.repo ro sub=a.repo"),
                    format!("repos {repos}/b.repo ro sub=b.repo"),
                    format!("certs {certs}/ca.pem ro sub=ca.pem"),
                ],
                "{os} {name}"
            );
        }
        assert!(volumes(daemon(&plan, NAME)).contains(&"repos ConfigMap=repos a.repo:a.repo b.repo:b.repo".into()));
    }
    let plan = on(("sles", "15.6"), more(), &files);
    assert!(added(&plan, MAIN).contains(&"repos /etc/zypp/repos.d/a.repo ro sub=a.repo".into()));
    assert!(added(&plan, MAIN).contains(&"certs /etc/pki/trust/anchors/ca.pem ro sub=ca.pem".into()));
}

#[test]
fn an_unknown_distribution_has_no_directory_for_them() {
    let plan = on(
        ("talos", "v1.7"),
        json!({"driver": {"certConfig": {"name": "c"}}}),
        &[("ConfigMap", "c", json!({"a": ""}))],
    );
    assert!(condition(&plan, "Error").unwrap().2.contains("distribution talos is not supported"));
}

#[test]
fn what_is_named_and_missing_is_told_and_nothing_is_deployed_without_it() {
    let table = [
        ("kernelModuleConfig", json!({"name": "gone"}), "spec.driver.kernelModuleConfig.name", "ConfigMap"),
        ("repoConfig", json!({"configMapName": "gone"}), "spec.driver.repoConfig.configMapName", "ConfigMap"),
        ("certConfig", json!({"name": "gone"}), "spec.driver.certConfig.name", "ConfigMap"),
        ("secretEnv", json!("gone"), "spec.driver.secretEnv", "Secret"),
    ];
    for (field, value, path, kind) in table {
        let plan = on_ubuntu(json!({"driver": {field: value}}));
        let (_, reason, message) = condition(&plan, "Error").unwrap();
        assert_eq!(reason, "ReconcileFailed");
        assert!(
            message.contains(&format!("{path} is \"gone\", but namespace gpu-operator has no {kind}")),
            "{message}"
        );
        assert!(find(&plan, "DaemonSet", NAME).is_none());
    }
}

#[test]
fn licences_come_from_a_secret_or_else_from_a_config_map() {
    let volume = |more: Value| {
        let plan = on_ubuntu(json!({"driver": {"licensingConfig": more}}));
        let volume = volumes(daemon(&plan, NAME)).into_iter().find(|one| one.starts_with("licensing-config"));
        (volume.unwrap_or_default(), added(&plan, MAIN))
    };
    let conf = "licensing-config /drivers/gridd.conf ro sub=gridd.conf".to_owned();
    let token = "licensing-config /drivers/ClientConfigToken/client_configuration_token.tok ro sub=client_configuration_token.tok".to_owned();
    assert_eq!(
        volume(json!({"configMapName": "m"})),
        ("licensing-config ConfigMap=m gridd.conf:gridd.conf".into(), vec![conf.clone()])
    );
    let files = "gridd.conf:gridd.conf client_configuration_token.tok:client_configuration_token.tok";
    let both = json!({"configMapName": "m", "secretName": "s", "nlsEnabled": true});
    assert_eq!(volume(both), (format!("licensing-config Secret=s {files}"), vec![conf, token]));
    assert_eq!(volume(json!({"nlsEnabled": true})), (String::new(), vec![]));
}

#[test]
fn topology_and_module_parameters_are_files() {
    let more = json!({"driver": {"virtualTopology": {"config": "topo"}, "kernelModuleConfig": {"name": "params"}, "rdma": {"enabled": true}}});
    let plan =
        on(("ubuntu", "24.04"), more, &[("ConfigMap", "params", json!({"nvidia.conf": "a", "nvidia-uvm.conf": "b"}))]);
    let params =
        ["params /drivers/nvidia-uvm.conf ro sub=nvidia-uvm.conf", "params /drivers/nvidia.conf ro sub=nvidia.conf"];
    let topology = "topology-config /etc/nvidia/nvidia-topologyd.conf ro sub=nvidia-topologyd.conf";
    assert_eq!(added(&plan, MAIN), [topology, params[0], params[1]]);
    assert_eq!(added(&plan, "nvidia-peermem-ctr"), params);
    assert!(
        volumes(daemon(&plan, NAME))
            .contains(&"topology-config ConfigMap=topo nvidia-topologyd.conf:nvidia-topologyd.conf".into())
    );
}

#[test]
fn changed_module_parameters_make_other_pods() {
    let more = || json!({"driver": {"kernelModuleConfig": {"name": "params"}}});
    let with = |text: &str| {
        let plan = on(("ubuntu", "24.04"), more(), &[("ConfigMap", "params", json!({"nvidia.conf": text}))]);
        daemon(&plan, NAME)["spec"]["template"].clone()
    };
    assert_eq!(with("a"), with("a"));
    assert_ne!(with("a"), with("b"));
}

#[test]
fn variables_from_a_secret_reach_driver_and_sidecars() {
    let more = json!({"driver": {"secretEnv": "s", "rdma": {"enabled": true}}, "gds": {"enabled": true}, "gdrcopy": {"enabled": true}});
    let plan = on(("ubuntu", "24.04"), more, &[("Secret", "s", json!({}))]);
    for name in [MAIN, "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"] {
        assert_eq!(
            container(daemon(&plan, NAME), name).unwrap()["envFrom"],
            json!([{"secretRef": {"name": "s"}}]),
            "{name}"
        );
    }
    assert!(container(daemon(&plan, NAME), "nvidia-peermem-ctr").unwrap()["envFrom"].is_null());
}

#[test]
fn subscriptions_of_the_host_are_used_unless_there_are_repositories() {
    let rhel = [
        "subscription-config-0 /run/secrets/etc-pki-entitlement ro",
        "subscription-config-1 /run/secrets/redhat.repo ro",
        "subscription-config-2 /run/secrets/rhsm ro",
    ];
    let plan = on(("rhel", "9.4"), json!({}), &[]);
    assert_eq!(added(&plan, MAIN), rhel);
    let volumes = volumes(daemon(&plan, NAME));
    for one in [
        "subscription-config-0 /etc/pki/entitlement Directory",
        "subscription-config-1 /etc/yum.repos.d/redhat.repo File",
        "subscription-config-2 /etc/rhsm Directory",
    ] {
        assert!(volumes.contains(&one.to_owned()), "{one}");
    }
    let own = on(
        ("rhel", "9.4"),
        json!({"driver": {"repoConfig": {"configMapName": "r"}}}),
        &[("ConfigMap", "r", json!({"a": ""}))],
    );
    assert_eq!(added(&own, MAIN), ["r /etc/yum.repos.d/a ro sub=a"]);
    let mut crio = node("n1", ("rhel", "9.4"), "k1");
    crio["status"]["nodeInfo"]["containerRuntimeVersion"] = "cri-o://1.32".into();
    assert_eq!(added(&fresh(&policy(json!({})), &cluster(&[crio])), MAIN), [""; 0]);
    for os in ["sles", "sl-micro"] {
        let suse = on((os, "15.6"), json!({}), &[]);
        assert_eq!(
            added(&suse, MAIN),
            ["subscription-config-0 /etc/SUSEConnect ro", "subscription-config-1 /etc/zypp/credentials.d ro"]
        );
    }
}

#[test]
fn precompiled_drivers_of_suse_see_the_modules_of_the_host() {
    let more = || json!({"driver": {"usePrecompiled": true, "image": "r.io/driver:550"}});
    for (os, expected) in [("sles", true), ("sl-micro", true), ("ubuntu", false), ("rhel", false)] {
        let plan = on((os, "15"), more(), &[]);
        let name = format!("nvidia-driver-daemonset-k1-{os}15");
        let daemon = daemon(&plan, &name);
        let mount = mounts(container(daemon, MAIN).unwrap()).contains(&"lib-modules /run/host/lib/modules ro".into());
        assert_eq!(
            (mount, volumes(daemon).contains(&"lib-modules /lib/modules Directory".into())),
            (expected, expected),
            "{os}"
        );
        assert!(!volumes(daemon).iter().any(|one| one.starts_with("subscription")), "{os}");
    }
}

#[test]
fn drivers_are_replaced_when_their_files_change_and_nobody_has_to_leave_for_it() {
    let more = json!({"driver": {"repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"},
        "kernelModuleConfig": {"name": "modules"}}});
    let files = |[repos, certs, modules]: [&str; 3]| {
        [
            ("ConfigMap", "repos", json!({"a.list": repos})),
            ("ConfigMap", "certs", json!({"ca.pem": certs})),
            ("ConfigMap", "modules", json!({"nvidia.conf": modules})),
        ]
    };
    let template = |contents: [&str; 3]| {
        let plan = on(("ubuntu", "24.04"), more.clone(), &files(contents));
        daemon(&plan, NAME)["spec"]["template"].clone()
    };
    let before = template(["1", "1", "1"]);
    assert_eq!(before, template(["1", "1", "1"]));
    for changed in [["2", "1", "1"], ["1", "2", "1"], ["1", "1", "2"]] {
        let after = template(changed);
        assert_ne!(before["metadata"]["annotations"], after["metadata"]["annotations"], "{changed:?}");
        // What is loaded stays what it is by name: pods are replaced without a drain.
        assert_eq!(before["spec"], after["spec"], "{changed:?}");
    }
    let without = on_ubuntu(json!({}));
    assert!(daemon(&without, NAME).pointer("/spec/template/metadata/annotations/nvidia.com~1config-hash").is_none());
}
