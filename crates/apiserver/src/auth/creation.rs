//! Who patches or replaces what is not there yet creates it, and must be allowed to.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Attributes, Auth};
use crate::error::Result;
use crate::ops::{Admission, Operation, Options, Request};

/// An admission plugin that asks for the verb `create` where a request of another verb makes an object.
#[derive(Clone, Debug)]
pub struct Creation {
    auth: Arc<Auth>,
}

impl Creation {
    /// The check against this policy.
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
