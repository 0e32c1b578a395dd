//! The supervisor in virtual time, with roles that report starts and ends, fail and panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use capstan_hw::gpu::nvidia::Source;
use capstan_hw::gpu::nvidia::driver::Roots;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ApiAccess;

fn cx() -> Cx {
    Cx::new(Arc::new(Source::nvml(Roots::local())), Roots::local(), "/", CancellationToken::new())
}

/// Roles that report when they start and end, and the source of labels.
struct Labelled {
    transitions: UnboundedReceiver<(&'static str, bool)>,
    facts_sender: UnboundedSender<Result<NodeFacts>>,
    cx: Cx,
    all: JoinHandle<Result<()>>,
}

impl Labelled {
    fn of(names: &[&'static str]) -> Self {
        let (sender, transitions) = mpsc::unbounded_channel();
        let (facts_sender, facts) = unbounded();
        let role = |name: &'static str| {
            let sender = sender.clone();
            Role::new(name, move |cx: Cx| {
                let sender = sender.clone();
                Box::pin(async move {
                    let _ = sender.send((name, true));
                    cx.stop.cancelled().await;
                    let _ = sender.send((name, false));
                    Ok(())
                })
            })
        };
        let (roles, cx) = (names.iter().map(|name| role(name)).collect(), cx());
        let (sender, labels) = watch::channel(None);
        tokio::spawn(forward_labels(facts, sender));
        let all = tokio::spawn(run(roles, Some(labels), Settings::default(), cx.clone()));
        Self { transitions, facts_sender, cx, all }
    }

    /// Sets the labels that enable these roles.
    fn wants(&self, roles: &[&str]) {
        let label = |name: &&str| capstan_node::role(name).and_then(|role| role.deploy_label).expect("a label");
        let labels = roles.iter().map(|role| (label(role).to_owned(), "true".to_owned())).collect();
        let facts = NodeFacts { labels, ..NodeFacts::default() };
        self.facts_sender.unbounded_send(Ok(facts)).expect("a receiver");
    }

    async fn next(&mut self) -> (&'static str, bool) {
        self.transitions.recv().await.expect("a transition")
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_pauses_alone_while_its_label_is_not_true() {
    let mut node = Labelled::of(&["device-plugin", "exporter"]);
    node.wants(&["device-plugin"]);
    assert_eq!(node.next().await, ("device-plugin", true));
    node.wants(&["device-plugin", "exporter"]);
    assert_eq!(node.next().await, ("exporter", true));
    node.wants(&["exporter"]);
    assert_eq!(node.next().await, ("device-plugin", false));
    let mut health = node.cx.health.subscribe();
    health.wait_for(|roles| roles[0].state == State::Paused).await.expect("it is paused");
    node.wants(&["device-plugin", "exporter"]);
    assert_eq!(node.next().await, ("device-plugin", true));
    node.cx.stop.cancel();
    node.all.await.expect("they end").expect("ended without error");
}

#[tokio::test(start_paused = true)]
async fn roles_run_where_nobody_tells_the_labels() {
    let mut node = Labelled::of(&["device-plugin"]);
    node.facts_sender.unbounded_send(Err(Error::External("no API server".into()))).expect("a receiver");
    let began = Instant::now();
    assert_eq!(node.next().await, ("device-plugin", true));
    assert_eq!(began.elapsed(), LABELS_TIMEOUT);
    node.wants(&[]);
    assert_eq!(node.next().await, ("device-plugin", false), "until somebody does");
}

#[tokio::test(start_paused = true)]
async fn a_paused_role_ends_with_the_process() {
    let mut node = Labelled::of(&["device-plugin"]);
    node.wants(&["device-plugin"]);
    assert_eq!(node.next().await, ("device-plugin", true));
    node.wants(&[]);
    node.cx.stop.cancel();
    node.all.await.expect("they end").expect("ended without error");
}

/// A role that fails at once, by an error or a panic, and one beside it that counts its starts.
fn failing(panics: bool) -> (Vec<Role>, Arc<AtomicU32>) {
    let fails = Role::new("exporter", move |_| {
        Box::pin(async move {
            assert!(!panics, "index out of bounds");
            Err(Error::Config("DCGM_EXPORTER_LISTEN: 'x' is no address".into()))
        })
    });
    let starts = Arc::new(AtomicU32::new(0));
    let counted = starts.clone();
    let steady = Role::new("device-plugin", move |cx: Cx| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            cx.stop.cancelled().await;
            Ok(())
        })
    });
    (vec![steady, fails], starts)
}

