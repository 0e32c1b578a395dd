//! Imitated operands: their effects on a GPU node without their code. They are cheap enough for thousands of nodes, and
//! replace third-party images.

use capstan_node::{labels, paths, validation};
use capstan_sim::node::{Behaviour, Body, ContainerContext, Directory, ExitCode, Match};
use k8s_openapi::api::core::v1::Node;

use crate::{HARDWARE, Pace, dra};

/// Validation files of operands on the host.
const VALIDATIONS: &str = "run/nvidia/validations";
/// File of the running toolkit on the host.
pub(crate) const TOOLKIT: &str = "run/nvidia/toolkit/toolkit.pid";
/// Socket of the registered device plugin on the host.
pub(crate) const PLUGIN: &str = "var/lib/kubelet/device-plugins/nvidia-gpu.sock";
/// Digest of the loaded driver.
pub(crate) const LOADED: &str = "run/nvidia/driver/loaded";
/// Environment variable with the digest of a pod's driver.
pub(crate) const DIGEST: &str = "DRIVER_CONFIG_DIGEST";
/// A preinstalled driver on the host.
const HOST_DRIVER: &str = "usr/bin/nvidia-smi";

/// Behaviour of operand containers.
pub fn rules(pace: Pace) -> Vec<(Match, Behaviour)> {
    let body = |container: &str, body: Body| {
        (Match::container(container), Behaviour { body: Some(body), ..Behaviour::default() })
    };
    // Readiness as set by the body.
    let probed = |container: &str, body: Body| {
        (Match::container(container), Behaviour { body: Some(body), ready: Some(false), ..Behaviour::default() })
    };
    vec![
        body("k8s-driver-manager", Body::new(driver_manager)),
        probed("nvidia-driver-ctr", Body::new(move |cx| driver(cx, pace))),
        body("driver-validation", Body::new(move |cx| driver_validation(cx, pace))),
        probed("nvidia-container-toolkit-ctr", Body::new(move |cx| toolkit(cx, pace))),
        body("toolkit-validation", Body::new(move |cx| toolkit_validation(cx, pace))),
        body("cuda-validation", Body::new(move |cx| cuda_validation(cx, pace))),
        body("nvidia-device-plugin", Body::new(device_plugin)),
        body("capstan-node-agent", Body::new(node_agent)),
        body("plugin-validation", Body::new(move |cx| plugin_validation(cx, pace))),
        body("nvidia-operator-validator", Body::new(validator)),
        probed("gpus", Body::new(dra::plugin)),
        body("gpu-validation", Body::new(move |cx| dra::validation(cx, pace))),
    ]
}

/// Drivers that fail to load, by node and image: an additional rule.
pub fn failing_drivers(
    pace: Pace,
    bad: impl Fn(&str, &str) -> bool + Clone + Send + Sync + 'static,
) -> (Match, Behaviour) {
    let body = Body::new(move |cx: ContainerContext| {
        let bad = bad.clone();
        async move {
            if bad(cx.node.name(), &cx.image) {
                cx.log.line("the kernel module does not load");
                return ExitCode::FAILURE;
            }
            driver(cx, pace).await;
            ExitCode::SUCCESS
        }
    });
    let behaviour = Behaviour { body: Some(body), ready: Some(false), ..Behaviour::default() };
    (Match::container("nvidia-driver-ctr"), behaviour)
}

/// Clears what does not survive a reboot: the loaded driver and its validation files.
pub fn reboot(host: &Directory) {
    for path in [LOADED, TOOLKIT, PLUGIN, VALIDATIONS] {
        host.remove(path);
    }
}

pub(crate) fn file(name: &str) -> String {
    format!("{VALIDATIONS}/{name}")
}

/// Writer of a file with one writer at a time: a terminating pod may overlap with its successor.
pub(crate) fn owner(cx: &ContainerContext) -> String {
    cx.pod.metadata.uid.clone().unwrap_or_default()
}

fn owns(cx: &ContainerContext, path: &str) -> bool {
    cx.node.host().read(path).is_some_and(|content| content == owner(cx))
}

