//! The loop: which keys run when, and what a failure does.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_api::nim::NimService;
use capstan_runtime::{Action, Controller, Error, Gate, Key, Runtime};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{Cluster, config_map, nim_service, runtime, until};

async fn fixture(services: &[&str]) -> (Cluster, Runtime, CancellationToken) {
    let cluster = Cluster::start().await;
    cluster.install("nimservice").await;
    for name in services {
        cluster.apply(nim_service(name)).await;
    }
    let (runtime, stop) = runtime(&cluster.link(), Gate::open()).await;
    (cluster, runtime, stop)
}

/// When which key ran.
type Log = Arc<Mutex<Vec<(Duration, String)>>>;

fn times(log: &Log, name: &str) -> Vec<Duration> {
    log.lock().unwrap().iter().filter(|(_, key)| key.ends_with(name)).map(|(at, _)| *at).collect()
}

/// Runs a controller whose reconciles are answered by `answer`, given the key and how often it ran before.
fn start<F>(runtime: &Runtime, stop: &CancellationToken, answer: F) -> Log
where
    F: Fn(&Key, usize) -> Result<Action, Error> + Send + Sync + 'static,
{
    let (log, begin) = (Log::default(), Instant::now());
    let (sink, answer) = (log.clone(), Arc::new(answer));
    let controller = Controller::of::<NimService>("test", runtime);
    let run = controller.run(stop.clone(), move |key| {
        let (sink, answer) = (sink.clone(), answer.clone());
        async move {
            let before = times(&sink, &key.name).len();
            sink.lock().unwrap().push((begin.elapsed(), key.to_string()));
            answer(&key, before)
        }
    });
    tokio::spawn(run);
    log
}

/// A ConfigMap that the service `a` controls.
async fn child(cluster: &Cluster, name: &str) -> Value {
    let owner = cluster.get(&nim_service("a")).await.unwrap()["metadata"]["uid"].clone();
    let mut child = config_map(name, "1");
    child["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService", "name": "a", "uid": owner, "controller": true}
    ]);
    child
}

fn failure() -> Error {
    Error::Timeout { verb: "apply", what: "something".into() }
}

