//! The roles by name: each a command of its own, or several in one process, told by their variables.

use capstan_hw::Source;
use capstan_hw::driver::Roots;
use clap::{Parser, Subcommand};
use tokio::task::JoinSet;

use crate::{Cx, Error, Result, cdi, device_plugin, discovery, exporter, hook, mps, node_status, validator};

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

/// Runs several roles in one process. The first that fails ends all: the kubelet starts them again together.
pub async fn run_all(roles: Vec<(String, Role)>, cx: Cx) -> Result<()> {
    let mut running = JoinSet::new();
    for (name, role) in roles {
        let cx = cx.clone();
        running.spawn(async move { (name, role.run(cx).await) });
    }
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
            "exporter",
            "node-status-exporter",
        ] {
            Role::from_env(name).expect(name);
        }
    }
}
