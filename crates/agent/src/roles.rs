//! The roles by name: each a command of its own, or several in one process, told by their variables.

use std::sync::Arc;
use std::time::Duration;

use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use clap::{Parser, Subcommand};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::own_node::{NodeFacts, OwnNode};
use crate::{
    Cx, Error, Result, after, cdi, config_manager, device_plugin, discovery, exporter, hook, mps, node_status,
    validator,
};

/// A node whose labels nobody tells within this time runs its roles: GPUs matter more than a pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// What an agent can be.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
    /// Offer GPUs to the kubelet and hand them to containers
    DevicePlugin(Box<device_plugin::Options>),
    /// Run the daemons that let processes share a GPU
    MpsControlDaemon(Box<mps::Options>),
    /// Say what the node has, in labels
    FeatureDiscovery(Box<discovery::Options>),
    /// Keep the CDI spec of this node true
    CdiSpecs(Box<cdi::KeepOptions>),
    /// Serve metrics of GPUs under the names that dashboards know
    Exporter(Box<exporter::Options>),
    /// Prove that a part of the node works, and say so in a file that others wait for
    Validator(Box<validator::Options>),
    /// Serve how far the node is, as metrics
    NodeStatusExporter(Box<validator::Options>),
    /// Keep the config that the node's label chooses where programs read it
    ConfigManager(Box<config_manager::Options>),
    /// Wait for files of others, then become another command of this program
    After(after::Options),
    /// Keep what checks have proved until told to stop, then take it back
    Hold(after::HoldOptions),
    /// Print, list or change CDI specs
    #[command(subcommand)]
    Cdi(cdi::Command),
    /// What a container runtime runs while it makes a container
    #[command(disable_help_flag = true)]
    Hook {
        /// The hook and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Parser)]
struct Told {
    #[command(subcommand)]
    role: Role,
}

impl Role {
    /// A role by name, told by variables alone.
    pub fn from_env(name: &str) -> Result<Self> {
        let arguments = match name {
            // It shares the validator's flags, of which one has no default.
            "node-status-exporter" => vec!["agent", name, "--component=metrics"],
            _ => vec!["agent", name],
        };
        Told::try_parse_from(arguments).map(|told| told.role).map_err(|error| {
            use clap::error::ErrorKind;
            match error.kind() {
                ErrorKind::InvalidSubcommand => Error::Config(format!("--roles: there is no role '{name}'")),
                _ => Error::Config(format!("role {name}: {}", error.to_string().trim())),
            }
        })
    }

    /// Runs it until it is done or told to stop.
    pub async fn run(self, cx: Cx) -> Result<()> {
        match self {
            Self::DevicePlugin(options) => device_plugin::run(*options, cx).await,
            Self::MpsControlDaemon(options) => mps::run(*options, cx).await,
            Self::FeatureDiscovery(options) => discovery::run(*options, cx).await,
            Self::CdiSpecs(options) => cdi::keep(*options, cx).await,
            Self::ConfigManager(options) => config_manager::run(*options, cx).await,
            Self::After(options) => after::run(options, cx).await,
            Self::Hold(options) => after::hold(options, cx).await,
            Self::Cdi(command) => commanded(command, cx).await,
            Self::Hook { words } => hook::run(&words, &mut std::io::stdin()),
            Self::Exporter(options) => exporter::run(*options, cx).await,
            Self::Validator(options) if options.component == "metrics" => node_status::run(*options, cx).await,
            Self::Validator(options) => validator::run(*options, cx).await,
            Self::NodeStatusExporter(options) => node_status::run(*options, cx).await,
        }
    }
}

/// A command about specs asks the driver, which may take its time: not on the executor's thread.
async fn commanded(command: cdi::Command, cx: Cx) -> Result<()> {
    let asked = tokio::task::spawn_blocking(move || {
        let open = |roots: &Roots| match roots == &cx.roots {
            true => Source::shared(&cx.hardware),
            false => Source::nvml(roots.clone()),
        };
        cdi::run(&command, &open, &cx.root, &mut std::io::stdout())
    });
    asked.await.map_err(|error| Error::Outside(error.to_string()))?
}

/// Starts a role; one that follows a label is started again and again.
type Start = Arc<dyn Fn(Cx) -> BoxFuture<'static, Result<()>> + Send + Sync>;

fn start(role: Role) -> Start {
    Arc::new(move |cx| Box::pin(role.clone().run(cx)))
}

/// Runs several roles in one process. The first that fails ends all: the kubelet starts them again together.
pub async fn run_all(roles: Vec<(String, Role)>, cx: Cx) -> Result<()> {
    let mut running = JoinSet::new();
    for (name, role) in roles {
        let cx = cx.clone();
        running.spawn(async move { (name, role.run(cx).await) });
    }
    joined(running, &cx).await
}

/// The same where each role runs only while its own label of the node is `true`, as if it had a pod of its own.
pub async fn run_labelled(roles: Vec<(String, Role)>, node: &OwnNode, cx: Cx) -> Result<()> {
    let roles = roles.into_iter().map(|(name, role)| (name, start(role))).collect();
    follow(roles, node.watch(), cx).await
}

/// The label of a node that says whether it should have a role; `None` for one that goes with the others.
fn label(role: &str) -> Option<&'static str> {
    match role {
        "device-plugin" => Some("nvidia.com/gpu.deploy.device-plugin"),
        "feature-discovery" => Some("nvidia.com/gpu.deploy.gpu-feature-discovery"),
        "exporter" => Some("nvidia.com/gpu.deploy.dcgm-exporter"),
        "node-status-exporter" => Some("nvidia.com/gpu.deploy.node-status-exporter"),
        _ => None,
    }
}

