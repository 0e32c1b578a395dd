//! Roles by name: each a command of its own, or several in one process configured by environment variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use futures::future::BoxFuture;

use crate::{COMMANDS, Cx, Error, Result};

/// Starts a role; the supervisor calls it again on restart.
pub type Start = Arc<dyn Fn(Cx) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// A command of the agent: its options and its entry point. Built with `entry!`.
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

/// Builds an [`Entry`]: name, help text, options type and entry point.
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

/// A role with parsed options, which can be run any number of times.
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
    /// A role by name, configured by the process environment alone.
    pub fn from_env(name: &str) -> Result<Self> {
        let entry = named(name)?;
        read(entry, entry.command(), &[])
    }

    /// [`Role::from_env`] for a process with other roles: invalid options fail this role when it runs, not the process.
    pub fn from_env_lenient(name: &str) -> Result<Self> {
        let entry = named(name)?;
        let failing = |error: Error| {
            let message = error.to_string();
            Self::new(entry.name, move |_| {
                let message = message.clone();
                Box::pin(async move { Err(Error::Config(message)) })
            })
        };
        Ok(Self::from_env(name).unwrap_or_else(failing))
    }

    /// A custom role, for tests and virtual nodes.
    pub fn new(
        name: &'static str,
        start: impl Fn(Cx) -> BoxFuture<'static, Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self { name, start: Arc::new(start) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it until it ends or the stop token is cancelled.
    pub async fn run(&self, cx: Cx) -> Result<()> {
        (self.start)(Cx { role: self.name, ..cx }).await
    }
}

/// Parses a role by name from arguments and these variables; the process environment is ignored. Arguments take
/// precedence over variables, as on a command line.
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
    // Let clap find which arguments are set: aliases, short names and all.
    let lenient = closed.clone().mut_args(|arg| arg.required(false)).ignore_errors(true).no_binary_name(true);
    let matches = lenient.try_get_matches_from(args).ok();
    let by_argument = |id: &clap::Id| {
        matches.as_ref().is_some_and(|matches| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine))
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

    /// The options of the test role, as parsed.
    fn parsed(args: &[&str], vars: &[(&str, &str)]) -> Result<String, String> {
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
        assert_eq!(parsed(&[], &[("PATH", "p"), ("LISTED", "a,b")]).expect("read"), r#"p ["a", "b"] true"#);
        let vars = [("PATH", "p"), ("LISTED", "a,b"), ("SWITCH", "false")];
        assert_eq!(parsed(&["-n", "x", "--listed=c"], &vars).expect("read"), r#"x ["c"] false"#, "arguments win");
        let error = parsed(&[], &[]).expect_err("PATH of the process does not count");
        assert!(error.starts_with("role test: ") && error.contains("--name"), "{error}");
    }
}
