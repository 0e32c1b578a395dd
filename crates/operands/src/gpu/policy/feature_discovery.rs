//! GPU feature discovery: labels nodes with the properties of their GPUs.

use capstan_plan::Object;

use super::access::{Rights, Shares, access, constraints, rule};
use super::daemon::Daemon;
use super::pod::{Build, Mount, at, container, host, host_dir, set_env};
use super::snippets::{after_toolkit, config_managers};
use super::{Cx, Operand, Outcome, enabled};

pub(super) const OPERAND: Operand = Operand {
    name: "gpu-feature-discovery",
    condition: "FeatureDiscovery",
    deploy: Some("gpu-feature-discovery"),
    enabled: |cx| enabled(&cx.spec().gfd),
    objects,
};

const NAME: &str = "gpu-feature-discovery";
const ACCOUNT: &str = "nvidia-gpu-feature-discovery";
const FEATURES: &str = "/etc/kubernetes/node-feature-discovery/features.d";

fn objects(cx: &Cx<'_>) -> Outcome<Vec<Object>> {
    let rights = Rights {
        here: vec![
            rule("nfd.k8s-sigs.io", &["nodefeatures"], &["get", "list", "watch", "create", "update"]),
            rule("", &["pods"], &["get"]),
        ],
        everywhere: vec![rule("", &["nodes"], &["get", "list", "watch"])],
    };
    let mut objects = access(cx, ACCOUNT, rights);
    objects.extend(constraints(cx, ACCOUNT, Shares { pid: true, anything: true, ..Shares::default() }));
    objects.push(daemon(cx)?.object(cx));
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
    Daemon::new(NAME, ACCOUNT, "gpu-feature-discovery").part_of("nvidia-gpu").with(
        vec![toolkit, first],
        vec![main, sidecar],
        volumes,
    )
}

fn daemon(cx: &Cx<'_>) -> Outcome<Daemon> {
    let discovery = &cx.spec().gfd;
    let mut daemon = template();
    daemon.common(cx)?;
    daemon.validated(cx)?;
    daemon.runs_as(cx, discovery, "GFD_IMAGE")?;
    if cx.cluster.openshift.is_some() {
        set_env(daemon.main(), "USE_NODE_FEATURE_API", "false");
    }
    daemon.finishes_as(discovery);
    daemon.configured(cx, discovery.resources.as_ref())?;
    daemon.sees_gpus(cx, NAME);
    daemon.mig(cx);
    Ok(daemon)
}
