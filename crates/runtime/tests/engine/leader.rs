//! Never two leaders, whatever clocks and connections do.

use std::time::Duration;

use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_runtime::leader::{self, Settings};
use capstan_runtime::{Clock, Gate, Metrics};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, Link, until, within};

struct Candidate {
    link: Link,
    gate: Gate,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// A candidate whose clock is wrong by so many seconds.
fn candidate(cluster: &Cluster, name: &str, skew: i64) -> Candidate {
    let (link, gate, stop) = (cluster.link(), Gate::closed(), CancellationToken::new());
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(2_000_000_000 + skew));
    let run = leader::run(
        link.client(),
        Settings::new("default", name),
        gate.clone(),
        clock,
        Metrics::default(),
        stop.clone(),
    );
    let task = tokio::spawn(run);
    Candidate { link, gate, stop, task }
}

async fn lease(cluster: &Cluster) -> Lease {
    kube::Api::namespaced(cluster.admin.clone(), "default").get("a0715c6e.nvidia.com").await.unwrap()
}

/// Watches both for a while: at no time do both lead. Returns when the second began to lead, if it did.
async fn never_both(seconds: u64, first: &Candidate, second: &Candidate) -> Option<Duration> {
    let (start, mut began) = (Instant::now(), None);
    while start.elapsed() < Duration::from_secs(seconds) {
        assert!(!(first.gate.is_open() && second.gate.is_open()), "two leaders at {:?}", start.elapsed());
        if second.gate.is_open() {
            began.get_or_insert(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began
}

#[tokio::test(start_paused = true)]
async fn a_lost_leader_stops_before_the_next_one_starts_whatever_their_clocks_say() {
    for skew in [-86_400, -10, 0, 10, 86_400] {
        let cluster = Cluster::start().await;
        let first = candidate(&cluster, "first", 0);
        within(5, "the first", first.gate.opened()).await;
        let second = candidate(&cluster, "second", skew);
        assert_eq!(never_both(60, &first, &second).await, None, "skew {skew}");
        first.link.cut();
        let start = Instant::now();
        until(11, "the first stops", || !first.gate.is_open()).await;
        let stopped = start.elapsed();
        assert!(stopped > Duration::from_secs(7), "{stopped:?}");
        let began = start.elapsed() + never_both(15, &first, &second).await.unwrap();
        assert!(began - stopped >= Duration::from_secs(3), "{skew}: {stopped:?} then {began:?}");
        // The first comes back and follows.
        first.link.mend();
        never_both(30, &first, &second).await;
        assert!(second.gate.is_open());
        let spec = lease(&cluster).await.spec.unwrap();
        assert!(spec.holder_identity.unwrap().starts_with("second_"));
        assert_eq!(spec.lease_transitions, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_leadership() {
    let cluster = Cluster::start().await;
    let first = candidate(&cluster, "first", 0);
    within(5, "the first", first.gate.opened()).await;
    let second = candidate(&cluster, "second", 0);
    for _ in 0..10 {
        first.link.cut();
        assert_eq!(never_both(6, &first, &second).await, None);
        assert!(first.gate.is_open());
        first.link.mend();
        assert_eq!(never_both(9, &first, &second).await, None);
        assert!(first.gate.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn slow_and_lost_answers_are_no_second_leader() {
    let cluster = Cluster::start().await;
    let first = candidate(&cluster, "first", 0);
    within(5, "the first", first.gate.opened()).await;
    let second = candidate(&cluster, "second", 0);
    let leases = || Matcher::new().resource("leases");
    cluster.server.faults().add(Fault::delay(leases(), Duration::from_secs(3)));
    never_both(120, &first, &second).await;
    cluster.server.faults().clear();
    cluster.server.faults().add(Fault::lose_answer(leases().verb(Verb::Patch)));
    never_both(120, &first, &second).await;
    cluster.server.faults().clear();
    never_both(60, &first, &second).await;
    assert!(first.gate.is_open() != second.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let cluster = Cluster::start().await;
    let first = candidate(&cluster, "first", 0);
    within(5, "the first", first.gate.opened()).await;
    let second = candidate(&cluster, "second", 0);
    never_both(10, &first, &second).await;
    first.stop.cancel();
    within(1, "the end", first.task).await.unwrap();
    assert!(!first.gate.is_open());
    assert_eq!(lease(&cluster).await.spec.unwrap().holder_identity.unwrap_or_default(), "");
    within(4, "the second", second.gate.opened()).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_started_again_waits_like_any_other() {
    let cluster = Cluster::start().await;
    let before = candidate(&cluster, "pod", 0);
    within(5, "the first", before.gate.opened()).await;
    before.task.abort();
    let start = Instant::now();
    let after = candidate(&cluster, "pod", 0);
    within(30, "the next", after.gate.opened()).await;
    assert!(start.elapsed() >= Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_anew() {
    let cluster = Cluster::start().await;
    let first = candidate(&cluster, "first", 0);
    within(5, "the first", first.gate.opened()).await;
    let second = candidate(&cluster, "second", 0);
    never_both(5, &first, &second).await;
    let api: kube::Api<Lease> = kube::Api::namespaced(cluster.admin.clone(), "default");
    api.delete("a0715c6e.nvidia.com", &Default::default()).await.unwrap();
    never_both(60, &first, &second).await;
    assert!(first.gate.is_open() != second.gate.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_given_back_even_in_the_middle_of_a_renewal() {
    let cluster = Cluster::start().await;
    let first = candidate(&cluster, "first", 0);
    within(5, "the first", first.gate.opened()).await;
    let renewals = Matcher::new().resource("leases").verb(Verb::Patch);
    let slow = cluster.server.faults().add(Fault::delay(renewals, Duration::from_secs(1)).nth(1));
    until(5, "a renewal runs", || slow.hits() == 1).await;
    // The answer is not waited for, but the write happens.
    let before = lease(&cluster).await.metadata.resource_version;
    first.stop.cancel();
    within(3, "the end", first.task).await.unwrap();
    let after = lease(&cluster).await;
    assert_ne!(after.metadata.resource_version, before);
    assert_eq!(after.spec.unwrap().holder_identity.unwrap_or_default(), "");
}
