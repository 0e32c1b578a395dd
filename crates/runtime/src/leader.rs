//! Leader election: only the process that holds the Lease may write.
//!
//! - No clock of another host is trusted. A lease counts as expired when *we* have seen it unchanged for its duration.
//! - Writes stop before anybody else can start. The gate is open until the renew deadline, counted from *before* the
//!   request that renewed the lease; others count the longer lease duration from after it. Nobody has to notice that a
//!   lease was lost: the gate closes by itself.
//! - Losing the lease ends no process: it becomes a follower with warm caches.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::anchor::{Anchor, owners};
use crate::clock::Clock;
use crate::error::{Class, Error};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::writer::FIELD_MANAGER;

/// Name of the Lease: that of the NIM Operator, so that the two never write at the same time in one namespace.
pub const LEASE_NAME: &str = "a0715c6e.nvidia.com";

/// Leader election settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Owner of the Lease, for garbage collection.
    pub anchor: Option<Anchor>,
    /// Its name.
    pub name: String,
    /// Holder identity: unique per process, also after a restart in the same pod.
    pub identity: String,
    /// Lease duration: how long others wait after the last renewal they observed.
    pub lease: Duration,
    /// Renew deadline: how long we write after the last successful renewal. Shorter than `lease`.
    pub renew: Duration,
    /// Retry period: interval of renewals, and of reads by followers.
    pub retry: Duration,
}

impl Settings {
    /// The default lease in `namespace`, held by a new process of the pod.
    pub fn new(namespace: &str, pod: &str) -> Self {
        Self {
            namespace: namespace.into(),
            anchor: None,
            name: LEASE_NAME.into(),
            identity: format!("{pod}_{:016x}", fastrand::u64(..)),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// Why the durations are invalid, if they are.
    pub fn invalid(&self) -> Option<String> {
        let Self { lease, renew, retry, .. } = self;
        if lease.as_secs() < 1 {
            Some(format!("the lease duration is {lease:?}: it must be at least 1s"))
        } else if renew >= lease {
            Some(format!("the renew deadline {renew:?} must be shorter than the lease duration {lease:?}"))
        } else if *retry * 2 > *renew || retry.is_zero() {
            Some(format!("the retry period {retry:?} must be at most half of the renew deadline {renew:?}"))
        } else {
            None
        }
    }
}

/// Acquires and renews the lease until `stop`, and opens `gate` while it is held; then releases it.
///
/// Stop controllers first: later writes are rejected.
pub async fn run(
    client: Client,
    settings: Settings,
    gate: Gate,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let api = Api::namespaced(client.clone(), &settings.namespace);
    let mut candidate = Candidate { client, api, settings, gate, clock, metrics, observed: None, leads_until: None };
    stop.run_until_cancelled(candidate.campaign()).await;
    candidate.resign().await;
}

/// A Lease as last observed.
struct ObservedLease {
    lease: Lease,
    /// When this version was first observed.
    at: Instant,
}

struct Candidate {
    client: Client,
    api: Api<Lease>,
    settings: Settings,
    gate: Gate,
    clock: Clock,
    metrics: Metrics,
    observed: Option<ObservedLease>,
    leads_until: Option<Instant>,
}

impl Candidate {
    async fn campaign(&mut self) {
        let mut failures: u32 = 0;
        loop {
            match self.renew_or_acquire().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == 1 && error.class() != Class::Conflict {
                        tracing::warn!(error = error.chain(), "lease renewal failed; retrying");
                    } else {
                        tracing::debug!(error = error.chain(), failures, "lease renewal failed");
                    }
                }
            }
            self.wait().await;
        }
    }

    /// Waits for the retry period. The gate closes at its deadline by itself; here we notice that we lost the lease.
    async fn wait(&mut self) {
        let retry = self.settings.retry;
        // Jitter: followers do not all read at once.
        let spread = if self.leads_until.is_some() { 0.1 } else { 0.5 };
        let wait = sleep(retry.mul_f64(1.0 + spread * fastrand::f64()));
        match self.leads_until {
            None => wait.await,
            Some(until) => tokio::select! {
                () = wait => {}
                () = sleep_until(until) => {}
            },
        }
        if self.leads_until.is_some_and(|until| until <= Instant::now()) {
            self.leads_until = None;
            self.gate.close();
            self.metrics.leading(false);
            tracing::warn!("lease expired; stopped leading");
        }
    }

    /// Renews, acquires or observes the lease.
    async fn renew_or_acquire(&mut self) -> Result<(), Error> {
        if self.leads_until.is_some()
            && let Some(observed) = &self.observed
        {
            // Patch without a GET: nobody else may have changed it.
            let lease = observed.lease.clone();
            return match self.acquire(&lease).await {
                Err(error) if matches!(error.class(), Class::Conflict | Class::NotFound) => {
                    self.observe_and_acquire().await
                }
                other => other,
            };
        }
        self.observe_and_acquire().await
    }

