//! The HTTP face of the server.

mod kubeconfig;
mod path;
mod query;
mod tls;

pub use kubeconfig::Kubeconfig;
pub use tls::Authority;
