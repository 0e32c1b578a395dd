//! The roles by name: each a command of its own, or several in one process, told by their variables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::own_node::{NodeFacts, OwnNode};
use crate::{COMMANDS, Cx, Error, Result};

/// A node whose labels nobody tells within this time runs its roles: GPUs matter more than a pause.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a role; one that is restarted is started again and again.
pub type Start = Arc<dyn Fn(Cx) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// A command of the agent: how its options are read, and what runs with them. Made with `entry!`.
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for `--help`.
    pub about: &'static str,
    /// Adds its options to a command.
    pub options: fn(Command) -> Command,
    /// Reads its options.
    pub start: fn(&ArgMatches) -> Result<Start, clap::Error>,
}

/// An [`Entry`]: name, what it does, type of its options, and the function that runs with them.
macro_rules! entry {
    ($name:expr, $about:literal, $options:ty, $run:path) => {
        $crate::roles::Entry {
            name: $name,
            about: $about,
            options: <$options as clap::Args>::augment_args,
            start: |matches| {
                let options = <$options as clap::FromArgMatches>::from_arg_matches(matches)?;
                Ok(std::sync::Arc::new(move |cx| Box::pin($run(options.clone(), cx))))
            },
        }
    };
}
pub(crate) use entry;

impl Entry {
    fn command(&self) -> Command {
        (self.options)(Command::new(self.name)).about(self.about).long_about(None::<&str>)
    }
}

/// A role with its options, which can be run any number of times.
#[derive(Clone)]
pub struct Role {
    name: &'static str,
    start: Start,
}