async fn follow(
    roles: Vec<(String, Start)>,
    facts: impl Stream<Item = Result<NodeFacts>> + Send + 'static,
    cx: Cx,
) -> Result<()> {
    let (said, known) = watch::channel(None::<NodeFacts>);
    let mut running = JoinSet::new();
    for (name, start) in roles {
        let (cx, known) = (cx.clone(), known.clone());
        running.spawn(async move {
            let result = match label(&name) {
                Some(label) => whenever(&name, &start, |facts| facts.label(label) == Some("true"), known, cx).await,
                None => start(cx).await,
            };
            (name, result)
        });
    }
    let listening = tokio::spawn(cx.stop.clone().run_until_cancelled_owned(async move {
        let mut facts = std::pin::pin!(facts);
        while let Some(facts) = facts.next().await {
            match facts {
                Ok(facts) => drop(said.send_replace(Some(facts))),
                Err(error) => tracing::warn!(%error, "labels of this node are not known; roles go on as they are"),
            }
        }
        // Nobody tells any more, but what was said holds.
        std::future::pending::<()>().await;
    }));
    let ended = joined(running, &cx).await;
    listening.abort();
    ended
}

/// Runs a role while the node wants it.
async fn whenever(
    name: &str,
    start: &Start,
    wanted: impl Fn(&NodeFacts) -> bool,
    mut known: watch::Receiver<Option<NodeFacts>>,
    cx: Cx,
) -> Result<()> {
    let first = tokio::time::timeout(PATIENCE, known.wait_for(Option::is_some));
    tokio::select! {
        () = cx.stop.cancelled() => return Ok(()),
        first = first => drop(first),
    }
    let unwanted = |facts: &Option<NodeFacts>| facts.as_ref().is_some_and(|facts| !wanted(facts));
    loop {
        if unwanted(&known.borrow()) {
            tracing::info!(role = name, "waits: the node's label is not true");
        }
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(()),
            told = known.wait_for(|facts| !unwanted(facts)) => drop(told),
        }
        let stop = cx.stop.child_token();
        let mut role = start(Cx { stop: stop.clone(), ..cx.clone() });
        tokio::select! {
            ended = &mut role => return ended,
            told = known.wait_for(unwanted) => drop(told),
        }
        stop.cancel();
        if let Err(error) = role.await {
            tracing::warn!(role = name, %error, "ended badly while it was asked to pause");
        }
    }
}

