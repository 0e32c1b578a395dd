//! A kubelet in the guest, joined to a control plane on this machine: pods get GPUs and interfaces.

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_node::DEVICE_PLUGIN;
use serde_json::{Value, json};

use crate::guest::here;
use crate::here::{Here, Running, gpus, install_libraries, sh};

/// The only image of the node.
const IMAGE: &str = "capstan.local/busybox:1";

/// A pod that runs a line of shell, whose output is its message of termination.
fn pod(name: &str, line: &str, limits: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "shell", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", format!("({line}) >/dev/termination-log 2>&1")],
                "resources": {"limits": limits},
            }],
        },
    })
}

/// Makes a pod, waits until it has ended well, and returns what it said.
fn run(here: &Here, pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
    here.kubectl(&["create", "-f", "-"], &pod.to_string()).expect("a pod");
    let ended = here.wait(&format!("pod/{name}"), "{.status.phase}=Succeeded");
    let status = here.kubectl(&["get", "pod", &name, "-o", "json"], "").expect("the pod");
    here.kubectl(&["delete", "pod", &name, "--wait=false"], "").expect("deleted");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    ended.unwrap_or_else(|error| panic!("{error}: {status:#}"));
    let ended = &status["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 0, "{status:#}");
    ended["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pod_runs_with_an_address_and_an_interface_of_the_host() {
    let here = here!(Node);
    sh("modprobe dummy && ip link add extra0 type dummy");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {"plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"config": {"type": "string"}}}}}}}],
        },
    });
    here.kubectl(&["apply", "-f", "-"], &definition.to_string()).expect("a kind");
    let crd = "crd/network-attachment-definitions.k8s.cni.cncf.io";
    here.kubectl(&["wait", "--for=condition=Established", crd], "").expect("the kind is served");
    let config = json!({"cniVersion": "0.4.0", "name": "extra", "type": "host-device", "device": "extra0"}).to_string();
    let network = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "extra"},
        "spec": {"config": config},
    });
    here.kubectl(&["apply", "-f", "-"], &network.to_string()).expect("a network");
    let wants = json!({"k8s.v1.cni.cncf.io/networks": "extra"});
    let said = run(&here, &pod("interfaces", "busybox ip address", &json!({}), &wants));
    assert!(said.contains("eth0") && said.contains("10.85.0."), "the bridge:\n{said}");
    assert!(said.contains("net1"), "the host's interface:\n{said}");
    sh("ip link delete extra0 || true; rmmod dummy");
}

#[test]
fn a_pod_gets_its_gpu_through_the_kubelet_and_containerd() {
    let here = here!(Node);
    let recording = gpus(8);
    install_libraries("/".as_ref(), &recording);
    sh("cd /usr/lib/capstan/modules && insmod nvidia.ko && insmod nvidia-uvm.ko");
    here.run(async {
        let args = ["--device-list-strategy=cdi-cri", "--cdi-disable-hooks=all"];
        let plugin = Running::start_at(DEVICE_PLUGIN.name, &args, recording.clone(), Roots::local());
        let offered = r"{.status.allocatable.nvidia\.com/gpu}=8";
        here.wait("node/capstan", offered).expect("the node offers eight GPUs");
        let gpu = json!({"nvidia.com/gpu": "1"});
        let said = run(&here, &pod("gpu", "busybox ls /dev", &gpu, &json!({})));
        let nodes = said
            .split_whitespace()
            .filter(|name| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok()));
        assert_eq!(nodes.count(), 1, "one GPU:\n{said}");
        assert!(said.contains("nvidiactl"), "{said}");
        // The kubelet forgets its plugins, and ours comes back by itself.
        sh("pkill -x kubelet; while pgrep -x kubelet >/dev/null; do sleep 0.1; done; /run/bin/start-kubelet");
        here.until_said("registering again").await;
        let said = run(&here, &pod("gpu-again", "busybox ls /dev", &gpu, &json!({})));
        assert!(said.contains("nvidiactl"), "{said}");
        plugin.stop().await;
    });
    sh("rmmod nvidia_uvm && rmmod nvidia");
}
