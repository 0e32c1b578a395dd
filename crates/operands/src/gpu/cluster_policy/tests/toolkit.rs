//! The container toolkit and the runtime that it sets up.

use super::*;

const NAME: &str = "nvidia-container-toolkit-daemonset";
const MAIN: &str = "nvidia-container-toolkit-ctr";

fn on(runtime: &str, more: Value) -> Value {
    let mut node = node("n1", ("ubuntu", "24.04"), "k");
    node["status"]["nodeInfo"]["containerRuntimeVersion"] = runtime.into();
    daemon(&fresh(&policy(more), &cluster(&[node])), NAME).clone()
}

/// Variables and mounts that a runtime adds to the template.
fn runtime(daemon: &Value) -> (Vec<String>, Vec<String>, Vec<String>) {
    let main = container(daemon, MAIN).unwrap();
    let variables = variables(main);
    let start = variables.iter().position(|one| one.starts_with("RUNTIME=")).unwrap();
    let mounts = mounts(main).into_iter().filter(|one| one.contains(" /runtime/")).collect::<Vec<_>>();
    let names: Vec<String> = mounts.iter().map(|one| format!("{} ", one.split(' ').next().unwrap())).collect();
    let volumes = volumes(daemon).into_iter().filter(|one| names.iter().any(|name| one.starts_with(name))).collect();
    (variables[start..].to_vec(), mounts, volumes)
}

#[test]
fn containerd_is_set_up_through_its_files_and_socket() {
    let (variables, mounts, volumes) = runtime(&on("containerd://2.1", json!({})));
    assert_eq!(
        variables,
        [
            "RUNTIME=containerd",
            "CONTAINERD_RUNTIME_CLASS=nvidia",
            "RUNTIME_CONFIG=/runtime/config-dir/config.toml",
            "CONTAINERD_CONFIG=/runtime/config-dir/config.toml",
            "RUNTIME_DROP_IN_CONFIG=/runtime/config-dir.d/99-nvidia.toml",
            "RUNTIME_DROP_IN_CONFIG_HOST_PATH=/etc/containerd/conf.d/99-nvidia.toml",
            "RUNTIME_SOCKET=/runtime/sock-dir/containerd.sock",
            "CONTAINERD_SOCKET=/runtime/sock-dir/containerd.sock",
        ]
    );
    assert_eq!(
        mounts,
        [
            "containerd-config /runtime/config-dir/",
            "containerd-drop-in-config /runtime/config-dir.d/",
            "containerd-socket /runtime/sock-dir/"
        ]
    );
    assert_eq!(
        volumes,
        [
            "containerd-config /etc/containerd DoC",
            "containerd-drop-in-config /etc/containerd/conf.d DoC",
            "containerd-socket /run/containerd"
        ]
    );
}

#[test]
fn crio_has_no_socket_and_a_mode() {
    let daemon = on("cri-o://1.32", json!({}));
    let (variables, mounts, volumes) = runtime(&daemon);
    assert_eq!(
        variables,
        [
            "RUNTIME=crio",
            "RUNTIME_CONFIG=/runtime/config-dir/config.toml",
            "CRIO_CONFIG=/runtime/config-dir/config.toml",
            "RUNTIME_DROP_IN_CONFIG=/runtime/config-dir.d/99-nvidia.conf",
            "RUNTIME_DROP_IN_CONFIG_HOST_PATH=/etc/crio/crio.conf.d/99-nvidia.conf",
        ]
    );
    assert_eq!(mounts, ["crio-config /runtime/config-dir/", "crio-drop-in-config /runtime/config-dir.d/"]);
    assert_eq!(volumes, ["crio-config /etc/crio DoC", "crio-drop-in-config /etc/crio/crio.conf.d DoC"]);
    assert_eq!(env(container(&daemon, MAIN).unwrap())["CRIO_CONFIG_MODE"], "config");
    assert_eq!(volume(&daemon, "crio-hooks").unwrap()["hostPath"]["path"], "/usr/share/containers/oci/hooks.d");
    let off = on("cri-o://1.32", json!({"cdi": {"enabled": false}}));
    assert_eq!(env(container(&off, MAIN).unwrap())["CRIO_CONFIG_MODE"], "hook");
}