    async fn observe_and_acquire(&mut self) -> Result<(), Error> {
        let name = self.settings.name.clone();
        let response = self.with_timeout("get", self.api.get_opt(&name)).await;
        self.metrics.request("get", "Lease", response.is_ok());
        let Some(lease) = response? else { return self.recreate().await };
        let version = |lease: &Lease| (lease.metadata.uid.clone(), lease.metadata.resource_version.clone());
        if self.observed.as_ref().is_none_or(|observed| version(&observed.lease) != version(&lease)) {
            self.observed = Some(ObservedLease { lease: lease.clone(), at: Instant::now() });
        }
        if self.may_acquire(&lease) {
            return self.acquire(&lease).await;
        }
        // Another process holds it, whatever we believed.
        if self.leads_until.take().is_some() {
            self.gate.close();
            self.metrics.leading(false);
            tracing::warn!(holder = holder(&lease), "lease held by another instance; stopped leading");
        }
        Ok(())
    }

    /// The Lease was deleted. Its last holder may still write, so only that holder recreates it at once.
    async fn recreate(&mut self) -> Result<(), Error> {
        if self.observed.as_ref().is_some_and(|observed| !self.may_acquire(&observed.lease)) {
            return Ok(());
        }
        self.create().await
    }

    fn may_acquire(&self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        let holder = holder(lease);
        if holder.is_empty() || holder == self.settings.identity {
            return true;
        }
        // The duration that the holder wrote counts, not ours.
        let holder_duration =
            spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let duration = holder_duration.map_or(self.settings.lease, Duration::from_secs);
        self.observed.as_ref().is_some_and(|observed| observed.at.elapsed() > duration)
    }

    async fn create(&mut self) -> Result<(), Error> {
        let owner_references = owners(self.settings.anchor.as_ref(), &self.client).await;
        let requested_at = Instant::now();
        let Settings { namespace, name, .. } = &self.settings;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                owner_references,
                ..ObjectMeta::default()
            },
            spec: serde_json::from_value::<LeaseSpec>(self.spec(None)).ok(),
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let response = self.with_timeout("create", self.api.create(&params, &lease)).await;
        self.metrics.request("create", "Lease", response.is_ok());
        self.acquired(response?, requested_at);
        Ok(())
    }

    /// Writes our identity into `lease`, with its resourceVersion as precondition.
    async fn acquire(&mut self, lease: &Lease) -> Result<(), Error> {
        let requested_at = Instant::now();
        let version = json!({"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": version, "spec": self.spec(Some(lease))}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let name = self.settings.name.clone();
        let response = self.with_timeout("patch", self.api.patch(&name, &params, &patch)).await;
        self.metrics.request("patch", "Lease", response.is_ok());
        self.acquired(response?, requested_at);
        Ok(())
    }

    fn acquired(&mut self, lease: Lease, requested_at: Instant) {
        let until = requested_at + self.settings.renew;
        self.observed = Some(ObservedLease { lease, at: Instant::now() });
        if until <= Instant::now() {
            return;
        }
        if self.leads_until.replace(until).is_none() {
            tracing::info!(identity = self.settings.identity, "leading");
            self.metrics.leading(true);
        }
        self.gate.open_until(until);
    }

    fn spec(&self, old: Option<&Lease>) -> Value {
        let now = MicroTime(self.clock.now());
        let mut spec = json!({
            "holderIdentity": self.settings.identity,
            "leaseDurationSeconds": self.settings.lease.as_secs(),
            "renewTime": now,
        });
        if old.is_none_or(|old| holder(old) != self.settings.identity) {
            let before = old.and_then(|old| old.spec.as_ref()?.lease_transitions);
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = before.map_or(0, |count| count.saturating_add(1)).into();
        }
        spec
    }

    /// Releases the lease, after the last write has ended.
    async fn resign(&mut self) {
        self.gate.close();
        self.metrics.leading(false);
        if self.leads_until.take().is_none() {
            return;
        }
        let _ = timeout(self.settings.lease - self.settings.renew, self.gate.drained()).await;
        let Some(observed) = &self.observed else { return };
        let mut released = self.release(&observed.lease).await;
        // A renewal that we did not wait for may have been applied.
        if released.as_ref().is_err_and(|error| error.class() == Class::Conflict)
            && let Ok(lease) = self.with_timeout("get", self.api.get(&self.settings.name)).await
            && holder(&lease) == self.settings.identity
        {
            released = self.release(&lease).await;
        }
        match released {
            Ok(()) => tracing::info!("lease released"),
            Err(error) => tracing::warn!(error = error.chain(), "lease not released"),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        let version = json!({"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version});
        let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 1});
        let patch = Patch::Merge(json!({"metadata": version, "spec": spec}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        self.with_timeout("patch", self.api.patch(&self.settings.name, &params, &patch)).await.map(drop)
    }

    /// Limits a request, so that one that hangs leaves time for a retry.
    async fn with_timeout<T>(
        &self,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let what = || format!("Lease {}/{}", self.settings.namespace, self.settings.name);
        match timeout(self.settings.renew / 2, request).await {
            Ok(response) => response.map_err(|error| Error::request(verb, what(), error)),
            Err(_) => Err(Error::Timeout { verb, what: what() }),
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_cannot_work_are_named() {
        let usual = Settings::new("ns", "pod");
        assert_eq!(usual.invalid(), None);
        let cases = [
            Settings { lease: Duration::ZERO, ..usual.clone() },
            Settings { renew: Duration::from_secs(15), ..usual.clone() },
            Settings { retry: Duration::from_secs(6), ..usual.clone() },
            Settings { retry: Duration::ZERO, ..usual },
        ];
        for case in cases {
            assert!(case.invalid().is_some(), "{case:?}");
        }
    }
}
