//! Device manager of a kubelet: device plugins determine the capacity of the node.
//!
//! Devices of a disconnected plugin are not allocatable, and are dropped after a grace period, as in the kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use capstan_kubelet::fake::{Kubelet, Plugin};
use capstan_node::paths;
use capstan_sim::node::NodeHandle;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use crate::allocations;

/// How long the devices of a disconnected plugin still count as capacity.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(300);
/// A timeout that never expires.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Capacity of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount {
    /// Devices.
    capacity: usize,
    /// Allocatable devices.
    allocatable: usize,
    /// When the devices of a disconnected plugin are dropped.
    until: Option<Instant>,
}

/// Serves device plugins: reports their devices, and allocates them.
pub(crate) async fn serve(node: &NodeHandle) {
    let Some(host) = node.host().path() else { return };
    let dir = host.join(paths::DEVICE_PLUGINS.trim_start_matches('/'));
    let kubelet = match std::fs::create_dir_all(&dir).and_then(|()| Kubelet::start(&dir)) {
        Ok(kubelet) => kubelet,
        Err(error) => {
            tracing::error!(node = node.name(), %error, "device plugin socket not served");
            return;
        }
    };
    tokio::join!(report_devices(node, &kubelet), allocations::allocate_devices(node, &kubelet));
}

/// Reports the devices of plugins as node capacity.
async fn report_devices(node: &NodeHandle, kubelet: &Kubelet) {
    let mut plugins = kubelet.watch();
    let mut amounts = node.object().map(|object| initial_amounts(&object)).unwrap_or_default();
    for (resource, amount) in &amounts {
        report(node, resource, *amount).await;
    }
    loop {
        let now = Instant::now();
        let offered: BTreeMap<String, Amount> =
            plugins.borrow_and_update().iter().map(|(name, plugin)| (name.clone(), amount(plugin, now))).collect();
        for (resource, found) in offered {
            let known = amounts.get(&resource);
            // The plugin disconnected: the grace period starts at the first observation.
            let until = known.and_then(|known| known.until).filter(|_| found.until.is_some()).or(found.until);
            change(node, &mut amounts, &resource, Amount { until, ..found }).await;
        }
        let expired: Vec<String> = amounts
            .iter()
            .filter(|(_, amount)| amount.until.is_some_and(|at| at <= now))
            .map(|(name, _)| name.clone())
            .collect();
        for resource in expired {
            change(node, &mut amounts, &resource, Amount { capacity: 0, allocatable: 0, until: Some(now + FOREVER) })
                .await;
        }
        let next = amounts.values().filter_map(|amount| amount.until).min().unwrap_or(now + FOREVER);
        tokio::select! {
            changed = plugins.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// The node's capacity before this kubelet started. No plugin has registered yet, but running pods keep their devices,
/// as a kubelet checkpoints allocations.
fn initial_amounts(node: &Node) -> BTreeMap<String, Amount> {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default();
    let devices = capacity.into_iter().filter(|(name, _)| name.starts_with("nvidia.com/"));
    let until = Some(Instant::now() + STOP_GRACE_PERIOD);
    let counted = devices.filter_map(|(name, count)| Some((name, count.0.parse().ok()?)));
    counted.map(|(name, capacity)| (name, Amount { capacity, allocatable: capacity, until })).collect()
}

fn amount(plugin: &Plugin, now: Instant) -> Amount {
    let until = plugin.stopped.then(|| now + STOP_GRACE_PERIOD);
    Amount { capacity: plugin.devices.len(), allocatable: plugin.healthy().len(), until }
}

async fn change(node: &NodeHandle, amounts: &mut BTreeMap<String, Amount>, resource: &str, now: Amount) {
    let before = amounts.insert(resource.to_owned(), now);
    let counts = |amount: Amount| (amount.capacity, amount.allocatable);
    if before.map(counts) != Some(counts(now)) {
        report(node, resource, now).await;
    }
}

async fn report(node: &NodeHandle, resource: &str, amount: Amount) {
    if let Err(error) = node.set_devices(resource, amount.capacity, amount.allocatable).await {
        tracing::warn!(node = node.name(), resource, %error, "device capacity not reported");
    }
}