#[tokio::test(start_paused = true)]
async fn every_object_is_looked_at_once_and_again_when_it_or_what_it_controls_changes() {
    let (cluster, runtime, stop) = fixture(&["a", "b"]).await;
    let log = start(&runtime, &stop, |_, _| Ok(Action::AwaitChange));
    until(5, "both", || log.lock().unwrap().len() == 2).await;
    let child = child(&cluster, "child").await;
    cluster.apply(child.clone()).await;
    until(5, "its child", || times(&log, "a").len() == 2).await;
    cluster.delete(&child).await;
    until(5, "its child's end", || times(&log, "a").len() == 3).await;
    cluster.delete(&nim_service("a")).await;
    until(5, "its own end", || times(&log, "a").len() == 4).await;
    cluster.apply(config_map("nobodys", "1")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((times(&log, "a").len(), times(&log, "b").len()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn children_that_change_together_are_looked_at_once() {
    let (cluster, runtime, stop) = fixture(&["a"]).await;
    let log = start(&runtime, &stop, |_, _| Ok(Action::AwaitChange));
    until(5, "the first", || times(&log, "a").len() == 1).await;
    for name in ["one", "two", "three"] {
        cluster.apply(child(&cluster, name).await).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(times(&log, "a").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_of_ours_is_no_reason_to_look_again() {
    let (_cluster, runtime, stop) = fixture(&["a"]).await;
    let writer = runtime.writer.clone();
    let log = Log::default();
    let sink = log.clone();
    let controller = Controller::of::<NimService>("test", &runtime);
    tokio::spawn(controller.run(stop.clone(), move |key| {
        let (writer, sink) = (writer.clone(), sink.clone());
        async move {
            sink.lock().unwrap().push((Duration::ZERO, key.to_string()));
            let reference = capstan_plan::Ref::of::<NimService>(&key.namespace, &key.name);
            writer.status(&reference, &json!({"state": "Ready"})).await?;
            Ok(Action::AwaitChange)
        }
    }));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.lock().unwrap().len(), 1);
    assert_eq!(runtime.metrics.requests("patch_status", "NIMService"), 1);
}

#[tokio::test(start_paused = true)]
async fn two_keys_run_at_once_and_one_key_never_twice() {
    let (cluster, runtime, stop) = fixture(&["a", "b"]).await;
    let (running, most) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(0)));
    let (inside, peak) = (running.clone(), most.clone());
    let controller = Controller::of::<NimService>("test", &runtime).concurrency(4);
    tokio::spawn(controller.run(stop, move |key| {
        let (inside, peak) = (inside.clone(), peak.clone());
        async move {
            assert!(inside.lock().unwrap().insert(key.clone()), "{key} runs twice at once");
            let now = inside.lock().unwrap().len();
            peak.lock().map(|mut peak| *peak = now.max(*peak)).unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
            inside.lock().unwrap().remove(&key);
            Ok(Action::AwaitChange)
        }
    }));
    for tag in 0..20 {
        for name in ["a", "b"] {
            let mut service = nim_service(name);
            service["spec"]["image"]["tag"] = tag.to_string().into();
            cluster.apply(service).await;
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    until(10, "all done", || running.lock().unwrap().is_empty()).await;
    assert_eq!(*most.lock().unwrap(), 2);
    let failures = runtime.metrics.encode();
    assert!(!failures.contains("class=\"panic\""), "{failures}");
}

#[tokio::test(start_paused = true)]
async fn delays_grow_with_failures_and_start_anew_after_a_success() {
    let (_cluster, runtime, stop) = fixture(&["a"]).await;
    let log = start(&runtime, &stop, |_, before| match before {
        0..6 | 7.. => Err(Error::Panic("as an error of the slow kind".into())),
        6 => Ok(Action::Requeue(Duration::from_secs(1))),
    });
    until(600, "nine tries", || log.lock().unwrap().len() >= 9).await;
    let times = times(&log, "a");
    let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (index, wait) in waits[..6].iter().enumerate() {
        let full = Duration::from_millis(500 << index);
        assert!(*wait >= full / 2 && *wait <= full + Duration::from_millis(50), "{index}: {waits:?}");
    }
    assert!(waits[5] > 10 * waits[0], "{waits:?}");
    assert!(waits[7] <= Duration::from_millis(550), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_for_the_delay() {
    let (cluster, runtime, stop) = fixture(&["a"]).await;
    let log = start(&runtime, &stop, |_, before| match before {
        0..8 => Err(Error::Panic("again".into())),
        _ => Ok(Action::AwaitChange),
    });
    until(600, "eight failures", || times(&log, "a").len() == 8).await;
    let mut edited = nim_service("a");
    edited["spec"]["image"]["tag"] = "fixed".into();
    cluster.apply(edited).await;
    until(1, "the fix", || times(&log, "a").len() == 9).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_of_its_key_and_of_nothing_else() {
    let (_cluster, runtime, stop) = fixture(&["bad", "good"]).await;
    let log = start(&runtime, &stop, |key, _| match &*key.name {
        "bad" => panic!("this object breaks us"),
        _ => Ok(Action::Requeue(Duration::from_secs(10))),
    });
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(times(&log, "good").len() >= 59);
    assert!((5..20).contains(&times(&log, "bad").len()), "{:?}", times(&log, "bad"));
    assert!(runtime.metrics.encode().contains("class=\"panic\""));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_bad_objects_do_not_delay_a_good_one() {
    let bad: Vec<String> = (0..100).map(|index| format!("bad-{index}")).collect();
    let names: Vec<&str> = bad.iter().map(String::as_str).chain(["good"]).collect();
    let (cluster, runtime, stop) = fixture(&names).await;
    let log = start(&runtime, &stop, |key, _| match key.name.starts_with("bad") {
        true => Err(failure()),
        false => Ok(Action::AwaitChange),
    });
    until(5, "the good one", || times(&log, "good").len() == 1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = times(&log, "good").len();
    let mut edited = nim_service("good");
    edited["spec"]["image"]["tag"] = "2".into();
    cluster.apply(edited).await;
    until(1, "its change", || times(&log, "good").len() > before).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_while_the_gate_is_closed_and_nothing_is_lost() {
    let cluster = Cluster::start().await;
    cluster.install("nimservice").await;
    cluster.apply(nim_service("a")).await;
    let gate = Gate::closed();
    let (runtime, stop) = runtime(&cluster.link(), gate.clone()).await;
    let log = start(&runtime, &stop, |_, _| Ok(Action::AwaitChange));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(log.lock().unwrap().is_empty());
    gate.open_until(Instant::now() + Duration::from_secs(10));
    until(1, "the first", || times(&log, "a").len() == 1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.apply(nim_service("b")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(times(&log, "b").is_empty());
    gate.open_until(Instant::now() + Duration::from_secs(10));
    until(1, "the second", || times(&log, "b").len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_runs() {
    let (_cluster, runtime, stop) = fixture(&["a"]).await;
    let finished = Arc::new(Mutex::new(false));
    let (sink, inner) = (finished.clone(), stop.clone());
    let controller = Controller::of::<NimService>("test", &runtime);
    let run = controller.run(stop, move |_| {
        let (sink, stop) = (sink.clone(), inner.clone());
        async move {
            stop.cancel();
            tokio::time::sleep(Duration::from_secs(2)).await;
            *sink.lock().unwrap() = true;
            Ok(Action::AwaitChange)
        }
    });
    run.await;
    assert!(*finished.lock().unwrap());
}
