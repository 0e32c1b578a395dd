//! ResourceQuota controller: recomputes usage. Admission counts creates; deletions are counted here.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_apiserver::admit::quota;
use capstan_apiserver::error::Status;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::common::{Controller, Outcome, Reconciled};
use super::pods;
use crate::context::Context;
use crate::informer::{Cache, Kind, key_of};

/// Resync interval, for kinds that are not watched.
const RESYNC: Duration = Duration::from_secs(300);

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "resourcequota-controller", "resourcequota-controller");
    let caches = &context.caches;
    controller.watch(&caches.resource_quotas);
    watch(&controller, &caches.pods, |old, new| pods::is_terminal(old) != pods::is_terminal(new));
    watch(&controller, &caches.services, |old, new| old.spec != new.spec);
    watch(&controller, &caches.volume_claims, |old, new| old.spec != new.spec);
    watch(&controller, &caches.deployments, |_, _| false);
    watch(&controller, &caches.replica_sets, |_, _| false);
    watch(&controller, &caches.stateful_sets, |_, _| false);
    watch(&controller, &caches.jobs, |_, _| false);
    watch(&controller, &caches.cron_jobs, |_, _| false);
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

/// Recounts when an object is deleted or its usage changes.
fn watch<K: Kind>(controller: &Controller, cache: &Cache<K>, matters: fn(&K, &K) -> bool) {
    let (queue, quotas) = (controller.queue.clone(), controller.context.caches.resource_quotas.clone());
    cache.subscribe(move |change| {
        let counts = match (change.old, change.new) {
            (Some(_), None) => true,
            (Some(old), Some(new)) => matters(old, new),
            (None, _) => false,
        };
        let namespace = change.last().metadata().namespace.as_deref().unwrap_or_default();
        if counts && !quotas.is_empty() {
            quotas.in_namespace(namespace).iter().for_each(|quota| queue.add(key_of(&quota.metadata)));
        }
    });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(old) = this.context.caches.resource_quotas.get(key) else { return Ok(Outcome::Done) };
    let value = serde_json::to_value(&*old).map_err(Status::internal)?;
    let used = quota::used(&this.context.server, &value);
    let used: BTreeMap<String, Quantity> =
        used.into_iter().map(|(name, amount)| (name, Quantity(amount.to_string()))).collect();
    let hard = old.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let status = ResourceQuotaStatus { hard: Some(hard), used: Some(used) };
    let next = ResourceQuota { status: Some(status), ..ResourceQuota::clone(&old) };
    this.writer.update_status(&old, &next).await?;
    Ok(Outcome::RequeueAfter(RESYNC))
}