/// Unloads an outdated driver after its clients were paused.
pub(crate) async fn driver_manager(cx: ContainerContext) -> ExitCode {
    let host = cx.node.host().clone();
    let Some(loaded) = host.read(LOADED) else { return ExitCode::SUCCESS };
    let Some(wanted) = cx.var(DIGEST).filter(|wanted| wanted.as_bytes() != &loaded[..]) else {
        return ExitCode::SUCCESS;
    };
    cx.log.line(format!("unloads a driver to make room for {wanted}"));
    let node = cx.node.object();
    let labels = node.iter().filter_map(|node| node.metadata.labels.as_ref()).flatten();
    let users = labels.filter(|(key, value)| key.starts_with(labels::DEPLOY_PREFIX) && *value == "true");
    let users: Vec<&str> = users.map(|(key, _)| key.as_str()).filter(|key| !key.ends_with(".driver")).collect();
    let label = |value: &'static str| users.iter().map(|key| (*key, value)).collect::<Vec<_>>();
    if cx.node.set_labels(&label(labels::PAUSED_FOR_DRIVER_UPGRADE)).await.is_err() {
        return ExitCode::FAILURE;
    }
    for file in [TOOLKIT, PLUGIN] {
        host.wait_until_gone(file).await;
    }
    // A validator that did not terminate cleanly leaves its validation files behind.
    host.remove(&file(validation::DRIVER));
    host.remove(LOADED);
    match cx.node.set_labels(&label("true")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Loads the driver. It remains loaded after its pod is deleted.
async fn driver(cx: ContainerContext, pace: Pace) {
    cx.set_ready(false);
    tokio::time::sleep(pace.driver).await;
    driver_loaded(cx).await;
}

/// Maintains the driver's validation file while its container runs.
pub(crate) async fn driver_loaded(cx: ContainerContext) {
    let host = cx.node.host().clone();
    let flag = |name: &str| format!("{name}: {}\n", cx.var(name).unwrap_or("false"));
    let features = ["GDRCOPY_ENABLED", "GDS_ENABLED", "GPU_DIRECT_RDMA_ENABLED"].map(flag).concat();
    host.write(LOADED, cx.var(DIGEST).unwrap_or_default().to_owned());
    host.write(&file(validation::DRIVER_CONTAINER), features);
    cx.set_ready(true);
    cx.stopped().await;
    host.remove(&file(validation::DRIVER_CONTAINER));
}

/// Checks for a preinstalled driver first, then waits for the driver container.
async fn driver_validation(cx: ContainerContext, pace: Pace) {
    let host = cx.node.host();
    let own = host.read(HOST_DRIVER).is_some();
    if !own {
        host.wait_for(&file(validation::DRIVER_CONTAINER)).await;
    }
    tokio::time::sleep(pace.check).await;
    let (root, mounted) = if own { ("/", "/host") } else { (paths::DRIVER_ROOT, "/driver-root") };
    let found = format!(
        "IS_HOST_DRIVER={own}\nNVIDIA_DRIVER_ROOT={root}\nDRIVER_ROOT_CTR_PATH={mounted}\nNVIDIA_DEV_ROOT={root}\nDEV_ROOT_CTR_PATH={mounted}\n"
    );
    host.write(&file(validation::DRIVER), found);
}

async fn toolkit(cx: ContainerContext, pace: Pace) {
    let host = cx.node.host().clone();
    cx.set_ready(false);
    host.wait_for(&file(validation::DRIVER)).await;
    tokio::time::sleep(pace.toolkit).await;
    host.write(TOOLKIT, owner(&cx));
    cx.set_ready(true);
    cx.stopped().await;
    if owns(&cx, TOOLKIT) {
        host.remove(TOOLKIT);
    }
}

/// In the validator this is the check; elsewhere it waits for the check.
async fn toolkit_validation(cx: ContainerContext, pace: Pace) {
    let host = cx.node.host();
    if cx.var("COMPONENT") == Some("toolkit") {
        host.wait_for(TOOLKIT).await;
        tokio::time::sleep(pace.check).await;
        host.write(&file(validation::TOOLKIT), "");
    } else {
        host.wait_for(&file(validation::TOOLKIT)).await;
    }
}

async fn cuda_validation(cx: ContainerContext, pace: Pace) {
    tokio::time::sleep(pace.check).await;
    cx.node.host().write(&file(validation::CUDA), "");
}

/// Offers the node's GPUs while it runs.
async fn device_plugin(cx: ContainerContext) -> ExitCode {
    cx.node.host().wait_for(&file(validation::DRIVER)).await;
    match offer(&cx).await {
        Ok(()) => cx.stopped().await,
        Err(code) => return code,
    }
    withdraw(&cx).await
}

async fn offer(cx: &ContainerContext) -> Result<(), ExitCode> {
    let node = cx.node.object();
    let label = node.as_ref().and_then(|node| node.metadata.labels.as_ref()?.get(HARDWARE).cloned());
    let gpus = label.unwrap_or_else(|| "1".into());
    if let Err(error) = cx.node.set_capacity("nvidia.com/gpu", Some(&gpus)).await {
        cx.log.line(format!("cannot offer GPUs: {error}"));
        return Err(ExitCode::FAILURE);
    }
    cx.node.host().write(PLUGIN, owner(cx));
    Ok(())
}

/// The kubelet uses the plugin that registered last: an older one that stops later changes nothing.
pub(crate) async fn withdraw(cx: &ContainerContext) -> ExitCode {
    if !owns(cx, PLUGIN) {
        return ExitCode::SUCCESS;
    }
    cx.node.host().remove(PLUGIN);
    match cx.node.set_capacity("nvidia.com/gpu", Some("0")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Several roles in one container, each enabled by its node label. Only the device plugin has visible effects.
async fn node_agent(cx: ContainerContext) -> ExitCode {
    let roles = cx.args.iter().skip_while(|word| *word != "--roles").nth(1);
    if !roles.is_some_and(|roles| roles.split(',').any(|role| role == capstan_node::DEVICE_PLUGIN.name)) {
        cx.stopped().await;
        return ExitCode::SUCCESS;
    }
    cx.node.host().wait_for(&file(validation::DRIVER)).await;
    let label = capstan_node::DEVICE_PLUGIN.deploy_label();
    let wanted = |node: &Node| {
        node.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|value| value == "true")
    };
    while unless_stopped(&cx, cx.node.until(wanted)).await {
        if let Err(code) = offer(&cx).await {
            return code;
        }
        let goes_on = unless_stopped(&cx, cx.node.until(|node| !wanted(node))).await;
        let code = withdraw(&cx).await;
        if !goes_on || code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}

/// Whether a future completed before the container was stopped.
async fn unless_stopped(cx: &ContainerContext, comes: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = cx.stopped() => false,
        () = comes => true,
    }
}

async fn plugin_validation(cx: ContainerContext, pace: Pace) {
    let host = cx.node.host();
    host.wait_for(PLUGIN).await;
    tokio::time::sleep(pace.check).await;
    host.write(&file(validation::PLUGIN), "");
}

/// Removes its validation files when it stops.
async fn validator(cx: ContainerContext) {
    cx.stopped().await;
    for name in [validation::DRIVER, validation::TOOLKIT, validation::CUDA, validation::PLUGIN] {
        cx.node.host().remove(&file(name));
    }
}
