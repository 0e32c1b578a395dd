//! Failing roles beside a device plugin, in one process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_agent::roles::{Role, parse};
use capstan_agent::supervise::{Backoff, FailureKind, RoleHealth, Settings, State, supervise};
use capstan_agent::{Cx, Variables};
use capstan_hw::fake::{Fake, Model, Root, node};
use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_kubelet::fake::{Kubelet, Plugin};
use tokio_util::sync::CancellationToken;

const RESOURCE: &str = "nvidia.com/gpu";
const GPUS: u32 = 8;
/// Minimum number of restarts of each failing role.
const RESTARTS: u64 = 25;

/// A node below a directory, without GPUs.
fn cx(root: &Path) -> Cx {
    let recording = node(Model::H200, GPUS);
    Root::write(root, &recording.inventory).expect("files of a node");
    let hardware = Arc::new(Source::of(Arc::new(Fake::new(recording))));
    let cx = Cx::new(hardware, Roots::new("/", root, None), root, CancellationToken::new());
    Cx { variables: Variables::Given(BTreeMap::new()), ..cx }
}

fn role(name: &str, vars: &[(&str, &str)]) -> Role {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(name, &[], &vars).map_err(|error| error.to_string()).expect("options")
}

/// A backoff short enough for tests.
fn soon() -> Backoff {
    Backoff { initial: Duration::from_millis(1), max: Duration::from_millis(4), ..Backoff::default() }
}

fn all_well(plugin: &Plugin) {
    assert_eq!(plugin.healthy().len(), GPUS as usize, "every GPU may be handed out");
    assert_eq!((plugin.registrations, plugin.lists), (1, 1), "the kubelet was told once, and nothing was taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_plugin_never_drops_a_device_while_roles_beside_it_fail() {
    let dir = tempfile::tempdir().expect("a directory");
    let sockets = dir.path().join("var/lib/kubelet/device-plugins");
    std::fs::create_dir_all(&sockets).expect("a directory");
    let kubelet = Kubelet::start(&sockets).expect("a kubelet");
    let cx = cx(dir.path());
    let roles = vec![
        role("device-plugin", &[]),
        // There is no API server.
        role("feature-discovery", &[("NODE_NAME", "n"), ("KUBECONFIG", "/no/kubeconfig")]),
        Role::new("panics", |_| Box::pin(async { panic!("a fault of the role") })),
    ];
    let all = tokio::spawn(supervise(roles, Settings { backoff: soon(), ..Settings::default() }, cx.clone()));
    all_well(&kubelet.until(RESOURCE, |plugin| !plugin.devices.is_empty()).await);

    let mut health = cx.health.subscribe();
    let restarted = |roles: &Vec<RoleHealth>| roles[1..].iter().all(|role| role.restarts >= RESTARTS);
    let waited = tokio::time::timeout(Duration::from_secs(60), health.wait_for(restarted)).await;
    let roles = waited.expect("they are restarted again and again").expect("somebody reports").clone();
    assert_eq!((roles[0].state, roles[0].restarts, &roles[0].last_failure), (State::Running, 0, &None));
    let failure = |index: usize| roles[index].last_failure.clone().expect("a failure");
    assert_eq!(failure(1).kind, FailureKind::Error);
    assert!(failure(1).message.starts_with("no API server"), "{}", failure(1).message);
    assert_eq!((failure(2).kind, failure(2).message.as_str()), (FailureKind::Panic, "panicked: a fault of the role"));
    let metrics = cx.health.metrics();
    assert!(metrics.contains(r#"capstan_agent_role_up{role="device-plugin"} 1"#), "{metrics}");

    all_well(&kubelet.plugins()[RESOURCE]);
    let device = kubelet.plugins()[RESOURCE].devices[0].id.clone();
    kubelet.allocate(RESOURCE, &[&device]).await.expect("and it still hands them out");
    cx.stop.cancel();
    all.await.expect("no panic reaches the process").expect("no failure does");
}
