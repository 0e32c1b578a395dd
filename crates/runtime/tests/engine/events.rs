//! What users read: little, and each thing once.

use std::collections::BTreeSet;
use std::time::Duration;

use capstan_api::nim::NimService;
use capstan_plan::{Note, Ref, Severity};
use capstan_runtime::{Gate, Runtime};
use k8s_openapi::api::core::v1::Event;

use crate::support::{Cluster, runtime, until};

fn note(reason: &'static str, message: &str) -> Note {
    Note { severity: Severity::Warning, reason, message: message.into() }
}

async fn events(cluster: &Cluster) -> Vec<Event> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let api: kube::Api<Event> = kube::Api::namespaced(cluster.admin.clone(), "default");
    api.list(&Default::default()).await.unwrap().items
}

fn say(runtime: &Runtime, notes: &[Note]) {
    let events = runtime.events.named("nimservice-controller");
    events.record_all(&Ref::of::<NimService>("default", "llama"), "uid-1", notes);
}

#[tokio::test(start_paused = true)]
async fn an_event_names_its_object_and_who_says_it() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    say(&runtime, &[note("InvalidSpec", "image: missing")]);
    let event = events(&cluster).await.remove(0);
    let object = event.involved_object;
    assert_eq!((object.kind.as_deref(), object.name.as_deref()), (Some("NIMService"), Some("llama")));
    assert_eq!(object.uid.as_deref(), Some("uid-1"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reason.as_deref(), Some("InvalidSpec"));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("nimservice-controller"));
}

#[tokio::test(start_paused = true)]
async fn the_same_thing_said_in_a_row_is_written_once_and_later_counted() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    for _ in 0..50 {
        say(&runtime, &[note("Pending", "no node has a GPU"), note("Other", "x")]);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let said = events(&cluster).await;
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(|event| event.count == Some(1)));
    say(&runtime, &[]);
    say(&runtime, &[note("Pending", "no node has a GPU")]);
    let said = events(&cluster).await;
    let counts: Vec<_> = said.iter().map(|event| (event.reason.clone().unwrap(), event.count)).collect();
    assert!(counts.contains(&("Pending".into(), Some(2))), "{counts:?}");
    assert_eq!(counts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_goes_on_counting() {
    let cluster = Cluster::start().await;
    for _ in 0..3 {
        let (runtime, stop) = runtime(&cluster.link(), Gate::open()).await;
        say(&runtime, &[note("Pending", "no node has a GPU")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    }
    let said = events(&cluster).await;
    assert_eq!((said.len(), said[0].count), (1, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_flood_the_cluster() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    for index in 0..200 {
        say(&runtime, &[note("Flapping", &format!("try {index}"))]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(events(&cluster).await.len(), 25);
    assert!(runtime.metrics.encode().contains("capstan_events_dropped_total 175"));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_says_nothing() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::closed()).await;
    say(&runtime, &[note("Pending", "x")]);
    assert!(events(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_event_is_lost_when_thousands_of_objects_change_at_once() {
    const OBJECTS: usize = 3000;
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    let say = |object: usize, notes: &[Note]| {
        let reference = Ref::of::<NimService>("default", &format!("model-{object}"));
        runtime.events.record_all(&reference, &format!("uid-{object}"), notes);
    };
    for object in 0..OBJECTS {
        say(object, &[note("Ready", "all replicas are ready")]);
        // Looks that find nothing new are many more than events.
        (0..5).for_each(|_| say(object, &[]));
    }
    until(60, "all are written", || runtime.metrics.requests("create", "Event") == OBJECTS as u64).await;
    let about: BTreeSet<_> = events(&cluster).await.into_iter().map(|event| event.involved_object.name).collect();
    assert_eq!(about.len(), OBJECTS);
    assert!(runtime.metrics.encode().contains("capstan_events_dropped_total 0"));
}

#[tokio::test(start_paused = true)]
async fn what_a_server_that_is_away_cannot_take_is_written_when_it_is_back() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    link.cut();
    say(&runtime, &[note("Pending", "no node has a GPU"), note("Other", "x")]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(link.writes().len() < 400, "a server that is away is not asked for each event");
    link.mend();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let messages: BTreeSet<_> = events(&cluster).await.into_iter().filter_map(|event| event.message).collect();
    assert_eq!(messages, ["no node has a GPU".to_owned(), "x".to_owned()].into());
    assert!(runtime.metrics.encode().contains("capstan_events_dropped_total 0"));
}
