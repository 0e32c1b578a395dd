//! What the server itself knows about kinds, and who else has a say in a write.
//!
//! [`Builtin`] fills in defaults, allocates what only the server can (cluster IPs, node ports, job selectors) and checks
//! built-in kinds, in the words of a real server. [`plugins`] are the admission plugins that workloads rely on;
//! [`policy`] applies admission policies, [`webhook`] calls admission webhooks, [`quota`] keeps writes within
//! quotas. [`standard`] is all of it in the order of a real server.

mod allocate;
mod defaults;
mod field;
mod json;
mod matching;
pub mod plugins;
pub mod policy;
mod prepare;
pub mod quota;
mod tidy;
mod validate;
pub mod webhook;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Cause, Result};
use crate::ops::{Admission, Kinds, Request, Server};
use crate::registry::{Origin, Resource};
use crate::store::Object;

/// The rules of built-in kinds.
#[derive(Debug, Default)]
pub struct Builtin {
    allocator: allocate::Allocator,
}

impl Builtin {
    /// The rules of built-in kinds, with addresses and ports from these ranges.
    pub fn new(addresses: Addresses) -> Self {
        Self { allocator: allocate::Allocator::new(addresses) }
    }
}

impl Kinds for Builtin {
    fn default(&self, resource: &Resource, object: &mut Value) {
        if matches!(resource.origin, Origin::Builtin) {
            tidy::tidy(resource.schema(), object);
            defaults::apply(resource, object);
        }
    }

    fn prepare(&self, request: &Request, object: &mut Value, old: Option<&Value>) -> Result<()> {
        prepare::prepare(&self.allocator, request, object, old)
    }

    fn validate(&self, request: &Request, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        validate::validate(request, object, old)
    }

    fn removed(&self, _: &Server, resource: &Resource, object: &Object) {
        if resource.group.is_empty() && &*resource.plural == "services" {
            self.allocator.release(&object.uid);
        }
    }
}

/// Where services get their addresses and ports.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Base address of cluster IPs.
    pub network: Ipv4Addr,
    /// How many bits of the base address are fixed.
    pub prefix: u8,
    /// Node ports.
    pub ports: RangeInclusive<u16>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 96, 0, 0), prefix: 12, ports: 30000..=32767 }
    }
}

/// What admission is made of.
#[derive(Clone)]
pub struct Settings {
    /// Where services get their addresses and ports.
    pub addresses: Addresses,
    /// Where webhooks that are named by a service are reached; nowhere if not said.
    pub resolver: Option<Arc<dyn webhook::Resolver>>,
    /// Whether pods need a service account that exists, and get its token. Somebody has to create the accounts.
    pub service_accounts: bool,
    /// Whether claims and volumes get finalizers that keep them while they are in use. Somebody has to remove them.
    pub storage_protection: bool,
    /// Whether new nodes are tainted as not ready. Somebody has to remove the taint.
    pub taint_new_nodes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: Addresses::default(),
            resolver: None,
            service_accounts: true,
            storage_protection: true,
            taint_new_nodes: true,
        }
    }
}

impl Settings {
    /// For a server without controllers: nothing waits for them.
    pub fn alone() -> Self {
        Self { service_accounts: false, storage_protection: false, taint_new_nodes: false, ..Self::default() }
    }
}

/// Everything that a server runs by default: the rules of built-in kinds, and the admission plugins in their order.
pub fn standard(settings: &Settings) -> (Arc<dyn Kinds>, Vec<Arc<dyn Admission>>) {
    let mut all: Vec<Arc<dyn Admission>> = vec![Arc::new(plugins::LimitRanger)];
    if settings.service_accounts {
        all.push(Arc::new(plugins::ServiceAccount));
    }
    all.push(Arc::new(plugins::NodeRestriction));
    if settings.taint_new_nodes {
        all.push(Arc::new(plugins::TaintNewNodes));
    }
    all.push(Arc::new(plugins::Priority));
    all.push(Arc::new(plugins::DefaultTolerationSeconds));
    all.push(Arc::new(plugins::DefaultStorageClass));
    if settings.storage_protection {
        all.push(Arc::new(plugins::StorageProtection));
    }
    all.push(Arc::new(plugins::VolumeResize));
    all.push(Arc::new(plugins::RuntimeClass));
    all.push(Arc::new(plugins::DefaultIngressClass));
    all.push(Arc::new(policy::Mutations::default()));
    all.push(Arc::new(policy::Policies::default()));
    all.push(Arc::new(webhook::Webhooks::new(settings.resolver.clone(), all.clone())));
    // Last, so that nothing is charged that somebody else refuses.
    all.push(Arc::new(quota::ResourceQuota));
    (Arc::new(Builtin::new(settings.addresses.clone())), all)
}

#[cfg(test)]
mod tests;
