//! The API verbs: get, list, watch, create, update, patch, delete, each a straight pipeline over store, registry,
//! schemas, patches and admission.
//!
//! Called by the HTTP layer and, without serialization, by controllers in the same process. Authorization happens
//! before: callers of this module are trusted.

mod admission;
mod binding;
mod body;
mod convert;
mod delete;
mod eviction;
mod ids;
mod meta;
mod namespaces;
mod options;
mod pipeline;
mod read;
mod restore;
mod scale;
mod server;
mod strategy;
mod subresource;
mod watch;
mod write;

pub use crate::auth::UserInfo;
pub use admission::{Admission, KindRules, Operation, Options, Request};
pub(crate) use convert::convert;
pub use options::{
    Caller, DeleteOptions, Deleted, FieldValidation, GetOptions, ListOptions, Patch, PatchKind, Payload, Preconditions,
    Propagation, Target, WatchEvent, WatchStream, WriteOptions, Written,
};
pub use restore::ObjectTemplate;
pub(crate) use server::WeakServer;
pub use server::{Server, Settings};

#[cfg(test)]
pub(crate) mod tests;
