//! What runs on a node: one folder per role, each a function that runs until it is told to stop.
//!
//! Roles share a process, the opened hardware ([`capstan_hw::gpu::nvidia::Source`]) and nothing else: each is supervised
//! on its own ([`supervise`]), and one that fails does not end another. A role decides in
//! plain functions over an [`capstan_hw::gpu::nvidia::Inventory`] and acts at its edge: sockets of the kubelet, files,
//! the API server.
//! It waits for events (a socket that appears, a label that changes, a fault), never in a loop with a pause.

pub mod after;
pub mod cdi;
pub mod config;
pub mod config_manager;
mod context;
pub mod device_plugin;
pub mod discovery;
pub mod exporter;
pub mod files;
pub mod hook;
pub mod mps;
pub mod node_status;
pub mod own_node;
pub mod roles;
pub mod supervise;
pub mod validator;

use std::net::SocketAddr;

pub use context::{ApiAccess, Cx, OpenDriver, Place, Variables};

/// What an agent can be: the one list, in the order of `capstan agent --help`.
pub const COMMANDS: &[roles::Entry] = &[
    device_plugin::ROLE,
    mps::ROLE,
    discovery::ROLE,
    cdi::ROLE,
    exporter::ROLE,
    validator::ROLE,
    node_status::ROLE,
    config_manager::ROLE,
    after::AFTER,
    after::HOLD,
    cdi::CDI,
    hook::HOOK,
];

/// An address to listen on: `:9400`, `9400` or a whole one.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let whole = if let Some(port) = text.strip_prefix(':') { format!("[::]:{port}") } else { text.to_owned() };
    let parsed = whole.parse().or_else(|_| format!("[::]:{text}").parse());
    parsed.map_err(|_| format!("'{text}' is no address; write :9400 or 127.0.0.1:9400"))
}

/// Why a role ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it was told is wrong: say it in a way that the person who wrote it can mend it.
    #[error("{0}")]
    Config(String),
    /// The hardware did not answer, and the role cannot go on without.
    #[error(transparent)]
    Hardware(#[from] capstan_hw::Error),
    /// A check failed.
    #[error("{0}")]
    Check(String),
    /// A file or socket.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// What came back.
        source: std::io::Error,
    },
    /// Anything else that the outside said.
    #[error("{0}")]
    Outside(String),
}

/// What a role returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
