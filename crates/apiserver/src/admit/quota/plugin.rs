//! ResourceQuota admission plugin: enforces quotas and updates their usage.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Amounts, amounts, concerns, in_scope, pods, usage};
use crate::admit::json::Read;
use crate::admit::plugins::forbidden;
use crate::auth::{MASTERS, UserInfo};
use crate::error::Result;
use crate::ops::{Admission, Caller, Operation, Request, Target, WriteOptions};
use crate::store::{Selection, TableKey};
use capstan_semantics::Quantity;

/// Maximum number of attempts when a quota update conflicts.
const MAX_ATTEMPTS: usize = 10;

/// Rejects writes that exceed a quota. A quota is enforced once its status has `hard`, which the controller sets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceQuota;

impl ResourceQuota {
    async fn check(&self, request: &Request, object: &Value) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            if self.charge(request, object).await? {
                return Ok(());
            }
        }
        Err(crate::error::Status::internal("resource quota evaluation timed out"))
    }

    /// Charges all quotas; false if a quota update conflicted.
    async fn charge(&self, request: &Request, object: &Value) -> Result<bool> {
        let namespace = request.target.namespace.as_deref().unwrap_or_default();
        let table = TableKey::new("", "resourcequotas");
        let quotas = request.server.store().select(&table, &Selection::namespace(namespace));
        let mut changed = Vec::new();
        for quota in &quotas {
            let mut quota = quota.value();
            if self.within(request, object, &mut quota)? {
                changed.push(quota);
            }
        }
        if request.dry_run() {
            return Ok(true);
        }
        let Some(resource) = request.server.registry().lookup("", "v1", "resourcequotas") else { return Ok(true) };
        let caller =
            Caller { user: UserInfo::new("system:apiserver", &[MASTERS]), user_agent: "kube-apiserver".into() };
        for quota in changed {
            let target = Target::one(resource.clone(), Some(namespace), quota["metadata"].text("name")).sub("status");
            let options = WriteOptions::default();
            match request.server.update(&caller, &target, quota.into(), &options).await {
                Err(status) if status.code == 409 => return Ok(false),
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Updates the usage of a quota; returns whether it changed. Rejects the request if it exceeds the quota.
    fn within(&self, request: &Request, object: &Value, quota: &mut Value) -> Result<bool> {
        let resource = &request.target.resource;
        let refuse = |why: String| Err(forbidden(request, object, &why));
        let (hard, used) = (amounts(&quota["status"]["hard"]), amounts(&quota["status"]["used"]));
        let limited: Vec<&String> = hard.keys().filter(|name| concerns(name, resource)).collect();
        if limited.is_empty() || !in_scope(quota, resource, object) {
            return Ok(false);
        }
        let name = quota["metadata"].text("name").to_owned();
        if &*resource.plural == "pods"
            && resource.group.is_empty()
            && let Some(why) = pods::unspecified_resources(object, limited.iter().copied())
        {
            return refuse(format!("failed quota: {name}: {why}"));
        }
        if limited.iter().any(|name| !used.contains_key(*name)) {
            let names: Vec<&str> = limited.iter().map(|name| name.as_str()).collect();
            return refuse(format!("status unknown for quota: {name}, resources: {}", names.join(",")));
        }
        let additional_usage = additional_usage(request, object, quota);
        let additional_usage: Amounts =
            additional_usage.into_iter().filter(|(name, _)| hard.contains_key(name)).collect();
        if additional_usage.is_empty() {
            return Ok(false);
        }
        let mut after = used.clone();
        for (name, amount) in &additional_usage {
            let sum = after.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(*amount);
        }
        let exceeded: Vec<&String> = additional_usage.keys().filter(|name| after[*name] > hard[*name]).collect();
        if !exceeded.is_empty() {
            return refuse(format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                shown(&additional_usage, &exceeded),
                shown(&used, &exceeded),
                shown(&hard, &exceeded)
            ));
        }
        let after: serde_json::Map<String, Value> =
            after.into_iter().map(|(name, amount)| (name, json!(amount.to_string()))).collect();
        quota["status"]["used"] = after.into();
        Ok(true)
    }
}

/// The additional usage of a write.
fn additional_usage(request: &Request, object: &Value, quota: &Value) -> Amounts {
    let (resource, now) = (&request.target.resource, request.server.clock().now());
    let mut additional_usage = usage(resource, object, now);
    if let Some(old) = request.old.as_deref().filter(|old| in_scope(quota, resource, old)) {
        for (name, before) in usage(resource, old, now) {
            if let Some(amount) = additional_usage.get_mut(&name) {
                *amount = if *amount > before { amount.minus(before) } else { Quantity::ZERO };
            }
        }
    }
    additional_usage.retain(|_, amount| *amount != Quantity::ZERO);
    additional_usage
}

fn shown(amounts: &Amounts, names: &[&String]) -> String {
    let one = |name: &&String| format!("{name}={}", amounts.get(*name).copied().unwrap_or(Quantity::ZERO));
    names.iter().map(one).collect::<Vec<_>>().join(",")
}

impl Admission for ResourceQuota {
    fn handles(&self, request: &Request) -> bool {
        let target = &request.target;
        let resource = &target.resource;
        if target.namespace.is_none() {
            return false;
        }
        let core = |plural: &str| resource.group.is_empty() && &*resource.plural == plural;
        match (request.operation, target.subresource.as_deref()) {
            (Operation::Create, None) => true,
            (Operation::Update, None) => core("services") || core("persistentvolumeclaims") || core("pods"),
            (Operation::Update, Some("resize")) => core("pods"),
            _ => false,
        }
    }

    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            let pod = request.target.resource.group.is_empty() && &*request.target.resource.plural == "pods";
            if let (Operation::Update, true, Some(old), None) =
                (request.operation, pod, request.old.as_deref(), request.target.subresource.as_deref())
                && pods::is_terminating(old) == pods::is_terminating(object)
            {
                return Ok(());
            }
            self.check(request, object).await
        })
    }
}