/// Waits for all; the first error ends them.
async fn joined(mut running: JoinSet<(String, Result<()>)>, cx: &Cx) -> Result<()> {
    let mut first = Ok(());
    while let Some(ended) = running.join_next().await {
        let (name, result) = ended.map_err(|error| Error::Outside(error.to_string()))?;
        if let Err(error) = result {
            tracing::error!(role = name, %error, "ended");
            cx.stop.cancel();
            first = first.and(Err(Error::Outside(format!("{name}: {error}"))));
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_role_is_named() {
        let error = Role::from_env("exportr").expect_err("unknown").to_string();
        assert_eq!(error, "--roles: there is no role 'exportr'");
    }

    #[test]
    fn roles_are_told_by_variables_alone() {
        for name in [
            "device-plugin",
            "mps-control-daemon",
            "feature-discovery",
            "cdi-specs",
            "config-manager",
            "exporter",
            "node-status-exporter",
        ] {
            Role::from_env(name).expect(name);
        }
    }

    /// A world with roles that say when they run, and a node that says its labels.
    struct Scene {
        seen: tokio::sync::mpsc::UnboundedReceiver<(&'static str, bool)>,
        say: futures::channel::mpsc::UnboundedSender<Result<NodeFacts>>,
        stop: tokio_util::sync::CancellationToken,
        all: tokio::task::JoinHandle<Result<()>>,
    }

    impl Scene {
        fn of(names: &[&'static str]) -> Self {
            let (saw, seen) = tokio::sync::mpsc::unbounded_channel();
            let (say, facts) = futures::channel::mpsc::unbounded();
            let role = |name: &'static str| -> Start {
                let saw = saw.clone();
                Arc::new(move |cx: Cx| {
                    let saw = saw.clone();
                    Box::pin(async move {
                        let _ = saw.send((name, true));
                        cx.stop.cancelled().await;
                        let _ = saw.send((name, false));
                        Ok(())
                    })
                })
            };
            let roles = names.iter().map(|name| ((*name).to_owned(), role(name))).collect();
            let stop = tokio_util::sync::CancellationToken::new();
            let hardware = Arc::new(Source::nvml(Roots::local()));
            let cx = Cx { hardware, roots: Roots::local(), root: "/".into(), stop: stop.clone() };
            Self { seen, say, stop, all: tokio::spawn(follow(roles, facts, cx)) }
        }

        /// The node says which roles it wants.
        fn wants(&self, roles: &[&str]) {
            let labels = roles.iter().map(|role| (label(role).expect("a label").to_owned(), "true".to_owned()));
            let facts = NodeFacts { labels: labels.collect(), ..NodeFacts::default() };
            self.say.unbounded_send(Ok(facts)).expect("somebody listens");
        }

        async fn next(&mut self) -> (&'static str, bool) {
            self.seen.recv().await.expect("somebody says something")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_pauses_alone_while_its_label_is_not_true() {
        let mut scene = Scene::of(&["device-plugin", "exporter"]);
        scene.wants(&["device-plugin"]);
        assert_eq!(scene.next().await, ("device-plugin", true));
        scene.wants(&["device-plugin", "exporter"]);
        assert_eq!(scene.next().await, ("exporter", true));
        scene.wants(&["exporter"]);
        assert_eq!(scene.next().await, ("device-plugin", false));
        scene.wants(&["device-plugin", "exporter"]);
        assert_eq!(scene.next().await, ("device-plugin", true));
        scene.stop.cancel();
        scene.all.await.expect("they end").expect("they end well");
    }

    #[tokio::test(start_paused = true)]
    async fn roles_run_where_nobody_tells_the_labels() {
        let mut scene = Scene::of(&["device-plugin"]);
        scene.say.unbounded_send(Err(Error::Outside("no API server".into()))).expect("somebody listens");
        let began = tokio::time::Instant::now();
        assert_eq!(scene.next().await, ("device-plugin", true));
        assert_eq!(began.elapsed(), PATIENCE);
        scene.wants(&[]);
        assert_eq!(scene.next().await, ("device-plugin", false), "until somebody does");
    }
}
