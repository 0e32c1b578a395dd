//! The HTTP face of the server: paths, content negotiation, discovery, OpenAPI, tables, TLS.
//!
//! [`Api`] is a tower service: give it to `kube::Client::new` and there is no socket, or let it [`listen`](Api::listen) on one.

mod api;
mod body;
mod discovery;
mod gate;
mod kubeconfig;
mod listen;
mod media;
mod openapi;
mod options;
mod output;
mod pages;
mod path;
mod protobuf;
mod query;
mod respond;
mod reviews;
mod runtime;
mod stream;
mod table;
mod tls;
mod tokens;
mod tunnel;
mod verbs;
mod watch;

pub use api::Api;
pub use body::Body;
pub use kubeconfig::Kubeconfig;
pub use listen::{Listen, ListenError, Listener};
pub use path::Path;
pub use respond::Lost;
pub use runtime::{ExecOptions, LogOptions, Runtime, Streams};
pub use tls::{Authority, TlsError};