#[test]
fn docker_has_no_file_to_drop_in() {
    let (variables, mounts, volumes) = runtime(&on("docker://27", json!({})));
    assert_eq!(
        variables,
        [
            "RUNTIME=docker",
            "RUNTIME_CONFIG=/runtime/config-dir/daemon.json",
            "DOCKER_CONFIG=/runtime/config-dir/daemon.json",
            "RUNTIME_SOCKET=/runtime/sock-dir/docker.sock",
            "DOCKER_SOCKET=/runtime/sock-dir/docker.sock",
        ]
    );
    assert_eq!(mounts, ["docker-config /runtime/config-dir/", "docker-socket /runtime/sock-dir/"]);
    assert_eq!(volumes, ["docker-config /etc/docker DoC", "docker-socket /var/run"]);
}

#[test]
fn paths_of_the_user_are_mounted_instead() {
    let env_of = |list: &[(&str, &str)]| {
        let list: Vec<Value> = list.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        on("containerd://2.1", json!({"toolkit": {"env": list}}))
    };
    let daemon = env_of(&[
        ("CONTAINERD_CONFIG", "/var/lib/k3s/config.toml.tmpl"),
        ("RUNTIME_CONFIG", "/loses"),
        ("CONTAINERD_SOCKET", "/run/k3s/containerd/k3s.sock"),
        ("RUNTIME_DROP_IN_CONFIG", "/etc/k3s/d/x.toml"),
        ("RUNTIME_CONFIG_SOURCE", "file=/etc/a.toml,command"),
    ]);
    let env = env(container(&daemon, MAIN).unwrap());
    assert_eq!(env["CONTAINERD_CONFIG"], "/runtime/config-dir/config.toml.tmpl");
    assert_eq!(env["RUNTIME_CONFIG"], "/runtime/config-dir/config.toml.tmpl");
    assert_eq!(env["CONTAINERD_SOCKET"], "/runtime/sock-dir/k3s.sock");
    assert_eq!(env["RUNTIME_DROP_IN_CONFIG_HOST_PATH"], "/etc/k3s/d/x.toml");
    assert_eq!(env["RUNTIME_CONFIG_SOURCE"], "file=/host/etc/a.toml,command");
    let path = |name: &str| volume(&daemon, name).unwrap()["hostPath"]["path"].clone();
    assert_eq!(
        [path("containerd-config"), path("containerd-socket"), path("containerd-drop-in-config")],
        ["/var/lib/k3s", "/run/k3s/containerd", "/etc/k3s/d"]
    );
    let general = env_of(&[("RUNTIME_CONFIG", "/etc/general/c.toml")]);
    assert_eq!(volume(&general, "containerd-config").unwrap()["hostPath"]["path"], "/etc/general");
}

#[test]
fn the_nri_plugin_needs_its_socket_only() {
    let more = json!({"cdi": {"enabled": true, "nriPluginEnabled": true}});
    let (variables, mounts, volumes) = runtime(&on("containerd://2.1", more));
    assert_eq!(variables, ["RUNTIME=containerd", "NRI_SOCKET=/runtime/nri-sock-dir/nri.sock"]);
    assert_eq!(
        (mounts, volumes),
        (vec!["nri-socket /runtime/nri-sock-dir/".into()], vec!["nri-socket /var/run/nri DoC".into()])
    );
    let own = json!({"cdi": {"nriPluginEnabled": true}, "toolkit": {"env": [{"name": "NRI_SOCKET", "value": "/run/x/n.sock"}]}});
    let daemon = on("containerd://2.1", own);
    assert_eq!(env(container(&daemon, MAIN).unwrap())["NRI_SOCKET"], "/runtime/nri-sock-dir/n.sock");
    assert_eq!(volume(&daemon, "nri-socket").unwrap()["hostPath"]["path"], "/run/x");
}