impl FromArgMatches for Role {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand().and_then(|(name, matches)| Some((find(name)?, matches)));
        let (entry, matches) = found.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        Ok(Self { name: entry.name, start: (entry.start)(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Role {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(COMMANDS.iter().map(Entry::command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        find(name).is_some()
    }
}

fn find(name: &str) -> Option<&'static Entry> {
    COMMANDS.iter().find(|entry| entry.name == name)
}

impl Role {
    /// A role by name, told by the variables of the process alone.
    pub fn from_env(name: &str) -> Result<Self> {
        let entry = named(name)?;
        read(entry, entry.command(), &[])
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it until it is done or told to stop.
    pub async fn run(&self, cx: Cx) -> Result<()> {
        (self.start)(Cx { role: self.name, ..cx }).await
    }
}

/// A role by name, told by arguments and these variables: those of the process do not count. Arguments come before
/// variables, as on a command line.
pub fn parse(name: &str, args: &[String], vars: &BTreeMap<String, String>) -> Result<Role> {
    parse_entry(named(name)?, args, vars)
}

fn parse_entry(entry: &'static Entry, args: &[String], vars: &BTreeMap<String, String>) -> Result<Role> {
    let command = entry.command();
    let env: Vec<(clap::Id, String, String)> = command
        .get_arguments()
        .filter_map(|arg| {
            let value = vars.get(arg.get_env()?.to_str()?)?;
            Some((arg.get_id().clone(), arg.get_long()?.to_owned(), value.clone()))
        })
        .collect();
    let closed = command.mut_args(|arg| arg.env(Resettable::Reset));
    // What arguments say is found by clap itself: aliases, short names and all.
    let lenient = closed.clone().mut_args(|arg| arg.required(false)).ignore_errors(true).no_binary_name(true);
    let said = lenient.try_get_matches_from(args).ok();
    let by_argument = |id: &clap::Id| {
        said.as_ref().is_some_and(|said| said.value_source(id.as_str()) == Some(ValueSource::CommandLine))
    };
    let flags = env.into_iter().filter(|(id, ..)| !by_argument(id));
    let words: Vec<String> = flags.map(|(_, long, value)| format!("--{long}={value}")).chain(args.to_vec()).collect();
    read(entry, closed, &words)
}

fn named(name: &str) -> Result<&'static Entry> {
    find(name).ok_or_else(|| Error::Config(format!("--roles: there is no role '{name}'")))
}

fn read(entry: &'static Entry, command: Command, words: &[String]) -> Result<Role> {
    let matches = command.no_binary_name(true).try_get_matches_from(words);
    let start = matches.and_then(|matches| (entry.start)(&matches));
    let wrong = |error: clap::Error| Error::Config(format!("role {}: {}", entry.name, error.to_string().trim()));
    Ok(Role { name: entry.name, start: start.map_err(wrong)? })
}

/// Runs several roles in one process. The first that fails ends all: the kubelet starts them again together.
pub async fn run_all(roles: Vec<Role>, cx: Cx) -> Result<()> {
    let mut running = JoinSet::new();
    for role in roles {
        let cx = cx.clone();
        running.spawn(async move { (role.name, role.run(cx).await) });
    }
    joined(running, &cx).await
}

/// The same where each role runs only while its own label of the node is `true`, as if it had a pod of its own.
pub async fn run_labelled(roles: Vec<Role>, node: &OwnNode, cx: Cx) -> Result<()> {
    follow(roles, node.watch(), cx).await
}

/// The label of a node that says whether it should have a role; `None` for one that goes with the others.
fn label(role: &str) -> Option<&'static str> {
    capstan_node::role(role)?.deploy_label
}

async fn follow(roles: Vec<Role>, facts: impl Stream<Item = Result<NodeFacts>> + Send + 'static, cx: Cx) -> Result<()> {
    let (said, known) = watch::channel(None::<NodeFacts>);
    let mut running = JoinSet::new();
    for role in roles {
        let (cx, known) = (cx.clone(), known.clone());
        running.spawn(async move {
            let result = match label(role.name) {
                Some(label) => whenever(&role, |facts| facts.label(label) == Some("true"), known, cx).await,
                None => role.run(cx).await,
            };
            (role.name, result)
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
    role: &Role,
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
            tracing::info!(role = role.name, "waits: the node's label is not true");
        }
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(()),
            told = known.wait_for(|facts| !unwanted(facts)) => drop(told),
        }
        let stop = cx.stop.child_token();
        let mut running = std::pin::pin!(role.run(Cx { stop: stop.clone(), ..cx.clone() }));
        tokio::select! {
            ended = &mut running => return ended,
            told = known.wait_for(unwanted) => drop(told),
        }
        stop.cancel();
        if let Err(error) = running.await {
            tracing::warn!(role = role.name, %error, "ended badly while it was asked to pause");
        }
    }
}

/// Waits for all; the first error ends them.
async fn joined(mut running: JoinSet<(&'static str, Result<()>)>, cx: &Cx) -> Result<()> {
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
    use capstan_hw::gpu::nvidia::Source;
    use capstan_hw::gpu::nvidia::driver::Roots;

    use super::*;

    #[test]
    fn an_unknown_role_is_named() {
        let error = Role::from_env("exportr").err().expect("unknown").to_string();
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
            Role::from_env(name).map(drop).expect(name);
        }
    }

    #[test]
    fn every_role_of_a_node_is_in_the_list() {
        for role in capstan_node::ROLES {
            assert!(find(role.name).is_some(), "{} has no entry in COMMANDS", role.name);
        }
    }

    /// What a parsed role of the test's options was told.
    fn told(args: &[&str], vars: &[(&str, &str)]) -> Result<String, String> {
        #[derive(Debug, Clone, clap::Args)]
        struct Options {
            #[arg(short = 'n', long, env = "PATH")]
            name: String,
            #[arg(long, env = "LISTED", value_delimiter = ',')]
            listed: Vec<String>,
            #[arg(long, env = "SWITCH", num_args = 0..=1, default_value_t = true, default_missing_value = "true")]
            switch: bool,
        }
        async fn run(options: Options, _: Cx) -> Result<()> {
            Err(Error::Check(format!("{} {:?} {}", options.name, options.listed, options.switch)))
        }
        const ENTRY: Entry = entry!("test", "Tell what it was told", Options, run);
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let role = parse_entry(&ENTRY, &args, &vars).map_err(|error| error.to_string())?;
        let roots = Roots::local();
        let cx = Cx::new(Arc::new(Source::nvml(roots.clone())), roots, "/", Default::default());
        let told = futures::executor::block_on(role.run(cx)).expect_err("what it was told");
        Ok(told.to_string())
    }

    #[test]
    fn given_variables_stand_for_those_of_the_process() {
        assert_eq!(told(&[], &[("PATH", "p"), ("LISTED", "a,b")]).expect("read"), r#"p ["a", "b"] true"#);
        let vars = [("PATH", "p"), ("LISTED", "a,b"), ("SWITCH", "false")];
        assert_eq!(told(&["-n", "x", "--listed=c"], &vars).expect("read"), r#"x ["c"] false"#, "arguments win");
        let error = told(&[], &[]).expect_err("PATH of the process does not count");
        assert!(error.starts_with("role test: ") && error.contains("--name"), "{error}");
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
            let role = |name: &'static str| {
                let saw = saw.clone();
                let start: Start = Arc::new(move |cx: Cx| {
                    let saw = saw.clone();
                    Box::pin(async move {
                        let _ = saw.send((name, true));
                        cx.stop.cancelled().await;
                        let _ = saw.send((name, false));
                        Ok(())
                    })
                });
                Role { name, start }
            };
            let roles = names.iter().map(|name| role(name)).collect();
            let stop = tokio_util::sync::CancellationToken::new();
            let hardware = Arc::new(Source::nvml(Roots::local()));
            let cx = Cx::new(hardware, Roots::local(), "/", stop.clone());
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
