//! `cargo xtask cluster up|down`: a real Kubernetes with one node on this machine, with RBAC on.
//!
//! It is not reachable from other machines: the control plane listens on the address of a local bridge, or on loopback
//! without a node. There is no cluster DNS.

pub(crate) mod control_plane;
mod node;
pub(crate) mod packages;
mod process;
pub(crate) mod tools;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Subcommand;

pub(crate) use control_plane::AUDIT_LOG;
pub(crate) use node::{NAME as NODE, PAUSE, ctr, import, is_ready as node_is_ready};
pub(crate) use process::{Process, output, until};
pub(crate) use tools::{API_SERVER, ETCD, HELM, KUBECTL, KUBELET, Tool, in_path};

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Start a control plane and a node, and print the kubeconfig's path
    Up {
        /// Only the control plane, without root and without a node
        #[arg(long)]
        control_plane: bool,
    },
    /// Stop everything that `up` started, and remove its data
    Down,
    /// Find, build or install the programs, and print their paths
    Tools {
        /// Only those of the control plane
        #[arg(long)]
        control_plane: bool,
    },
}

pub(crate) fn run(root: &Path, action: &Action) -> Result<()> {
    match action {
        Action::Up { control_plane } => {
            up(root, !control_plane)?;
            println!("{}", home()?.join("kubeconfig").display());
            Ok(())
        }
        Action::Down => down(),
        Action::Tools { control_plane } => {
            if !control_plane {
                node::Programs::find(root)?;
            }
            for tool in tools::ALL {
                println!("{} {}", tool.name, tool.find(root)?.display());
            }
            Ok(())
        }
    }
}

/// Directory of the cluster's files.
pub(crate) fn home() -> Result<PathBuf> {
    Ok(tools::cache()?.join("cluster"))
}

/// Marker file of a cluster with a node.
const WITH_NODE: &str = "with-node";

/// Starts what is not running yet.
pub(crate) fn up(root: &Path, with_node: bool) -> Result<()> {
    let home = home()?;
    if with_node {
        node::may_run(&home)?;
    }
    let programs = control_plane::Programs::find(root)?;
    let node = if with_node { Some(node::Programs::find(root)?) } else { None };
    let same = home.join(WITH_NODE).exists() == with_node;
    if same && control_plane::answers(&programs.kubectl, &home.join("kubeconfig")) {
        return node.map_or(Ok(()), |_| node::wait(&home, &programs.kubectl));
    }
    down()?;
    std::fs::create_dir_all(&home)?;
    let result = start(&home, &programs, node.as_ref());
    if result.is_err() {
        // Logs are kept for debugging.
        stop(&home)?;
    }
    result
}

fn start(home: &Path, programs: &control_plane::Programs, node: Option<&node::Programs>) -> Result<()> {
    let Some(node) = node else {
        return control_plane::start(home, programs, IpAddr::V4(Ipv4Addr::LOCALHOST));
    };
    std::fs::write(home.join(WITH_NODE), "")?;
    node::start_network(home)?;
    control_plane::start(home, programs, node::ADDRESS)?;
    node::start(home, node, &programs.kubectl)
}

fn stop(home: &Path) -> Result<()> {
    if home.join(WITH_NODE).exists() {
        node::stop(home)?;
    }
    control_plane::stop(home)
}

/// Stops everything and removes its data.
pub(crate) fn down() -> Result<()> {
    let home = home()?;
    stop(&home)?;
    match std::fs::remove_dir_all(&home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", home.display()))
        }
        _ => Ok(()),
    }
}