#[test]
fn cdi_is_said_in_variables() {
    let names = [
        "CDI_ENABLED",
        "NVIDIA_RUNTIME_SET_AS_DEFAULT",
        "NVIDIA_CONTAINER_RUNTIME_MODE",
        "CRIO_CONFIG_MODE",
        "ENABLE_NRI_PLUGIN",
    ];
    let of = |cdi: Value| {
        let daemon = on("containerd://2.1", json!({"cdi": cdi}));
        let main = container(&daemon, MAIN).unwrap().clone();
        variables(&main).into_iter().filter(|one| names.contains(&one.split('=').next().unwrap())).collect::<Vec<_>>()
    };
    let on = [
        "CDI_ENABLED=true",
        "NVIDIA_RUNTIME_SET_AS_DEFAULT=false",
        "NVIDIA_CONTAINER_RUNTIME_MODE=cdi",
        "CRIO_CONFIG_MODE=config",
    ];
    assert_eq!(of(json!({})), on);
    assert_eq!(of(json!({"enabled": false})), [""; 0]);
    assert_eq!(of(json!({"nriPluginEnabled": true})), [&on[..], &["ENABLE_NRI_PLUGIN=true"]].concat());
}

#[test]
fn the_toolkit_may_be_installed_elsewhere() {
    let plan = on_ubuntu(json!({"toolkit": {"installDir": "/opt/nvidia"}}));
    let toolkit = daemon(&plan, NAME);
    assert_eq!(env(container(toolkit, MAIN).unwrap())["ROOT"], "/opt/nvidia");
    assert!(mounts(container(toolkit, MAIN).unwrap()).contains(&"toolkit-install-dir /opt/nvidia".into()));
    assert_eq!(volume(toolkit, "toolkit-install-dir").unwrap()["hostPath"]["path"], "/opt/nvidia");
    let plugin = container(daemon(&plan, "nvidia-device-plugin-daemonset"), "nvidia-device-plugin").unwrap();
    assert_eq!(env(plugin)["NVIDIA_CDI_HOOK_PATH"], "/opt/nvidia/toolkit/nvidia-cdi-hook");
}

#[test]
fn arguments_that_have_no_effect_are_told() {
    let plan = on_ubuntu(json!({"toolkit": {"args": ["--x"]}, "gds": {"enabled": true, "args": ["--y"]}}));
    assert_eq!(words(container(daemon(&plan, NAME), MAIN).unwrap()), ["/bin/sh", "-c", "/bin/entrypoint.sh"]);
    let told = condition(&plan, "IgnoredFields").unwrap().2;
    assert!(told.contains("spec.toolkit.args") && told.contains("spec.gds.args"), "{told}");
}

#[test]
fn nodes_with_different_runtimes_get_a_toolkit_each() {
    let runtime = |version: &str| {
        let mut node = node("n", ("ubuntu", "24.04"), "k");
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = version.into();
        node
    };
    let mixed = cluster(&[runtime("containerd://2.1"), runtime("cri-o://1.32")]);
    let plan = fresh(&policy(json!({})), &mixed);
    let main = daemon(&plan, "nvidia-container-toolkit-daemonset");
    let terms = &pod(main)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let wanted = json!([{"key": "capstan.dev/container-runtime", "operator": "NotIn", "values": ["crio"]}]);
    assert_eq!(terms["nodeSelectorTerms"][0]["matchExpressions"], wanted);
    let other = daemon(&plan, "nvidia-container-toolkit-daemonset-crio");
    assert_eq!(pod(other)["nodeSelector"]["capstan.dev/container-runtime"], "crio");
    assert_eq!(env(container(other, "nvidia-container-toolkit-ctr").unwrap())["RUNTIME"], "crio");
    assert_eq!(other["spec"]["selector"]["matchLabels"]["app"], "nvidia-container-toolkit-daemonset-crio");
    assert!(pod(daemon(&on_ubuntu(json!({})), "nvidia-container-toolkit-daemonset"))["affinity"].is_null());
}
