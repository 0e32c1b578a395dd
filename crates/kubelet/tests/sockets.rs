//! Calls over real sockets, and their wire format.

use capstan_kubelet::device_plugin::{self, Device, NumaNode, RegisterRequest, TopologyInfo};
use capstan_kubelet::fake::Kubelet;
use capstan_kubelet::pod_resources::{self, ContainerDevices, ContainerResources, PodResources};
use prost::Message;

#[tokio::test]
async fn the_kubelet_says_which_pod_holds_which_device() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubelet = Kubelet::start(dir.path()).expect("a kubelet");
    let devices = ContainerDevices { resource_name: "nvidia.com/gpu".into(), device_ids: vec!["GPU-1".into()] };
    let container = ContainerResources { name: "main".into(), devices: vec![devices], dynamic_resources: Vec::new() };
    let pod = PodResources { name: "train".into(), namespace: "ml".into(), containers: vec![container] };
    kubelet.set_pods(vec![pod.clone()]);
    assert_eq!(pod_resources::list(&kubelet.socket()).await.expect("a list"), [pod]);
    kubelet.stop().await;
    let error = pod_resources::list(&dir.path().join("kubelet.sock")).await.expect_err("gone").to_string();
    assert!(error.contains("kubelet.sock"), "{error}");
}

#[tokio::test]
async fn another_version_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubelet = Kubelet::start(dir.path()).expect("a kubelet");
    let request = RegisterRequest { version: "v9".into(), ..RegisterRequest::default() };
    let error = device_plugin::register(&kubelet.socket(), request).await.expect_err("refused").to_string();
    assert!(error.contains("v9"), "{error}");
}

#[test]
fn a_device_is_written_with_the_numbers_of_the_protocol() {
    let topology = Some(TopologyInfo { nodes: vec![NumaNode { id: 1 }] });
    let device = Device { id: "GPU-1".into(), health: "Healthy".into(), topology };
    let bytes = device.encode_to_vec();
    assert_eq!(bytes, b"\x0a\x05GPU-1\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01");
    assert_eq!(Device::decode(&bytes[..]).expect("read"), device);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(0u8.., 0..64)) {
        let _ = pod_resources::ListPodResourcesResponse::decode(&bytes[..]);
        let _ = device_plugin::AllocateRequest::decode(&bytes[..]);
    }
}
