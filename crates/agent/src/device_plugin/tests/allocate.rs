//! What a container gets.

use capstan_kubelet::device_plugin::ContainerAllocateResponse;

use super::*;
use crate::device_plugin::allocate::allocate;

fn answer(node: &Node, ids: &[&str]) -> Result<ContainerAllocateResponse, String> {
    let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
    allocate(node, &node.resources[0], &ids, |path| !path.ends_with("nvidia-modeset"), || "id".into())
}

fn got(text: &str, ids: &[&str]) -> ContainerAllocateResponse {
    answer(&node_of(&gpus(2), text), ids).expect("an answer")
}

fn mounts(answer: &ContainerAllocateResponse) -> Vec<(&str, &str)> {
    answer.mounts.iter().map(|mount| (mount.host_path.as_str(), mount.container_path.as_str())).collect()
}

fn strategy(name: &str) -> String {
    format!("flags: {{plugin: {{deviceListStrategy: '{name}'}}}}")
}

#[test]
fn the_variable_names_each_device_once() {
    let (a, b) = (uuid(0), uuid(1));
    let visible = |ids: &[&str]| got("", ids).envs["NVIDIA_VISIBLE_DEVICES"].clone();
    assert_eq!(visible(&[&a]), a);
    assert_eq!(visible(&[&b, &a]), format!("{b},{a}"));
    assert_eq!(visible(&[&a, &a]), a);
}

#[test]
fn devices_can_be_named_by_place() {
    let index = "flags: {plugin: {deviceIDStrategy: index}}";
    assert_eq!(got(index, &[&uuid(1), &uuid(0)]).envs["NVIDIA_VISIBLE_DEVICES"], "1,0");
    let cut = gpus(1).with_mig(0, &["3g.71gb", "3g.71gb"]);
    let node = node_of(&cut, "flags: {migStrategy: single, plugin: {deviceIDStrategy: index}}");
    let id = cut.inventory.gpus[0].mig_devices[1].uuid.clone();
    assert_eq!(answer(&node, &[&id]).expect("an answer").envs["NVIDIA_VISIBLE_DEVICES"], "0:1");
}

#[test]
fn replicas_stand_for_their_device() {
    let shared = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}";
    let (a, b) = (uuid(0), uuid(1));
    let ids = [format!("{a}::0"), format!("{a}::3"), format!("{b}::1")];
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(got(shared, &ids).envs["NVIDIA_VISIBLE_DEVICES"], format!("{a},{b}"));
}

#[test]
fn requests_are_checked() {
    let a = uuid(0);
    let (one, two) = (format!("{a}::0"), format!("{a}::1"));
    let block = |kind: &str, fail: &str| {
        format!("flags: {{mpsRoot: /run/mps}}\nsharing: {{{kind}: {{{fail} resources: [{{name: gpu, replicas: 2}}]}}}}")
    };
    let fail = "failRequestsGreaterThanOne: true,";
    let allow = "failRequestsGreaterThanOne: false,";
    let cases: [(String, &[&str], &str); 11] = [
        (String::new(), &[&a], ""),
        (String::new(), &["GPU-none"], "GPU-none"),
        (String::new(), &[&one], &one),
        (block("timeSlicing", ""), &[&one], ""),
        (block("timeSlicing", ""), &[&one, &two], ""),
        (block("timeSlicing", ""), &[&a], &a),
        (block("timeSlicing", fail), &[&one, &two], "maximum request size for shared resources is 1; found 2"),
        (block("mps", ""), &[&one], ""),
        (block("mps", allow), &[&one, &two], ""),
        (block("mps", ""), &[&one, &two], "maximum request size for shared resources is 1; found 2"),
        (block("mps", fail), &[&one, &two], "found 2"),
    ];
    for (text, ids, said) in cases {
        match answer(&node_of(&gpus(1), &text), ids) {
            Ok(_) => assert_eq!(said, "", "{text} {ids:?}"),
            Err(error) => assert!(!said.is_empty() && error.contains(said), "{text} {ids:?}: {error}"),
        }
    }
}

#[test]
fn mounts_replace_the_variable() {
    let a = uuid(0);
    let answer = got(&strategy("envvar,volume-mounts"), &[&a]);
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], "/var/run/nvidia-container-devices");
    assert_eq!(mounts(&answer), [("/dev/null", format!("/var/run/nvidia-container-devices/{a}").as_str())]);
}