#[tokio::test(start_paused = true)]
async fn a_role_that_fails_or_panics_is_restarted_with_growing_delays_and_alone() {
    for (panics, kind, message) in [
        (false, FailureKind::Configuration, "DCGM_EXPORTER_LISTEN: 'x' is no address"),
        (true, FailureKind::Panic, "panicked: index out of bounds"),
    ] {
        let (cx, (roles, starts)) = (cx(), failing(panics));
        let all = tokio::spawn(supervise(roles, Settings::default(), cx.clone()));
        let mut health = cx.health.subscribe();
        let mut began = Instant::now();
        for (restarts, longest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)] {
            health.wait_for(|roles| roles.len() == 2 && roles[1].restarts == restarts).await.expect("restarts");
            let longest = Duration::from_secs(longest);
            let delay = began.elapsed();
            assert!(delay <= longest + Duration::from_millis(2) && delay >= longest.mul_f64(0.75), "{delay:?}");
            began = Instant::now();
        }
        let failure = cx.health.report().roles[1].last_failure.clone().expect("a failure");
        assert_eq!((failure.kind, failure.message.as_str()), (kind, message));
        assert!(!cx.health.report().healthy);
        assert_eq!(starts.load(Ordering::Relaxed), 1, "the role beside it goes on");
        cx.stop.cancel();
        all.await.expect("no panic reaches the process").expect("no failure does");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_runs_long_enough_has_recovered() {
    let (cx, backoff) = (cx(), Backoff::default());
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    // It fails twice at once; the third time it runs for long, then fails.
    let role = Role::new("exporter", move |_| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if run >= 2 {
                tokio::time::sleep(backoff.reset_after * 2).await;
            }
            Err(Error::External("the driver went away".into()))
        })
    });
    let all = tokio::spawn(supervise(vec![role], Settings::default(), cx.clone()));
    let mut health = cx.health.subscribe();
    health.wait_for(|roles| roles.iter().any(|role| role.failures == 2)).await.expect("two failures");
    health.wait_for(|roles| roles[0].failures == 0).await.expect("it recovers");
    assert_eq!(cx.health.report().roles[0].state, State::Running);
    health.wait_for(|roles| roles[0].failures == 1).await.expect("the next failure is a first one");
    assert!(cx.health.report().healthy, "and has the time of its backoff");
    cx.stop.cancel();
    all.await.expect("ended").expect("well");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_completes_leaves_the_others_and_the_last_ends_all() {
    let done = |name, seconds| {
        Role::new(name, move |_| {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(())
            })
        })
    };
    let cx = cx();
    let began = Instant::now();
    let settings = Settings::default();
    supervise(vec![done("config-manager", 1), done("exporter", 5)], settings, cx.clone()).await.expect("all done");
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert!(cx.health.report().roles.iter().all(|role| role.state == State::Completed));
}

#[tokio::test(start_paused = true)]
async fn labels_without_the_name_of_the_node_are_refused() {
    let settings = Settings { follow_node_labels: true, ..Settings::default() };
    let error = supervise(Vec::new(), settings, cx()).await.expect_err("no name").to_string();
    assert!(error.contains("NODE_NAME"), "{error}");
}

/// An API server that accepts or rejects every request, and records them.
fn api_server(code: StatusCode) -> (ApiAccess, UnboundedReceiver<(String, Value)>) {
    let (sent, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sent = sent.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await?;
            let _ = sent.send((path, serde_json::from_slice(&body).unwrap_or_default()));
            let refusal = json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": "Forbidden"});
            let answer = if code.is_success() { body.to_vec() } else { refusal.to_string().into_bytes() };
            let mut response = Response::new(Body::from(answer));
            *response.status_mut() = code;
            Ok::<_, kube::Error>(response)
        }
    });
    (ApiAccess::Given(kube::Client::new(service, "default")), requests)
}

/// Fails this many times at once, then runs.
fn recovering(failures: u32) -> Role {
    let runs = Arc::new(AtomicU32::new(0));
    Role::new("exporter", move |cx: Cx| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if run < failures {
                return Err(Error::External("port 9400 is taken".into()));
            }
            cx.stop.cancelled().await;
            Ok(())
        })
    })
}

#[tokio::test(start_paused = true)]
async fn failures_and_recoveries_are_events_on_the_node() {
    let (api, mut requests) = api_server(StatusCode::CREATED);
    let cx = Cx { api, ..cx() };
    let settings = Settings { node_name: "gpu-1".into(), ..Settings::default() };
    let all = tokio::spawn(supervise(vec![recovering(3)], settings, cx.clone()));
    for (reason, kind, note) in [
        (
            "AgentRoleFailed",
            "Warning",
            "role exporter failed and is restarted (failures in a row: 1): port 9400 is taken",
        ),
        ("AgentRoleRecovered", "Normal", "role exporter runs again"),
    ] {
        let (path, event) = requests.recv().await.expect("an event");
        assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
        let about = json!({"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "gpu-1"});
        assert_eq!(event["regarding"], about);
        assert_eq!([&event["reason"], &event["type"], &event["note"]], [reason, kind, note]);
        assert_eq!([&event["reportingController"], &event["action"]], ["capstan-agent", "Restart"]);
    }
    cx.stop.cancel();
    all.await.expect("ended").expect("well");
}

#[tokio::test(start_paused = true)]
async fn events_that_are_refused_keep_no_role_from_running() {
    let (api, mut requests) = api_server(StatusCode::FORBIDDEN);
    let cx = Cx { api, ..cx() };
    let settings = Settings { node_name: "gpu-1".into(), ..Settings::default() };
    let all = tokio::spawn(supervise(vec![recovering(1)], settings, cx.clone()));
    requests.recv().await.expect("an event was tried");
    let mut health = cx.health.subscribe();
    health.wait_for(|roles| roles[0].state == State::Running && roles[0].restarts == 1).await.expect("it runs");
    cx.stop.cancel();
    all.await.expect("ended").expect("well");
}
