//! Faults.

use std::time::Duration;

use futures::{FutureExt, StreamExt};

use super::*;
use crate::error::Status;
use crate::faults::{Fault, Matcher, Verb, is_disconnected};

async fn write(bench: &Bench, name: &str) -> Result<Value> {
    bench.create("configmaps", Some("default"), json!({"metadata": {"name": name}})).await
}

#[tokio::test]
async fn the_nth_request_fails_and_no_other() {
    let bench = Bench::new().await;
    let matcher = Matcher::new().verb(Verb::Create).resource("configmaps");
    let fault = Fault::fail(matcher, Status::new(503, "ServiceUnavailable", "later")).nth(2);
    let handle = bench.server.faults().add(fault);
    write(&bench, "a").await.unwrap();
    bench.pod("not-meant", json!({})).await;
    assert_eq!(write(&bench, "b").await.unwrap_err().code, 503);
    write(&bench, "b").await.unwrap();
    assert_eq!(handle.hits(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_are_delayed() {
    let bench = Bench::new().await;
    bench.server.faults().add(Fault::delay(Matcher::new().name("a"), Duration::from_secs(5)));
    let _ = bench.get(&bench.one("configmaps", Some("default"), "a")).await;
    let _ = bench.get(&bench.one("configmaps", Some("default"), "b")).await;
    assert_eq!(bench.server.clock().rfc3339(), "2030-01-01T00:00:05Z");
}

#[tokio::test]
async fn an_answer_is_lost_and_the_write_is_not() {
    let bench = Bench::new().await;
    let handle = bench.server.faults().add(Fault::lose_answer(Matcher::new().writes()).first(1));
    assert!(is_disconnected(&write(&bench, "a").await.unwrap_err()));
    assert_eq!(write(&bench, "a").await.unwrap_err().reason, "AlreadyExists");
    handle.remove();
}

#[tokio::test]
async fn lists_are_stale_until_the_fault_goes() {
    let bench = Bench::new().await;
    write(&bench, "a").await.unwrap();
    write(&bench, "b").await.unwrap();
    let all = bench.all("configmaps", None);
    let handle = bench.server.faults().add(Fault::stale(Matcher::new().resource("configmaps"), 1));
    assert_eq!(names(&bench.list(&all, ListOptions::default()).await.unwrap().items), ["a"]);
    handle.remove();
    assert_eq!(names(&bench.list(&all, ListOptions::default()).await.unwrap().items), ["a", "b"]);
}

#[tokio::test]
async fn one_client_is_cut_off() {
    let bench = Bench::new().await;
    let all = bench.all("configmaps", None);
    let other = Caller { user_agent: "other".into(), ..bench.caller.clone() };
    let mut mine = bench.server.watch(&bench.caller, &all, &ListOptions::default()).await.unwrap();
    let mut theirs = bench.server.watch(&other, &all, &ListOptions::default()).await.unwrap();
    let cut = bench.server.faults().cut_off(Matcher::new().user_agent("other"));
    assert!(theirs.next().await.is_none());
    assert!(mine.next().now_or_never().is_none());
    assert!(is_disconnected(&bench.server.list(&other, &all, &ListOptions::default()).await.unwrap_err()));
    assert!(write(&bench, "a").await.is_ok());
    assert_eq!(cut.hits(), 1);
    cut.remove();
    assert!(bench.server.list(&other, &all, &ListOptions::default()).await.is_ok());
}

#[tokio::test]
async fn a_watch_repeats_itself() {
    let bench = Bench::new().await;
    let all = bench.all("configmaps", None);
    let mut stream = bench.server.watch(&bench.caller, &all, &ListOptions::default()).await.unwrap();
    let since = bench.server.store().revision();
    write(&bench, "a").await.unwrap();
    assert!(matches!(stream.next().await, Some(WatchEvent::Added(_))));
    assert_eq!(bench.server.faults().replay_watches(&Matcher::new(), since), 1);
    assert!(matches!(stream.next().await, Some(WatchEvent::Added(_))));
    assert!(stream.next().now_or_never().is_none());
}

#[tokio::test]
async fn a_watch_ends_after_some_events() {
    let bench = Bench::new().await;
    bench.server.faults().add(Fault::end_watch(Matcher::new(), 1).first(1));
    let all = bench.all("namespaces", None);
    let stream = bench.server.watch(&bench.caller, &all, &ListOptions::default()).await.unwrap();
    assert_eq!(stream.count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_world_stands_still() {
    let bench = Arc::new(Bench::new().await);
    let all = bench.all("configmaps", None);
    let mut stream = bench.server.watch(&bench.caller, &all, &ListOptions::default()).await.unwrap();
    write(&bench, "a").await.unwrap();
    bench.server.faults().pause();
    let writer = tokio::spawn({
        let bench = bench.clone();
        async move { write(&bench, "b").await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!writer.is_finished());
    assert!(stream.next().now_or_never().is_none());
    bench.server.faults().resume();
    writer.await.unwrap().unwrap();
    assert_eq!(stream.take(2).count().await, 2);
}
