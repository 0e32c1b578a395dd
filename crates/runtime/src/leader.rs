//! Leadership: one process of several may write, the one that holds a Lease.
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

/// Name of the lease: that of the NIM Operator, so that the two never write at the same time in one namespace.
pub const NAME: &str = "a0715c6e.nvidia.com";

/// How a lease is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the lease is.
    pub namespace: String,
    /// What the lease goes with.
    pub anchor: Option<Anchor>,
    /// Its name.
    pub name: String,
    /// Who we are: different for every process, also for one that is started again in the same pod.
    pub identity: String,
    /// How long others wait after the last renewal that they saw.
    pub lease: Duration,
    /// How long we write after the last renewal that succeeded. Shorter than `lease`.
    pub renew: Duration,
    /// How often we renew, and how often others look.
    pub retry: Duration,
}

impl Settings {
    /// The usual lease in `namespace`, held as a new process of that pod.
    pub fn new(namespace: &str, pod: &str) -> Self {
        Self {
            namespace: namespace.into(),
            anchor: None,
            name: NAME.into(),
            identity: format!("{pod}_{:016x}", fastrand::u64(..)),
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }

    /// What is wrong with the durations, if anything is.
    pub fn fault(&self) -> Option<String> {
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

/// Holds the lease whenever it can and opens `gate` while it does, until `stop`; then gives the lease back.
///
/// Stop controllers first: what they write afterwards is refused.
pub async fn run(
    client: Client,
    settings: Settings,
    gate: Gate,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let api = Api::namespaced(client.clone(), &settings.namespace);
    let mut candidate = Candidate { client, api, settings, gate, clock, metrics, seen: None, leads_until: None };
    stop.run_until_cancelled(candidate.stand()).await;
    candidate.resign().await;
}

/// A lease as we saw it.
struct ObservedLease {
    lease: Lease,
    /// When we first saw this version of it.
    at: Instant,
}

struct Candidate {
    client: Client,
    api: Api<Lease>,
    settings: Settings,
    gate: Gate,
    clock: Clock,
    metrics: Metrics,
    seen: Option<ObservedLease>,
    leads_until: Option<Instant>,
}

impl Candidate {
    async fn stand(&mut self) {
        let mut failures: u32 = 0;
        loop {
            match self.turn().await {
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
            self.pause().await;
        }
    }

    /// Waits for the next turn. The gate closes by itself; that we no longer lead is noticed here.
    async fn pause(&mut self) {
        let retry = self.settings.retry;
        // Followers spread out, so that not all of them ask at once.
        let spread = if self.leads_until.is_some() { 0.1 } else { 0.5 };
        let pause = sleep(retry.mul_f64(1.0 + spread * fastrand::f64()));
        match self.leads_until {
            None => pause.await,
            Some(until) => tokio::select! {
                () = pause => {}
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

    /// Renews the lease, takes it, or looks at it.
    async fn turn(&mut self) -> Result<(), Error> {
        if self.leads_until.is_some()
            && let Some(seen) = &self.seen
        {
            // Straight away: nobody else may have changed it.
            let lease = seen.lease.clone();
            return match self.take(&lease).await {
                Err(error) if matches!(error.class(), Class::Conflict | Class::NotFound) => self.look_and_take().await,
                other => other,
            };
        }
        self.look_and_take().await
    }

    async fn look_and_take(&mut self) -> Result<(), Error> {
        let name = self.settings.name.clone();
        let answer = self.within("get", self.api.get_opt(&name)).await;
        self.metrics.request("get", "Lease", answer.is_ok());
        let Some(lease) = answer? else { return self.vanished().await };
        let version = |lease: &Lease| (lease.metadata.uid.clone(), lease.metadata.resource_version.clone());
        if self.seen.as_ref().is_none_or(|seen| version(&seen.lease) != version(&lease)) {
            self.seen = Some(ObservedLease { lease: lease.clone(), at: Instant::now() });
        }
        if self.may_take(&lease) {
            return self.take(&lease).await;
        }
        // Somebody else holds it, whatever we believed.
        if self.leads_until.take().is_some() {
            self.gate.close();
            self.metrics.leading(false);
            tracing::warn!(holder = holder(&lease), "lease held by another instance; stopped leading");
        }
        Ok(())
    }

    /// The lease is not there. If somebody held it when we saw it last they may still write: that it was deleted tells
    /// nothing. Only its holder makes it anew at once.
    async fn vanished(&mut self) -> Result<(), Error> {
        if self.seen.as_ref().is_some_and(|seen| !self.may_take(&seen.lease)) {
            return Ok(());
        }
        self.create().await
    }

    fn may_take(&self, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        let holder = holder(lease);
        if holder.is_empty() || holder == self.settings.identity {
            return true;
        }
        // What the holder promised counts, not what we would have.
        let promised =
            spec.and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
        let duration = promised.map_or(self.settings.lease, Duration::from_secs);
        self.seen.as_ref().is_some_and(|seen| seen.at.elapsed() > duration)
    }

    async fn create(&mut self) -> Result<(), Error> {
        let owner_references = owners(self.settings.anchor.as_ref(), &self.client).await;
        let begun = Instant::now();
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
        let answer = self.within("create", self.api.create(&params, &lease)).await;
        self.metrics.request("create", "Lease", answer.is_ok());
        self.took(answer?, begun);
        Ok(())
    }

    /// Writes our name into `lease`, if it still is what was seen.
    async fn take(&mut self, lease: &Lease) -> Result<(), Error> {
        let begun = Instant::now();
        let version = json!({"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": version, "spec": self.spec(Some(lease))}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let name = self.settings.name.clone();
        let answer = self.within("patch", self.api.patch(&name, &params, &patch)).await;
        self.metrics.request("patch", "Lease", answer.is_ok());
        self.took(answer?, begun);
        Ok(())
    }

    fn took(&mut self, lease: Lease, begun: Instant) {
        let until = begun + self.settings.renew;
        self.seen = Some(ObservedLease { lease, at: Instant::now() });
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

    /// Gives the lease back, after the last write has ended.
    async fn resign(&mut self) {
        self.gate.close();
        self.metrics.leading(false);
        if self.leads_until.take().is_none() {
            return;
        }
        let _ = timeout(self.settings.lease - self.settings.renew, self.gate.drained()).await;
        let Some(seen) = &self.seen else { return };
        let mut released = self.release(&seen.lease).await;
        // A renewal that we did not wait for may have been carried out.
        if released.as_ref().is_err_and(|error| error.class() == Class::Conflict)
            && let Ok(lease) = self.within("get", self.api.get(&self.settings.name)).await
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
        self.within("patch", self.api.patch(&self.settings.name, &params, &patch)).await.map(drop)
    }

    /// A request that hangs must leave time for the next one.
    async fn within<T>(&self, verb: &'static str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        let what = || format!("Lease {}/{}", self.settings.namespace, self.settings.name);
        match timeout(self.settings.renew / 2, request).await {
            Ok(answer) => answer.map_err(|error| Error::request(verb, what(), error)),
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
        assert_eq!(usual.fault(), None);
        let cases = [
            Settings { lease: Duration::ZERO, ..usual.clone() },
            Settings { renew: Duration::from_secs(15), ..usual.clone() },
            Settings { retry: Duration::from_secs(6), ..usual.clone() },
            Settings { retry: Duration::ZERO, ..usual },
        ];
        for case in cases {
            assert!(case.fault().is_some(), "{case:?}");
        }
    }
}
