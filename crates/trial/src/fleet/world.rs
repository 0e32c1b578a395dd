//! Cluster of a simulation: virtual nodes, virtual time, and the real operator.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_api::gpu::upgrade::UpgradePolicy;
use capstan_inspect::Snapshot;
use capstan_operands::gpu::upgrade;
use capstan_operator::Options;
use capstan_runtime::Clock;
use capstan_sim::{Cluster, controllers, node};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::jobs;
use super::spec::Fleet;
use super::tally::Tally;
use crate::manifests::{self, Manifest};
use crate::plan::observed_client;
use crate::{Error, Result};

/// Timeout of an install in virtual time.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The custom resource that selects the drivers of a fleet.
#[derive(Clone, Debug)]
pub(super) struct GoverningPolicy {
    resource: ApiResource,
    name: String,
    /// Path of the driver version in its spec.
    path: &'static [&'static str],
}

/// A cluster with the operator.
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) tally: Tally,
    pub(super) fleet: Fleet,
    pub(super) traffic: Arc<Traffic>,
    pub(super) bad: Arc<FailingDrivers>,
    client: Client,
    stop: CancellationToken,
}

/// Requests of the operator.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
}

/// Nodes on which a driver fails to load.
#[derive(Debug, Default)]
pub(super) struct FailingDrivers {
    drivers: Mutex<(String, BTreeSet<String>)>,
}

impl FailingDrivers {
    /// Makes drivers of that version fail on these nodes.
    pub(super) fn set(&self, version: &str, nodes: BTreeSet<String>) {
        *self.drivers.lock().unwrap_or_else(PoisonError::into_inner) = (version.to_owned(), nodes);
    }

    /// Repairs a node.
    pub(super) fn repair(&self, node: &str) {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner).1.remove(node);
    }

    fn is(&self, node: &str, image: &str) -> bool {
        let drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.1.contains(node) && image.contains(&drivers.0)
    }
}

