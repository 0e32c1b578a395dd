//! A Kubernetes API server in one process.
//!
//! Start with [`ops`]: one function per verb, each a straight pipeline over the modules below.
//!
//! | module | contents |
//! |---|---|
//! | [`store`] | objects as JSON bytes with revisions, an event log, indexes, watches |
//! | [`registry`] | which resources are served: a table of built-in kinds, and the CRDs |
//! | [`schema`] | compiled schemas: validation, defaulting, pruning, CEL |
//! | [`apply`] | the four patch types, server-side apply, managed fields |
//! | [`admit`] | defaulting and validation of built-in kinds, admission plugins, webhooks |
//! | [`auth`] | authentication and authorization (RBAC) |
//! | [`lifecycle`] | garbage collection, namespace deletion, CRD controllers |
//! | [`faults`] | fault injection for tests |
//! | [`ops`] | get, list, watch, create, update, patch, delete |
//! | [`serve`] | HTTP: paths, discovery, OpenAPI, tables, TLS, kubeconfig |
//!
//! It knows nothing of GPUs. Time comes from [`clock::Clock`], which follows tokio's clock and so can be virtual.

pub mod admit;
pub mod apply;
pub mod auth;
pub mod clock;
pub mod error;
pub mod faults;
pub mod field;
pub mod golang;
pub mod lifecycle;
pub mod ops;
pub mod registry;
pub mod schema;
pub mod serve;
pub mod store;
mod syntax;
