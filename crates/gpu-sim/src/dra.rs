//! DRA driver and its validator on a virtual node.

use capstan_node::validation;
use capstan_sim::is_already_exists;
use capstan_sim::node::{ContainerContext, ExitCode};
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};

use crate::imitation::file;
use crate::{HARDWARE, Pace};

const DRIVER: &str = "gpu.nvidia.com";

/// Publishes the node's GPUs while it runs.
pub(crate) async fn plugin(cx: ContainerContext) -> ExitCode {
    cx.set_ready(false);
    cx.node.host().wait_for(&file(validation::DRIVER)).await;
    let Some(slice) = slice(&cx) else { return ExitCode::FAILURE };
    match cx.writer().create(&slice).await {
        Err(error) if !is_already_exists(&error) => {
            cx.log.line(format!("cannot offer GPUs: {error}"));
            return ExitCode::FAILURE;
        }
        _ => cx.set_ready(true),
    }
    cx.stopped().await;
    match cx.node.withdraw_slices(DRIVER).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Checks the claimed GPU.
pub(crate) async fn validation(_: ContainerContext, pace: Pace) {
    tokio::time::sleep(pace.check).await;
}

fn slice(cx: &ContainerContext) -> Option<ResourceSlice> {
    let node = cx.node.object()?;
    let name = node.metadata.name.clone()?;
    let count = node.metadata.labels.as_ref().and_then(|labels| labels.get(HARDWARE)?.parse::<u16>().ok()).unwrap_or(1);
    let device = |index: u16| {
        json!({
            "name": format!("gpu-{index}"),
            "attributes": {
                "type": {"string": "gpu"}, "productName": {"string": "NVIDIA H200"},
                "uuid": {"string": format!("GPU-{name}-{index}")},
            },
        })
    };
    let devices: Vec<Value> = (0..count).map(device).collect();
    let slice = json!({
        "metadata": {
            "name": format!("{name}-{DRIVER}"),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}],
        },
        "spec": {
            "driver": DRIVER, "nodeName": name, "devices": devices,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        },
    });
    serde_json::from_value(slice).ok()
}
