//! ClusterRole aggregation controller: copies the rules of the selected ClusterRoles into aggregated ones.

use futures::StreamExt;
use serde_json::{Value, json};

use crate::error::Result;
use crate::ops::{Caller, ListOptions, Patch, PatchKind, Server, Target, WriteOptions};
use crate::store::{LabelSelector, Object, Selection, Start, TableKey};

const GROUP: &str = "rbac.authorization.k8s.io";
const MANAGER: &str = "clusterrole-aggregation-controller";

/// Runs the controller; never returns.
pub async fn aggregate(server: Server) {
    loop {
        let Ok(mut changes) =
            server.store().watch(&TableKey::new(GROUP, "clusterroles"), Selection::default(), Start::Now)
        else {
            return;
        };
        loop {
            if let Err(status) = settle(&server).await {
                tracing::warn!(%status, "ClusterRole aggregation failed");
            }
            if changes.next().await.is_none() {
                break;
            }
        }
    }
}

/// Updates aggregated ClusterRoles until none changes.
async fn settle(server: &Server) -> Result<()> {
    let Some(resource) = server.registry().lookup(GROUP, "v1", "clusterroles") else { return Ok(()) };
    let caller = Caller::system(MANAGER);
    let options = WriteOptions { field_manager: MANAGER.into(), force: true, ..WriteOptions::default() };
    loop {
        let target = Target::all(resource.clone(), None);
        let roles = server.list(&caller, &target, &ListOptions::default()).await?.items;
        let values: Vec<Value> = roles.iter().map(|role| role.value()).collect();
        let mut changed = false;
        for (role, value) in roles.iter().zip(&values) {
            let Some(rules) = aggregated_rules(value, &roles, &values) else { continue };
            if value["rules"].as_array().is_some_and(|now| *now == rules)
                || value["rules"].is_null() && rules.is_empty()
            {
                continue;
            }
            let body = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
                "metadata": {"name": role.name()}, "rules": rules,
            });
            let patch = Patch { kind: PatchKind::Apply, body: body.into() };
            let target = Target::one(resource.clone(), None, role.name());
            server.patch(&caller, &target, patch, &options).await?;
            changed = true;
        }
        if !changed {
            return Ok(());
        }
    }
}

/// The desired rules of an aggregated ClusterRole; `None` for others.
fn aggregated_rules(role: &Value, roles: &[std::sync::Arc<Object>], values: &[Value]) -> Option<Vec<Value>> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?.as_array()?;
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let Ok(selector) = LabelSelector::from_json(selector) else { continue };
        for (object, value) in roles.iter().zip(values) {
            if value["metadata"]["name"] == role["metadata"]["name"] || !selector.matches(|key| object.label(key)) {
                continue;
            }
            for rule in value["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(rules)
}
