//! Admission webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

/// A webhook inside this process: takes the body of a request to a path, and answers with a status code and a body.
pub type Handler = Arc<dyn Fn(String, Bytes) -> BoxFuture<'static, (u16, Bytes)> + Send + Sync>;

/// Where a webhook is reached.
#[derive(Clone)]
pub enum Endpoint {
    /// An address, over TLS.
    Address(SocketAddr),
    /// A function, with neither socket nor TLS: works in virtual time too.
    Local(Handler),
}

/// A webhook's reference to a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceReference {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub name: String,
    /// Port of the service.
    pub port: u16,
}

/// Finds the endpoints of services that webhook configurations name.
pub trait Resolver: Send + Sync + 'static {
    /// Where the service is reached, or why it is not.
    fn resolve(&self, service: &ServiceReference) -> Result<Endpoint, String>;
}
