//! A Kubernetes cluster in one process: API server, controllers, scheduler and virtual nodes.
//!
//! Start with [`Cluster`]. It needs no sockets and no files, starts in a fraction of a second, and uses tokio's clock:
//! in a test with paused time a day passes at once.
//!
//! | module | part |
//! |---|---|
//! | [`informer`], [`Caches`] | one typed copy of every object, with change notifications |
//! | [`controllers`] | Deployments, DaemonSets, Jobs, volumes, node lifecycle … |
//! | [`scheduler`] | binds pods to nodes |
//! | [`node`] | kubelets without containers |
//!
//! It knows no GPUs: extended resources are only names.

mod bootstrap;
mod caches;
mod cluster;
mod context;
pub mod controllers;
mod correlate;
mod credentials;
mod events;
mod gauges;
pub mod informer;
pub mod node;
mod pod;
mod restore;
pub mod scheduler;
#[cfg(test)]
mod testing;
mod writer;

pub use caches::Caches;
pub use capstan_apiserver::auth::UserInfo;
pub use cluster::{Builder, Cluster, StartError};
pub use context::{Context, Tasks};
pub use events::{Recorder, Severity, reference};
pub use node::NodeTemplate;
pub use pod::Pod;
pub use writer::{Writer, is_already_exists, is_conflict, is_not_found};
