//! What a policy changes of its driver.

use super::*;

const NAME: &str = "nvidia-driver-daemonset";
const MAIN: &str = "nvidia-driver-ctr";

fn driver(more: Value) -> Value {
    daemon(&on_ubuntu(json!({"driver": more})), NAME).clone()
}

/// Why the driver of such a policy cannot be decided.
fn fault(more: Value, cluster: &Cluster) -> String {
    condition(&fresh(&policy(more), cluster), "Error").unwrap().2.to_owned()
}

#[test]
fn images_are_those_for_the_operating_system() {
    let image = |more: Value| container(&driver(more), MAIN).unwrap()["image"].as_str().unwrap().to_owned();
    let cases = [
        (json!({}), "r.io/driver_image:v1-ubuntu24.04"),
        (json!({"repository": "r.io/n", "image": "driver", "version": "580"}), "r.io/n/driver:580-ubuntu24.04"),
        (json!({"repository": "r.io/n", "image": "driver", "version": "sha256:ab"}), "r.io/n/driver@sha256:ab"),
        (json!({"image": "r.io/n/driver:580"}), "r.io/n/driver:580-ubuntu24.04"),
    ];
    for (more, expected) in cases {
        assert_eq!(image(more), expected);
    }
}

#[test]
fn rdma_loads_peermem_and_may_use_the_sources_of_the_host() {
    let plain = driver(json!({"rdma": {"enabled": true}}));
    for name in ["k8s-driver-manager", MAIN] {
        assert_eq!(env(container(&plain, name).unwrap())["GPU_DIRECT_RDMA_ENABLED"], "true");
    }
    let peermem = container(&plain, "nvidia-peermem-ctr").unwrap();
    assert_eq!(peermem["image"], container(&plain, MAIN).unwrap()["image"]);
    let host = driver(json!({"rdma": {"enabled": true, "useHostMofed": true}}));
    for name in ["k8s-driver-manager", MAIN, "nvidia-peermem-ctr"] {
        assert_eq!(env(container(&host, name).unwrap())["USE_HOST_MOFED"], "true", "{name}");
    }
    assert_eq!(volume(&host, "mlnx-ofed-usr-src").unwrap()["hostPath"]["path"], "/usr/src");
    let off = driver(json!({"rdma": {"useHostMofed": true}}));
    assert!(
        container(&off, "nvidia-peermem-ctr").is_none()
            && !env(container(&off, MAIN).unwrap()).contains_key("USE_HOST_MOFED")
    );
}

#[test]
fn resources_are_those_of_every_container() {
    let limits = json!({"limits": {"cpu": "2"}});
    let more = json!({"driver": {"resources": limits, "rdma": {"enabled": true}},
        "gds": {"enabled": true}, "gdrcopy": {"enabled": true}});
    let plan = fresh(&policy(more), &openshift(&["9.6.1"]));
    let daemon = daemon(&plan, "nvidia-driver-daemonset-9.6.1");
    for name in containers(daemon) {
        assert_eq!(container(daemon, name).unwrap()["resources"], limits, "{name}");
    }
}

