//! Admission: rules of built-in kinds, and admission plugins.
//!
//! [`Builtin`] sets defaults, allocates cluster IPs, node ports and job selectors, and validates built-in kinds, with
//! errors worded as by kube-apiserver. [`plugins`] are the admission plugins that workloads rely on; [`policy`]
//! evaluates admission policies, [`webhook`] calls admission webhooks, [`quota`] enforces ResourceQuotas. [`standard`]
//! has all of them in kube-apiserver's order.

mod allocate;
mod defaults;
mod field;
mod json;
mod matching;
mod normalize;
pub mod plugins;
pub mod policy;
mod prepare;
pub mod quota;
mod validate;
pub mod webhook;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Cause, Result};
use crate::ops::{Admission, KindRules, Request, Server};
use crate::registry::{Origin, Resource};
use crate::store::Object;

/// The rules of built-in kinds.
#[derive(Debug, Default)]
pub struct Builtin {
    allocator: allocate::Allocator,
}

impl Builtin {
    /// The rules of built-in kinds, with these ranges of addresses and ports.
    pub fn new(addresses: Addresses) -> Self {
        Self { allocator: allocate::Allocator::new(addresses) }
    }
}

impl KindRules for Builtin {
    fn default(&self, resource: &Resource, object: &mut Value) {
        if matches!(resource.origin, Origin::Builtin) {
            normalize::normalize(resource.schema(), object);
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

/// Ranges of cluster IPs and node ports.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Base address of cluster IPs.
    pub network: Ipv4Addr,
    /// Prefix length.
    pub prefix: u8,
    /// Node port range.
    pub ports: RangeInclusive<u16>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 96, 0, 0), prefix: 12, ports: 30000..=32767 }
    }
}

/// Admission settings.
#[derive(Clone)]
pub struct Settings {
    /// Ranges of cluster IPs and node ports.
    pub addresses: Addresses,
    /// Resolves webhooks that reference a Service; by their endpoints in the store if `None`.
    pub resolver: Option<Arc<dyn webhook::Resolver>>,
    /// Whether pods need an existing ServiceAccount and get its token. Requires the service account controller.
    pub service_accounts: bool,
    /// Whether claims and volumes get protection finalizers. Requires the protection controllers.
    pub storage_protection: bool,
    /// Whether new nodes are tainted as not ready. Requires the node lifecycle controller.
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
    /// For a server without controllers: without plugins that depend on them.
    pub fn alone() -> Self {
        Self { service_accounts: false, storage_protection: false, taint_new_nodes: false, ..Self::default() }
    }
}

/// The default admission of a server: the rules of built-in kinds, and the admission plugins in their order.
pub fn standard(settings: &Settings) -> (Arc<dyn KindRules>, Vec<Arc<dyn Admission>>) {
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
    // Last, so that usage is not charged for requests that other plugins reject.
    all.push(Arc::new(quota::ResourceQuota));
    (Arc::new(Builtin::new(settings.addresses.clone())), all)
}

#[cfg(test)]
mod tests;