#[test]
fn channels_are_told_in_every_way() {
    let mut node = node_of(&gpus(1), &strategy("envvar,volume-mounts,cdi-cri"));
    node.channels = vec![0];
    node.settings.pass_device_specs = true;
    let answer = answer(&node, &[&uuid(0)]).expect("an answer");
    assert_eq!(answer.envs["NVIDIA_IMEX_CHANNELS"], "0");
    assert!(mounts(&answer).contains(&("/dev/null", "/var/run/nvidia-container-devices/imex/0")));
    assert_eq!(answer.cdi_devices[1].name, "k8s.device-plugin.nvidia.com/imex-channel=0");
    let last = answer.devices.last().expect("nodes");
    assert_eq!(last.host_path, "/host/dev/nvidia-caps-imex-channels/channel0");
}

#[test]
fn cdi_names_go_into_annotations_or_fields() {
    let a = uuid(0);
    let name = format!("k8s.device-plugin.nvidia.com/gpu={a}");
    let answer = got(&strategy("cdi-annotations"), &[&a]);
    assert_eq!(answer.annotations["cdi.k8s.io/nvidia-device-plugin_id"], name);
    assert!(answer.envs.is_empty() && answer.cdi_devices.is_empty());
    let both = got(&strategy("cdi-annotations"), &[&a, &uuid(1)]);
    assert_eq!(both.annotations["cdi.k8s.io/nvidia-device-plugin_id"].split(',').count(), 2);
    let prefixed = "flags: {plugin: {deviceListStrategy: cdi-annotations, cdiAnnotationPrefix: own/}}";
    assert!(got(prefixed, &[&a]).annotations.contains_key("own/nvidia-device-plugin_id"));
    let field = got(&strategy("cdi-cri"), &[&a]);
    assert_eq!((field.cdi_devices[0].name.as_str(), field.annotations.len()), (name.as_str(), 0));
}

#[test]
fn a_request_for_nothing_gets_nothing() {
    assert_eq!(got(&strategy("cdi-annotations"), &[]), ContainerAllocateResponse::default());
}

#[test]
fn what_else_was_asked_for_follows_the_devices() {
    let names = |classes: &[&str], ids: &[&str]| {
        let mut node = node_of(&gpus(1), &strategy("cdi-annotations"));
        node.classes = classes.iter().map(|&class| class.into()).collect();
        (node.settings.gds, node.settings.mofed) = (classes.contains(&"gds"), classes.contains(&"mofed"));
        let answer = answer(&node, ids).expect("an answer");
        (answer.annotations["cdi.k8s.io/nvidia-device-plugin_id"].clone(), answer.envs)
    };
    let vendor = "k8s.device-plugin.nvidia.com";
    let (list, envs) = names(&["mofed"], &[]);
    assert_eq!((list, envs["NVIDIA_MOFED"].as_str()), (format!("{vendor}/mofed=all"), "enabled"));
    let (list, envs) = names(&["gds"], &[]);
    assert_eq!((list, envs["NVIDIA_GDS"].as_str()), (format!("{vendor}/gds=all"), "enabled"));
    let (list, _) = names(&["gds", "mofed"], &[&uuid(0)]);
    assert_eq!(list, format!("{vendor}/gpu={},{vendor}/gds=all,{vendor}/mofed=all", uuid(0)));
}

#[test]
fn device_nodes_are_passed_if_they_are_there() {
    let answer = got("flags: {plugin: {passDeviceSpecs: true}}", &[&uuid(1)]);
    let specs: Vec<(&str, &str)> =
        answer.devices.iter().map(|spec| (spec.container_path.as_str(), spec.host_path.as_str())).collect();
    assert_eq!(
        specs,
        [
            ("/dev/nvidiactl", "/host/dev/nvidiactl"),
            ("/dev/nvidia-uvm", "/host/dev/nvidia-uvm"),
            ("/dev/nvidia-uvm-tools", "/host/dev/nvidia-uvm-tools"),
            ("/dev/nvidia1", "/host/dev/nvidia1"),
        ]
    );
    assert!(answer.devices.iter().all(|spec| spec.permissions == "rw"));
}

#[test]
fn a_client_of_mps_gets_the_way_to_its_daemon() {
    let text = "flags: {mpsRoot: /run/nvidia/mps}\nsharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}";
    let answer = got(text, &[&format!("{}::1", uuid(0))]);
    assert_eq!(answer.envs["CUDA_MPS_PIPE_DIRECTORY"], "/mps/nvidia.com/gpu.shared/pipe");
    assert_eq!(
        mounts(&answer),
        [
            ("/run/nvidia/mps/nvidia.com/gpu.shared/pipe", "/mps/nvidia.com/gpu.shared/pipe"),
            ("/run/nvidia/mps/shm", "/dev/shm"),
        ]
    );
}
