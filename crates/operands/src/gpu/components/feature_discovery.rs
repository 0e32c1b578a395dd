//! GPU feature discovery: labels nodes with the properties of their GPUs.

use capstan_plan::Object;
use capstan_plan::kit::Daemon;
use capstan_plan::kit::admission::{WRITER_NODE, policy, written_by};
use capstan_plan::kit::openshift::Shares;
use capstan_plan::kit::pod::{Build, Mount, at, container, host, host_dir, set_env};
use capstan_plan::kit::rbac::{Rights, rule};
use serde_json::json;

use super::access::{access, constraints};
use super::daemon::{GpuDaemon, gpu_daemon};
use super::own::OwnImage;
use super::snippets::{after_toolkit, config_managers, configured, mig};
use super::{Operand, Outcome, PolicyCx, enabled, node_agent};

pub(crate) const OPERAND: Operand = Operand {
    name: capstan_node::FEATURE_DISCOVERY.operand(),
    condition: "FeatureDiscovery",
    deploy: capstan_node::FEATURE_DISCOVERY.deploy,
    enabled: |cx| enabled(&cx.spec().gfd),
    objects,
};

const IMAGE: &str = "GFD_IMAGE";
pub(crate) const NAME: &str = "gpu-feature-discovery";
const ACCOUNT: &str = "nvidia-gpu-feature-discovery";
const FEATURES: &str = "/etc/kubernetes/node-feature-discovery/features.d";

/// Its RBAC rules. Our agent gets and patches one NodeFeature.
pub(crate) fn rights(cx: &PolicyCx<'_>) -> Rights {
    let objects: &[&str] = match cx.is_own(&cx.spec().gfd.image, IMAGE) {
        true => &["get", "create", "patch"],
        false => &["get", "list", "watch", "create", "update"],
    };
    Rights {
        here: vec![rule("nfd.k8s-sigs.io", &["nodefeatures"], objects), rule("", &["pods"], &["get"])],
        everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])],
    }
}

/// Admission policy: our agent may only write the object of its own node, so that a compromised node cannot label
/// others.
pub(crate) fn own_node_only(cx: &PolicyCx<'_>, account: &str) -> Vec<Object> {
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["nfd.k8s-sigs.io"], "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"], "resources": ["nodefeatures"],
        }]},
        "matchConditions": [{"name": "agent", "expression": written_by(&cx.scope, account)}],
        "variables": [{"name": "here", "expression": WRITER_NODE}],
        "validations": [{
            "expression": "variables.here != '' && object.metadata.name == 'nvidia-features-for-' + variables.here \
                           && object.metadata.?labels[?'nfd.node.kubernetes.io/node-name'].orValue('') == variables.here",
            "message": "an agent may only label the node that it runs on",
        }],
    });
    policy(&cx.scope, &format!("nodefeatures-policy-{account}"), spec).into()
}

fn objects(cx: &PolicyCx<'_>) -> Outcome<Vec<Object>> {
    if node_agent::has(cx, &capstan_node::FEATURE_DISCOVERY)? {
        return node_agent::objects(cx);
    }
    let mut objects = access(cx, ACCOUNT, rights(cx));
    if cx.is_own(&cx.spec().gfd.image, IMAGE) {
        objects.extend(own_node_only(cx, ACCOUNT));
    }
    objects.extend(constraints(cx, ACCOUNT, Shares { pid: true, anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(&cx.scope));
    Ok(objects)
}

fn template() -> Daemon {
    let (first, sidecar) = config_managers("gpu-feature-discovery");
    let toolkit = after_toolkit("run-nvidia", "/run/nvidia");
    let main = container(NAME)
        .with("GFD_SLEEP_INTERVAL", "60s")
        .with("GFD_FAIL_ON_INIT_ERROR", "true")
        .field("NAMESPACE", "metadata.namespace")
        .node_name()
        .field("POD_NAME", "metadata.name")
        .mounts(vec![at("output-dir", FEATURES), at("host-sys", "/sys").read_only()])
        .privileged();
    let volumes = vec![host("output-dir", FEATURES), host("host-sys", "/sys"), host_dir("run-nvidia", "/run/nvidia")];
    gpu_daemon(NAME, ACCOUNT, capstan_node::FEATURE_DISCOVERY.deploy()).part_of("nvidia-gpu").with(
        vec![toolkit, first],
        vec![main, sidecar],
        volumes,
    )
}

pub(crate) fn daemon(cx: &PolicyCx<'_>) -> Outcome<Daemon> {
    let discovery = &cx.spec().gfd;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    let own = daemon.runs_role(cx, discovery, IMAGE, &capstan_node::FEATURE_DISCOVERY)?;
    if cx.cluster.openshift.is_some() {
        set_env(daemon.main(), "USE_NODE_FEATURE_API", "false");
    }
    daemon.finishes_as(discovery);
    configured(cx, &mut daemon, discovery.resources.as_ref(), own)?;
    daemon.sees_gpus(cx, NAME);
    mig(cx, &mut daemon);
    Ok(daemon)
}
