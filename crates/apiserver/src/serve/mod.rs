//! The HTTP layer: paths, content negotiation, discovery, OpenAPI, tables, TLS.
//!
//! [`Api`] is a tower service: pass it to `kube::Client::new` for in-process use, or [`listen`](Api::listen) on a
//! socket.

mod api;
mod authenticate;
mod body;
mod discovery;
mod kubeconfig;
mod listen;
mod media;
mod non_resource;
mod openapi;
mod options;
mod output;
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
pub use respond::Disconnected;
pub use runtime::{ExecOptions, LogOptions, Runtime, Streams};
pub use tls::{Authority, TlsError};