#[test]
fn the_flavour_of_modules_is_a_variable() {
    let env_of = |more: Value| {
        let driver = driver(more);
        let env = env(container(&driver, MAIN).unwrap()).into_iter();
        env.filter(|(name, _)| name.contains("KERNEL_MODULE"))
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(env_of(json!({})), [""; 0]);
    assert_eq!(env_of(json!({"kernelModuleType": "auto"})), ["KERNEL_MODULE_TYPE=auto"]);
    assert_eq!(
        env_of(json!({"kernelModuleType": "open"})),
        ["KERNEL_MODULE_TYPE=open", "OPEN_KERNEL_MODULES_ENABLED=true"]
    );
}

#[test]
fn numbers_of_probes_change_and_a_probe_that_lacks_asks_what_the_startup_probe_asks() {
    let driver = driver(json!({
        "startupProbe": {"initialDelaySeconds": 0, "failureThreshold": 7}, "livenessProbe": {"periodSeconds": 30},
        "readinessProbe": {},
    }));
    let main = container(&driver, MAIN).unwrap();
    assert_eq!(
        (&main["startupProbe"]["failureThreshold"], &main["startupProbe"]["initialDelaySeconds"]),
        (&json!(7), &json!(60))
    );
    let exec = &main["startupProbe"]["exec"];
    assert_eq!(main["livenessProbe"], json!({"exec": exec, "periodSeconds": 30}));
    assert_eq!(main["readinessProbe"], json!({"exec": exec}));
}

#[test]
fn variables_of_the_user_take_the_place_of_ours() {
    let driver = driver(json!({"env": [{"name": "NODE_IP", "value": "10.0.0.1"}, {"name": "B"}]}));
    let variables = variables(container(&driver, MAIN).unwrap());
    assert_eq!(variables[..3], ["NODE_NAME<-spec.nodeName", "NODE_IP=10.0.0.1", "B="]);
}

#[test]
fn sidecars_have_images_of_their_own_and_the_driver_is_told() {
    let plan = on_ubuntu(json!({
        "gds": {"enabled": true, "imagePullPolicy": "Always", "imagePullSecrets": ["a"], "env": [{"name": "X", "value": "1"}]},
        "gdrcopy": {"enabled": true, "image": "r.io/gdrdrv:v2"},
    }));
    let daemon = daemon(&plan, NAME);
    let storage = container(daemon, "nvidia-fs-ctr").unwrap();
    assert_eq!(
        (&storage["image"], &storage["imagePullPolicy"]),
        (&json!("r.io/gds_image:v1-ubuntu24.04"), &json!("Always"))
    );
    assert_eq!(variables(storage), ["X=1"]);
    assert_eq!(pod(daemon)["imagePullSecrets"], json!([{"name": "a"}]));
    let gdrcopy = container(daemon, "nvidia-gdrcopy-ctr").unwrap();
    assert_eq!((&gdrcopy["image"], &gdrcopy["imagePullPolicy"]), (&json!("r.io/gdrdrv:v2-ubuntu24.04"), &Value::Null));
    let env = env(container(daemon, MAIN).unwrap());
    assert_eq!((env["GDS_ENABLED"], env["GDRCOPY_ENABLED"]), ("true", "true"));
}

#[test]
fn precompiled_drivers_are_one_per_kernel_with_the_image_of_its_system() {
    let nodes = [
        node("a", ("ubuntu", "22.04"), "5.15.0-70-generic"),
        node("b", ("rhel", "9.4"), "5.14.0-427.37.1.el9_4.x86_64"),
    ];
    let more = json!({"driver": {"usePrecompiled": true, "repository": "r.io", "image": "driver", "version": "550",
        "repoConfig": {"configMapName": "unused"}}});
    let plan = fresh(&policy(more), &cluster(&nodes));
    let table = [
        (
            "nvidia-driver-daemonset-5.15.0-70-generic-ubuntu22.04",
            "5.15.0-70-generic",
            "r.io/driver:550-5.15.0-70-generic-ubuntu22.04",
        ),
        (
            "nvidia-driver-daemonset-5.14.0-427.37.1.el9.4-rhel9.4",
            "5.14.0-427.37.1.el9_4.x86_64",
            "r.io/driver:550-5.14.0-427.37.1.el9_4.x86_64-rhel9",
        ),
    ];
    for (name, kernel, image) in table {
        let daemon = daemon(&plan, name);
        assert_eq!(daemon["spec"]["selector"]["matchLabels"]["app"], name);
        assert_eq!(daemon["metadata"]["labels"]["nvidia.com/precompiled"], "true");
        assert_eq!(daemon["spec"]["template"]["metadata"]["labels"]["nvidia.com/precompiled"], "true");
        assert_eq!(pod(daemon)["nodeSelector"]["feature.node.kubernetes.io/kernel-version.full"], kernel);
        assert_eq!(container(daemon, MAIN).unwrap()["image"], image);
    }
    assert!(find(&plan, "DaemonSet", NAME).is_none());
}

#[test]
fn a_kernel_with_a_long_name_still_gets_a_label_that_fits() {
    let nodes = [node("a", ("ubuntu", "22.04"), "5.15.0-1053-nvidia-lowlatency-of-somebody")];
    let more = json!({"driver": {"usePrecompiled": true, "image": "r.io/driver:550"}});
    let plan = fresh(&policy(more), &cluster(&nodes));
    let daemon = daemon(&plan, "nvidia-driver-daemonset-5.15.0-1053-nvidia-lowlatency-of-somebody-ubuntu22.04");
    let app = daemon["spec"]["selector"]["matchLabels"]["app"].as_str().unwrap();
    assert!(app.len() <= 63 && daemon["spec"]["template"]["metadata"]["labels"]["app"] == app, "{app}");
}

#[test]
fn precompiled_drivers_need_a_kernel_a_whole_image_and_no_further_modules() {
    let precompiled = json!({"usePrecompiled": true, "image": "r.io/driver:550"});
    let two = cluster(&[node("a", ("ubuntu", "22.04"), "k"), node("b", ("rhel", "9.4"), "k")]);
    assert!(
        fault(json!({"driver": precompiled}), &two)
            .contains("different OS versions found for the same kernel version k")
    );
    let mut bare = node("a", ("ubuntu", "22.04"), "k");
    bare["metadata"]["labels"].as_object_mut().unwrap().remove("feature.node.kubernetes.io/kernel-version.full");
    assert!(fault(json!({"driver": precompiled}), &cluster(&[bare])).contains("node a has no label"));
    assert!(fault(json!({"driver": {"usePrecompiled": true}}), &ubuntu()).contains("spec.driver.usePrecompiled needs"));
    for section in ["gds", "gdrcopy"] {
        let fault = fault(json!({"driver": precompiled, section: {"enabled": true}}), &ubuntu());
        assert!(fault.contains("is not supported along with pre-compiled NVIDIA drivers"), "{fault}");
    }
}

#[test]
fn nodes_of_two_systems_get_a_driver_each() {
    let nodes =
        [node("a", ("ubuntu", "24.04"), "k1"), node("b", ("ubuntu", "24.04"), "k1"), node("c", ("rhel", "9.4"), "k2")];
    let plan = fresh(&policy(json!({})), &cluster(&nodes));
    let (first, second) = (daemon(&plan, NAME), daemon(&plan, "nvidia-driver-daemonset-rhel9"));
    assert_eq!(container(first, MAIN).unwrap()["image"], "r.io/driver_image:v1-ubuntu24.04");
    assert_eq!(container(second, MAIN).unwrap()["image"], "r.io/driver_image:v1-rhel9");
    let label = "feature.node.kubernetes.io/system-os_release.ID";
    assert_eq!(
        (&pod(first)["nodeSelector"][label], &pod(second)["nodeSelector"][label]),
        (&json!("ubuntu"), &json!("rhel"))
    );
    assert_ne!(first["spec"]["selector"], second["spec"]["selector"]);
}

#[test]
fn a_node_without_its_system_is_named() {
    for (missing, what) in [("ID", "OS name"), ("VERSION_ID", "OS version")] {
        let mut bare = node("a", ("ubuntu", "22.04"), "k");
        let label = format!("feature.node.kubernetes.io/system-os_release.{missing}");
        bare["metadata"]["labels"].as_object_mut().unwrap().remove(&label);
        let fault = fault(json!({}), &cluster(&[bare]));
        assert!(
            fault.contains(&format!(
                "failed to retrieve GPU node OS info: unable to retrieve {what} from label {label}"
            )),
            "{fault}"
        );
    }
}

#[test]
fn switching_the_driver_off_takes_every_flavour_of_it_away() {
    let nodes = [node("a", ("ubuntu", "22.04"), "k1"), node("b", ("ubuntu", "22.04"), "k2")];
    let cluster = cluster(&nodes);
    let on = fresh(&policy(json!({"driver": {"usePrecompiled": true, "image": "r.io/driver:550"}})), &cluster);
    let live = applied(&on, 1, 1);
    let off = super::plan(&policy(json!({"driver": {"enabled": false}})), &live, &cluster);
    let gone: Vec<String> =
        diff("u1", objects(&off), &live.live).delete.into_iter().map(|one| one.reference.to_string()).collect();
    for name in [
        "DaemonSet gpu-operator/nvidia-driver-daemonset-k1-ubuntu22.04",
        "DaemonSet gpu-operator/nvidia-driver-daemonset-k2-ubuntu22.04",
        "ServiceAccount gpu-operator/nvidia-driver",
        "ConfigMap gpu-operator/nvidia-driver-startup-probe",
    ] {
        assert!(gone.contains(&name.to_owned()), "{name} in {gone:?}");
    }
}
