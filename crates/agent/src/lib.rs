//! The node agent: one folder per role, each a function that runs until its stop token is cancelled.
//!
//! Roles share a process and the opened driver ([`capstan_hw::gpu::nvidia::Source`]), nothing else: each is supervised
//! on its own ([`supervise`]), and a role that fails does not end another. A role decides in pure functions over an
//! [`capstan_hw::gpu::nvidia::Inventory`] and does I/O at its edge: kubelet sockets, files, the API server.
//! It is event-driven (inotify, watches, GPU events); it does not poll in a sleep loop.

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

/// Commands of the agent, in the order of `capstan agent --help`.
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

/// Parses a listen address: `:9400`, `9400` or `host:port`.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let whole = if let Some(port) = text.strip_prefix(':') { format!("[::]:{port}") } else { text.to_owned() };
    let parsed = whole.parse().or_else(|_| format!("[::]:{text}").parse());
    parsed.map_err(|_| format!("'{text}' is no address; write :9400 or 127.0.0.1:9400"))
}

/// Why a role failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid configuration; the message names the field, the value and the fix.
    #[error("{0}")]
    Config(String),
    /// A hardware call failed and the role cannot continue without it.
    #[error(transparent)]
    Hardware(#[from] capstan_hw::Error),
    /// A validation check failed.
    #[error("{0}")]
    Check(String),
    /// A file or socket operation failed.
    #[error("{what}: {source}")]
    Io {
        /// The failed operation, with its path.
        what: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Any other external error.
    #[error("{0}")]
    External(String),
}

/// Result of a role.
pub type Result<T, E = Error> = std::result::Result<T, E>;