impl World {
    /// Starts the fleet, or the cluster of a snapshot, with the operator.
    pub(super) async fn start(
        fleet: Fleet,
        snapshot: Option<&Snapshot>,
        options: Options,
        until: Duration,
    ) -> Result<Self> {
        let bad = Arc::<FailingDrivers>::default();
        let broken = bad.clone();
        let pace = fleet.pace.of_operands();
        let settings = node::Settings {
            nodes: if snapshot.is_some() { Vec::new() } else { fleet.nodes() },
            rules: [
                crate::plan::containers(fleet.pace.pull.0),
                capstan_gpu_sim::rules(pace),
                vec![capstan_gpu_sim::failing_drivers(pace, move |node, image| broken.is(node, image))],
                fleet.jobs.iter().map(jobs::rule).collect(),
            ]
            .concat(),
            events: node::Events::None,
            reports: node::Reports::Brief(Duration::from_secs(600)),
            // Thousands of lease renewals a minute would show nothing.
            heartbeat: until.saturating_mul(2),
            ..node::Settings::default()
        };
        let patient = controllers::Settings {
            node_grace: None,
            events: false,
            endpoints: false,
            copies: true,
            ..controllers::Settings::default()
        };
        let mut builder = Cluster::builder()
            .seed(fleet.seed)
            .node_settings(settings)
            .controller_settings(patient)
            .untracked(&["nodes", "pods"]);
        let mut start = Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH);
        if let Some(snapshot) = snapshot {
            builder = builder.restore(crate::plan::restorable(snapshot));
            start = snapshot.taken.unwrap_or(start);
        }
        let cluster = builder.start_time(start).start().await.map_err(Error::Cluster)?;
        let client = cluster.client();
        let world = Self {
            tally: Tally::watch(&cluster),
            cluster,
            fleet,
            traffic: Arc::default(),
            bad,
            client,
            stop: CancellationToken::new(),
        };
        if snapshot.is_none() {
            manifests::apply(&world.client, &manifests::namespace(&options.gpu.namespace)).await?;
        }
        world.run_operator(options).await?;
        Ok(world)
    }

    async fn run_operator(&self, options: Options) -> Result<()> {
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let options = Options { clock: Clock::starting_at(self.cluster.server.clock().now()), ..options };
        let run = capstan_operator::run(self.counted(), options, self.stop.clone(), ready);
        let operator = tokio::spawn(run);
        if is_ready.await.is_err() {
            operator.await.map_err(|_| Error::Panicked)?.map_err(Error::Operator)?;
            return Err(Error::OperatorNotReady);
        }
        Ok(())
    }

    /// A client that counts its requests.
    fn counted(&self) -> Client {
        let traffic = self.traffic.clone();
        observed_client(&self.cluster, move |request| {
            let reads = request.method() == http::Method::GET;
            let count = if reads { &traffic.reads } else { &traffic.writes };
            count.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Applies the ClusterPolicy of the fleet.
    pub(super) async fn apply_policy(&self) -> Result<()> {
        for manifest in &self.wanted_policy()? {
            manifests::apply(&self.client, manifest).await?;
        }
        Ok(())
    }

    /// The ClusterPolicy of `capstan up`, with the changes of the fleet.
    fn wanted_policy(&self) -> Result<Vec<Manifest>> {
        let mut manifests = manifests::cluster_policy()?;
        for manifest in manifests.iter_mut().filter(|manifest| manifest.kind.kind == "ClusterPolicy") {
            merge(&mut manifest.body["spec"], &self.fleet.policy);
        }
        Ok(manifests)
    }

    /// Waits until the governing policy is ready.
    pub(super) async fn until_ready(&self) -> Result<()> {
        let policy = self.governing_policy().await?;
        let mut last = Value::Null;
        let wait = async {
            let mut events = policy.watch(&self.client);
            while let Some(object) = events.try_next().await.map_err(cannot_watch)? {
                last = object.data["status"].clone();
                if last["state"] == "ready" {
                    return Ok(());
                }
            }
            Err(Error::WatchEnded("the policy"))
        };
        let ended = tokio::time::timeout(INSTALL_TIMEOUT, wait).await;
        ended.map_err(|_| Error::FleetNotReady(state_with_reason(&last)))?
    }

    /// The policy that selects the drivers: the ClusterPolicy, or an NVIDIADriver.
    pub(super) async fn governing_policy(&self) -> Result<GoverningPolicy> {
        let kinds: [(&str, &str, &str, &'static [&'static str]); 2] = [
            ("v1alpha1", "NVIDIADriver", "nvidiadrivers", &["version"]),
            ("v1", "ClusterPolicy", "clusterpolicies", &["driver", "version"]),
        ];
        for (version, kind, plural, path) in kinds {
            let gvk = GroupVersionKind::gvk("nvidia.com", version, kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let found = api.list(&Default::default()).await;
            let name = found.ok().and_then(|list| list.items.into_iter().next()?.metadata.name);
            if let Some(name) = name {
                return Ok(GoverningPolicy { resource, name, path });
            }
        }
        Err(Error::NoDriver)
    }

    /// Sets the driver version of all nodes that the policy governs.
    pub(super) async fn change_driver(&self, policy: &GoverningPolicy, version: &str) -> Result<()> {
        let spec = policy.path.iter().rev().fold(json!(version), |value, key| json!({*key: value}));
        let api = policy.api(&self.client);
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(&policy.name, &PatchParams::default(), &patch).await.map_err(cannot("change the driver"))?;
        Ok(())
    }

    /// `maxUnavailable` as a number of nodes.
    pub(super) async fn budget(&self, policy: &GoverningPolicy) -> Result<usize> {
        let object = policy.api(&self.client).get(&policy.name).await.map_err(cannot("read the policy"))?;
        let spec = &object.data["spec"];
        let upgrades = if policy.path.len() > 1 { &spec["driver"]["upgradePolicy"] } else { &spec["upgradePolicy"] };
        let upgrades: Option<UpgradePolicy> = serde_json::from_value(upgrades.clone()).unwrap_or_default();
        let settings = upgrade::Settings::of(upgrades.as_ref(), object.metadata.annotations.as_ref());
        let total = self.tally.total();
        Ok(settings.max_unavailable.map_or(total, |amount| amount.of(total)))
    }

    /// Adds status changes of the policy to the timeline.
    pub(super) fn record_status_changes(&self, policy: &GoverningPolicy) {
        let (tally, mut events) = (self.tally.clone(), policy.watch(&self.client));
        let kind = policy.resource.kind.clone();
        self.cluster.context().spawn(async move {
            let mut known: Option<(String, String)> = None;
            while let Ok(Some(object)) = events.try_next().await {
                let status = &object.data["status"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let condition = condition(status, upgrade::CONDITION);
                let (state, upgrade) = (text(&status["state"]), text(&condition["reason"]));
                // The status before the scenario is not recorded.
                if let Some((before, upgrade_before)) = &known {
                    if state != *before {
                        tally.note(format!("{kind}: {state}"));
                    }
                    if upgrade != *upgrade_before && !upgrade.is_empty() {
                        let message = text(&condition["message"]);
                        // Examples of nodes follow the counts.
                        let counts = message.split("; ").next().unwrap_or_default();
                        tally.note(format!("upgrade: {upgrade}: {counts}"));
                    }
                }
                known = Some((state, upgrade));
            }
        });
    }

    /// Final state of the policy, and what it waits for.
    pub(super) async fn verdict(&self, policy: &GoverningPolicy) -> Result<String> {
        let object = policy.api(&self.client).get(&policy.name).await.map_err(cannot("read the policy"))?;
        Ok(state_with_reason(&object.data["status"]))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl GoverningPolicy {
    fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource)
    }

    fn watch(&self, client: &Client) -> futures::stream::BoxStream<'static, watcher::Result<DynamicObject>> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let events = watcher::watcher(self.api(client), only);
        events.default_backoff().applied_objects().boxed()
    }
}

fn cannot(what: &str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Request { what: what.to_owned(), source }
}

fn cannot_watch(source: watcher::Error) -> Error {
    Error::Watch { what: "the policy", source }
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// A state, and unless it is ready the first reason for it.
fn state_with_reason(status: &Value) -> String {
    let state = status["state"].as_str().unwrap_or("nothing is said");
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let bad = conditions.filter(|one| one["type"] != "Error" || one["status"] == "True");
    let mut messages = bad.filter(|one| one["type"] == "Error" || one["status"] == "False");
    match messages.find_map(|one| one["message"].as_str().filter(|message| !message.is_empty())) {
        Some(message) if state != "ready" => format!("{state}: {message}"),
        _ => state.to_owned(),
    }
}

/// Merges `over` into a value.
fn merge(value: &mut Value, over: &Value) {
    match (value, over) {
        (Value::Object(value), Value::Object(over)) => {
            for (key, over) in over {
                merge(value.entry(key.clone()).or_insert(Value::Null), over);
            }
        }
        (_, Value::Null) => {}
        (value, over) => *value = over.clone(),
    }
}
