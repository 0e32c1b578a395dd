//! Authorizes `create` when a patch or update creates its object.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Attributes, Auth};
use crate::error::Result;
use crate::ops::{Admission, Operation, Options, Request};

/// Admission plugin: requires the verb `create` when a request with another verb creates an object.
#[derive(Clone, Debug)]
pub struct Creation {
    auth: Arc<Auth>,
}

impl Creation {
    /// The plugin, with this authorizer.
    pub fn new(auth: Arc<Auth>) -> Self {
        Self { auth }
    }
}

impl Admission for Creation {
    fn handles(&self, request: &Request) -> bool {
        request.operation == Operation::Create && !matches!(request.options, Options::Create(_))
    }

    fn validate<'a>(&'a self, request: &'a Request, _: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        let resource = &request.target.resource;
        let attributes = Attributes {
            verb: "create".into(),
            is_resource: true,
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.plural.to_string(),
            namespace: request.target.namespace.as_deref().unwrap_or_default().into(),
            name: request.target.name.as_deref().unwrap_or_default().into(),
            ..Attributes::default()
        };
        Box::pin(std::future::ready(self.auth.authorize(&request.caller.user, &attributes)))
    }
}
