//! get, list and watch.

use std::time::Duration;

use futures::{FutureExt, StreamExt};

use super::*;

fn show(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Added(object) => format!("+{}", object.name()),
        WatchEvent::Modified(object) => format!("~{}", object.name()),
        WatchEvent::Deleted(object) => format!("-{}", object.name()),
        WatchEvent::Bookmark { revision, initial: false } => format!("@{revision}"),
        WatchEvent::Bookmark { revision, initial: true } => format!("!{revision}"),
        WatchEvent::Error(status) => format!("{} {}", status.code, status.message),
    }
}

/// The events that a watch has sent so far.
fn seen(stream: &mut WatchStream) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(Some(event)) = stream.next().now_or_never() {
        seen.push(show(&event));
    }
    seen
}

async fn watch(bench: &Bench, options: ListOptions) -> WatchStream {
    let target = bench.all("configmaps", Some("default"));
    bench.server.watch(&bench.caller, &target, &options).await.unwrap()
}

async fn write(bench: &Bench, name: &str) -> Value {
    bench.create("configmaps", Some("default"), json!({"metadata": {"name": name}})).await.unwrap()
}

#[tokio::test]
async fn a_list_is_one_moment_and_pages_continue_it() {
    let bench = Bench::new().await;
    for name in ["a", "b", "c"] {
        write(&bench, name).await;
    }
    let all = bench.all("configmaps", None);
    let first = bench.list(&all, ListOptions { limit: 2, ..ListOptions::default() }).await.unwrap();
    write(&bench, "bb").await;
    write(&bench, "d").await;
    let options = ListOptions { limit: 2, continue_token: first.continue_token.unwrap(), ..ListOptions::default() };
    let second = bench.list(&all, options).await.unwrap();
    assert_eq!((names(&first.items), names(&second.items)), (vec!["a".into(), "b".into()], vec!["c".to_owned()]));
    assert_eq!((first.remaining, second.continue_token, second.revision), (Some(1), None, first.revision));
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let bench = Bench::new().await;
    let all = bench.all("configmaps", None);
    let options = |edit: fn(&mut ListOptions)| {
        let mut options = ListOptions::default();
        edit(&mut options);
        options
    };
    let cases = [
        (options(|o| o.label_selector = "a in b".into()), 400, "unable to parse requirement: found 'b' expected: '('"),
        (
            options(|o| o.field_selector = "data.x=1".into()),
            400,
            "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            options(|o| o.resource_version_match = "Exact".into()),
            422,
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (options(|o| o.resource_version = "99".into()), 504, "Timeout: Too large resource version: 99, current: 3"),
        (
            options(|o| o.continue_token = "x".into()),
            400,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
    ];
    for (options, code, message) in cases {
        let status = bench.list(&all, options).await.unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (code, message));
    }
    let pods = ListOptions { field_selector: "spec.image=1".into(), ..ListOptions::default() };
    let status = bench.list(&bench.all("pods", None), pods).await.unwrap_err();
    assert_eq!(status.message, "field label not supported: spec.image");
}

#[tokio::test(start_paused = true)]
async fn a_watch_starts_with_what_is_there() {
    let bench = Bench::new().await;
    write(&bench, "a").await;
    let mut stream = watch(&bench, ListOptions::default()).await;
    write(&bench, "b").await;
    bench.delete(&bench.one("configmaps", Some("default"), "a"), DeleteOptions::default()).await.unwrap();
    assert_eq!(seen(&mut stream), ["+a", "+b", "-a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_a_list() {
    let bench = Bench::new().await;
    let a = write(&bench, "a").await;
    write(&bench, "b").await;
    let resource_version = a["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut stream = watch(&bench, ListOptions { resource_version, ..ListOptions::default() }).await;
    write(&bench, "c").await;
    assert_eq!(seen(&mut stream), ["+b", "+c"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_forgotten_past_ends_with_an_error_event() {
    let bench = Bench::new().await;
    write(&bench, "a").await;
    bench.server.store().compact(4);
    let mut stream = watch(&bench, ListOptions { resource_version: "2".into(), ..ListOptions::default() }).await;
    assert_eq!(show(&stream.next().await.unwrap()), "410 too old resource version: 2 (4)");
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let bench = Bench::new().await;
    write(&bench, "a").await;
    let options = ListOptions {
        send_initial_events: Some(true),
        resource_version_match: "NotOlderThan".into(),
        allow_bookmarks: true,
        ..ListOptions::default()
    };
    let mut stream = watch(&bench, options).await;
    write(&bench, "b").await;
    assert_eq!(seen(&mut stream), ["+a", "!4", "+b"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_by_the_minute_and_the_watch_ends_in_time() {
    let bench = Bench::new().await;
    let options =
        ListOptions { allow_bookmarks: true, timeout: Some(Duration::from_secs(90)), ..ListOptions::default() };
    let mut stream = watch(&bench, options).await;
    assert_eq!(show(&stream.next().await.unwrap()), "!3");
    bench.pod("elsewhere", json!({})).await;
    assert_eq!(show(&stream.next().await.unwrap()), "@4");
    bench.pod("again", json!({})).await;
    assert_eq!(show(&stream.next().await.unwrap()), "@5");
    assert!(stream.next().await.is_none());
    assert_eq!(bench.server.clock().rfc3339(), "2030-01-01T00:01:30Z");
}

#[tokio::test(start_paused = true)]
async fn a_watch_leaves_nothing_behind() {
    let bench = Bench::new().await;
    let stream = watch(&bench, ListOptions::default()).await;
    assert_eq!(bench.server.store().counts().watchers, 1);
    drop(stream);
    assert_eq!(bench.server.store().counts().watchers, 0);
    assert_eq!(bench.server.faults().watches(&crate::faults::Matcher::new()), 0);
}
