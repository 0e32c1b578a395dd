//! Tests of the store.

use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pods() -> TableKey {
    TableKey::new("", "pods")
}

fn fields() -> FieldPaths {
    FieldPaths::from_iter(["spec.nodeName", "status.phase"])
}

fn object(value: &Value) -> Object {
    let types = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
    Object::new(Arc::new(types), value, &fields())
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{namespace}-{name}")}})
}

fn on_node(namespace: &str, name: &str, node: &str) -> Object {
    let mut pod = pod(namespace, name);
    pod["spec"]["nodeName"] = node.into();
    object(&pod)
}

fn labelled(name: &str, label: &str) -> Object {
    let mut pod = pod("a", name);
    pod["metadata"]["labels"]["app"] = label.into();
    object(&pod)
}

fn names(objects: &[Arc<Object>]) -> Vec<&str> {
    objects.iter().map(|object| object.name()).collect()
}

fn drain(watch: &mut Watch) -> Vec<(EventKind, String, u64)> {
    let mut seen = Vec::new();
    while let Some(Some(event)) = watch.next().now_or_never() {
        seen.push((event.kind, event.object.name().to_owned(), event.object.revision));
    }
    seen
}

fn put(store: &Store, object: Object) -> Arc<Object> {
    match store.get(&pods(), object.namespace(), object.name()) {
        Some(present) => store.update(&pods(), object, present.revision).unwrap(),
        None => store.create(&pods(), object).unwrap(),
    }
}

fn remove(store: &Store, namespace: &str, name: &str) -> Arc<Object> {
    let revision = store.get(&pods(), namespace, name).unwrap().revision;
    store.delete(&pods(), namespace, name, revision).unwrap()
}

fn select(fields: &str) -> Selection {
    Selection { fields: FieldSelector::parse(fields).unwrap(), ..Selection::default() }
}

#[test]
fn each_write_gets_the_next_revision() {
    let store = Store::default();
    let nodes = TableKey::new("", "nodes");
    let first = store.create(&pods(), object(&pod("a", "x"))).unwrap();
    let second = store.create(&nodes, object(&json!({"metadata": {"name": "n"}}))).unwrap();
    let third = store.update(&pods(), object(&pod("a", "x")), first.revision).unwrap();
    let fourth = store.delete(&nodes, "", "n", second.revision).unwrap();
    assert_eq!([first.revision, second.revision, third.revision, fourth.revision], [2, 3, 4, 5]);
    assert_eq!(store.revision(), 5);
    assert_eq!(store.get(&pods(), "a", "x").unwrap().value()["metadata"]["resourceVersion"], "4");
}

#[test]
fn a_write_that_saw_another_state_does_not_happen() {
    let store = Store::default();
    let first = store.create(&pods(), object(&pod("a", "x"))).unwrap();
    assert!(matches!(store.create(&pods(), object(&pod("a", "x"))), Err(WriteError::Conflict(_))));
    assert!(matches!(store.update(&pods(), object(&pod("a", "y")), 2), Err(WriteError::NotFound)));
    store.update(&pods(), object(&pod("a", "x")), first.revision).unwrap();
    assert!(matches!(store.update(&pods(), object(&pod("a", "x")), first.revision), Err(WriteError::Conflict(_))));
    assert!(matches!(store.delete(&pods(), "a", "x", first.revision), Err(WriteError::Conflict(_))));
    assert!(matches!(store.delete(&pods(), "a", "y", 2), Err(WriteError::NotFound)));
    assert_eq!(store.revision(), 3);
}

#[test]
fn lists_are_ordered_like_the_keys_of_a_real_store() {
    let store = Store::default();
    for (namespace, name) in [("a", "z"), ("a-b", "x"), ("b", "a"), ("a", "b")] {
        put(&store, object(&pod(namespace, name)));
    }
    let all = store.select(&pods(), &Selection::default());
    let keys: Vec<_> = all.iter().map(|object| &**object.key()).collect();
    assert_eq!(keys, ["a-b/x", "a/b", "a/z", "b/a"]); // `-` sorts before `/`
    assert_eq!(names(&store.select(&pods(), &Selection::namespace("a"))), ["b", "z"]);
}

#[test]
fn selectors_and_indexes_select_the_same() {
    let store = Store::default();
    for (name, node) in [("x", "n1"), ("y", "n2"), ("z", "n1"), ("w", "")] {
        put(&store, on_node("a", name, node));
    }
    put(&store, on_node("b", "x", "n1"));
    put(&store, on_node("a", "z", "n2"));
    remove(&store, "a", "y");
    let cases: [(Selection, &[&str]); 6] = [
        (select("spec.nodeName=n1"), &["x", "x"]),
        (select("spec.nodeName=n2"), &["z"]),
        (select("spec.nodeName="), &["w"]),
        (select("spec.nodeName!=n1"), &["w", "z"]),
        (select("metadata.name=x"), &["x", "x"]),
        (select("metadata.name=x,metadata.namespace=b"), &["x"]),
    ];
    for (selection, expected) in cases {
        assert_eq!(names(&store.select(&pods(), &selection)), expected, "{selection:?}");
    }
}

#[test]
fn pages_show_the_moment_of_the_first() {
    let store = Store::default();
    for name in ["a", "b", "c", "d", "e"] {
        put(&store, object(&pod("s", name)));
    }
    let mut query = Query { selection: Selection::namespace("s"), limit: 2, ..Query::default() };
    let first = store.list(&pods(), &query).unwrap();
    assert_eq!((names(&first.items), first.remaining), (vec!["a", "b"], Some(3)));
    remove(&store, "s", "c");
    put(&store, object(&pod("s", "ca")));
    put(&store, labelled("elsewhere", "x"));
    query.continue_token = first.continue_token.unwrap();
    let second = store.list(&pods(), &query).unwrap();
    assert_eq!((names(&second.items), second.remaining), (vec!["c", "d"], Some(1)));
    assert_eq!(second.revision, first.revision);
    query.continue_token = second.continue_token.unwrap();
    let third = store.list(&pods(), &query).unwrap();
    assert_eq!((names(&third.items), third.remaining, third.continue_token), (vec!["e"], None, None));
}

#[test]
fn a_page_whose_moment_is_gone_says_how_to_go_on() {
    let store = Store::default();
    for name in ["a", "b", "c"] {
        put(&store, object(&pod("s", name)));
    }
    let mut query = Query { limit: 1, ..Query::default() };
    query.continue_token = store.list(&pods(), &query).unwrap().continue_token.unwrap();
    remove(&store, "s", "b");
    store.compact(store.revision());
    let expired = store.list(&pods(), &query).unwrap_err();
    assert_eq!((expired.code, expired.reason), (410, "Expired"));
    query.continue_token = expired.continue_token.unwrap();
    let rest = store.list(&pods(), &query).unwrap();
    assert_eq!((names(&rest.items), rest.revision), (vec!["c"], store.revision()));
}

#[test]
fn a_token_has_the_form_of_real_servers() {
    use base64::Engine;
    let store = Store::default();
    put(&store, object(&pod("s", "a")));
    put(&store, object(&pod("s", "b")));
    let query = Query { selection: Selection::namespace("s"), limit: 1, ..Query::default() };
    let token = store.list(&pods(), &query).unwrap().continue_token.unwrap();
    let text = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(token).unwrap();
    assert_eq!(text, br#"{"v":"meta.k8s.io/v1","rv":3,"start":"a\u0000"}"#);
}

#[test]
fn revisions_that_cannot_be_shown_are_refused() {
    let store = Store::default();
    put(&store, object(&pod("s", "a")));
    put(&store, object(&pod("s", "b")));
    store.compact(2);
    put(&store, object(&pod("s", "c")));
    let at = |at| store.list(&pods(), &Query { at, ..Query::default() });
    assert_eq!(names(&at(ListRevision::Exact(3)).unwrap().items), ["a", "b"]);
    assert_eq!(names(&at(ListRevision::NotOlderThan(3)).unwrap().items), ["a", "b", "c"]);
    assert_eq!(
        at(ListRevision::Exact(1)).unwrap_err().message,
        "The resourceVersion for the provided list is too old."
    );
    for future in [ListRevision::Exact(9), ListRevision::NotOlderThan(9)] {
        let refused = at(future).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (504, "Timeout: Too large resource version: 9, current: 4")
        );
    }
}

#[test]
fn a_watch_sees_objects_come_into_view_and_go() {
    let store = Store::default();
    let selection = Selection { labels: LabelSelector::parse("app=web").unwrap(), ..Selection::default() };
    let mut watch = store.watch(&pods(), selection, Start::Now).unwrap();
    put(&store, labelled("x", "db"));
    put(&store, labelled("x", "web"));
    put(&store, labelled("x", "web"));
    put(&store, labelled("x", "db"));
    put(&store, labelled("y", "web"));
    remove(&store, "a", "y");
    remove(&store, "a", "x");
    use EventKind::{Added, Deleted, Modified};
    let expected = [(Added, "x", 3), (Modified, "x", 4), (Deleted, "x", 5), (Added, "y", 6), (Deleted, "y", 7)];
    assert_eq!(drain(&mut watch), expected.map(|(kind, name, revision)| (kind, name.to_owned(), revision)));
}

#[test]
fn an_object_that_leaves_the_view_shows_its_last_selected_state() {
    let store = Store::default();
    let selection = Selection { labels: LabelSelector::parse("app=web").unwrap(), ..Selection::default() };
    put(&store, labelled("x", "web"));
    let mut watch = store.watch(&pods(), selection, Start::Now).unwrap();
    put(&store, labelled("x", "db"));
    let event = watch.next().now_or_never().unwrap().unwrap();
    let metadata = event.object.value()["metadata"].clone();
    assert_eq!((&metadata["labels"]["app"], &metadata["resourceVersion"]), (&json!("web"), &json!("3")));
}

#[test]
fn a_watch_sees_only_what_it_asks_for() {
    let store = Store::default();
    let cases: [(Selection, &[&str]); 5] = [
        (Selection::default(), &["x", "y", "z", "z"]),
        (Selection::namespace("b"), &["y"]),
        (Selection::one(Some("a"), "x"), &["x"]),
        (select("spec.nodeName=n1"), &["x", "z", "z"]),
        (select("spec.nodeName=n2"), &["y", "z"]),
    ];
    let watches: Vec<_> = cases
        .into_iter()
        .map(|(selection, expected)| (store.watch(&pods(), selection, Start::Now).unwrap(), expected))
        .collect();
    put(&store, on_node("a", "x", "n1"));
    put(&store, on_node("b", "y", "n2"));
    put(&store, on_node("a", "z", "n1"));
    put(&store, on_node("a", "z", "n2"));
    for (mut watch, expected) in watches {
        let seen: Vec<_> = drain(&mut watch).into_iter().map(|(_, name, _)| name).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_watch_resumes_after_a_revision_or_says_that_it_cannot() {
    let store = Store::default();
    for name in ["a", "b", "c"] {
        put(&store, object(&pod("s", name)));
    }
    let mut watch = store.watch(&pods(), Selection::default(), Start::After(2)).unwrap();
    put(&store, object(&pod("s", "d")));
    let seen: Vec<_> = drain(&mut watch).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(seen, ["b", "c", "d"]);
    store.compact(3);
    let refused = store.watch(&pods(), Selection::default(), Start::After(2)).unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (410, "too old resource version: 2 (3)"));
    assert!(store.watch(&pods(), Selection::default(), Start::After(3)).is_ok());
}

#[test]
fn a_watch_knows_how_far_it_is() {
    let store = Store::default();
    let mut watch = store.watch(&pods(), select("metadata.name=a"), Start::State).unwrap();
    put(&store, object(&pod("s", "b")));
    assert_eq!(watch.progress(), Some(2));
    put(&store, object(&pod("s", "a")));
    assert_eq!(watch.progress(), None);
    drain(&mut watch);
    assert_eq!(watch.progress(), Some(3));
}

#[test]
fn a_slow_watcher_is_ended_and_nobody_else() {
    let store = Store::new(Retention { lag: 2, ..Retention::default() });
    let mut slow = store.watch(&pods(), Selection::default(), Start::Now).unwrap();
    let mut other = store.watch(&pods(), Selection::one(Some("s"), "a"), Start::Now).unwrap();
    for name in ["a", "b", "c", "d"] {
        put(&store, object(&pod("s", name)));
    }
    assert_eq!(drain(&mut slow).len(), 2);
    assert!(slow.next().now_or_never().unwrap().is_none());
    assert_eq!(drain(&mut other).len(), 1);
    assert_eq!(store.counts().watchers, 1);
}

#[test]
fn a_dropped_watch_leaves_nothing_behind() {
    let store = Store::default();
    let selections =
        [Selection::default(), Selection::namespace("a"), select("metadata.name=x"), select("spec.nodeName=n")];
    let watches: Vec<_> =
        selections.into_iter().map(|selection| store.watch(&pods(), selection, Start::Now).unwrap()).collect();
    assert_eq!(store.counts().watchers, 4);
    drop(watches);
    assert_eq!(store.counts().watchers, 0);
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_by_count_bytes_and_age() {
    let events = Retention { events: 3, ..Retention::default() };
    let bytes = Retention { bytes: 2000, ..Retention::default() };
    let age = Retention { age: Duration::from_secs(60), ..Retention::default() };
    for (retention, kept) in [(events, 3), (bytes, 3), (age, 1)] {
        let store = Store::new(retention);
        for _ in 0..20 {
            put(&store, object(&pod("s", "a")));
        }
        tokio::time::advance(Duration::from_secs(61)).await;
        put(&store, object(&pod("s", "a")));
        assert_eq!(store.counts().events, kept, "{retention:?}");
    }
}

#[test]
fn dependents_are_found_by_their_owner() {
    let store = Store::default();
    let owned = |name: &str, owners: &[&str]| {
        let mut pod = pod("s", name);
        pod["metadata"]["ownerReferences"] = owners.iter().map(|uid| json!({"uid": uid})).collect();
        object(&pod)
    };
    put(&store, owned("a", &["u1", "u2"]));
    put(&store, owned("b", &["u1"]));
    let of = |uid: &str| {
        let mut names: Vec<_> = store.dependents(uid).iter().map(|(_, object)| object.name().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!((of("u1"), of("u2")), (vec!["a".into(), "b".into()], vec!["a".into()]));
    put(&store, owned("a", &["u2"]));
    remove(&store, "s", "b");
    assert_eq!((of("u1"), of("u2")), (vec![], vec!["a".to_owned()]));
}

/// A random history: pods of a few names that are written or deleted.
fn history() -> impl Strategy<Value = Vec<(u8, Option<u8>)>> {
    prop::collection::vec((0..6u8, prop::option::weighted(0.7, 0..3u8)), 1..60)
}

proptest! {
    /// A list at an earlier revision equals the list made at that revision, with any selector.
    #[test]
    fn the_past_is_shown_as_it_was(history in history(), fields in prop::sample::select(vec!["", "spec.nodeName=n1", "metadata.name=p2"])) {
        let store = Store::default();
        let show = |at| {
            let listing = store.list(&pods(), &Query { selection: select(fields), at, ..Query::default() }).unwrap();
            listing.items.iter().map(|object| (object.key().clone(), object.revision)).collect::<Vec<_>>()
        };
        let mut moments = vec![(1, show(ListRevision::Latest))];
        for (name, node) in history {
            let (namespace, name) = (if name < 3 { "a" } else { "a-b" }, format!("p{}", name % 3));
            match node {
                Some(node) => { put(&store, on_node(namespace, &name, &format!("n{node}"))); }
                None if store.get(&pods(), namespace, &name).is_some() => { remove(&store, namespace, &name); }
                None => {}
            }
            moments.push((store.revision(), show(ListRevision::Latest)));
        }
        for (revision, shown) in moments {
            prop_assert_eq!(show(ListRevision::Exact(revision)), shown);
        }
    }

    /// List, then watch from its revision: the client's view equals the store, with any selector.
    #[test]
    fn a_list_and_its_watch_follow_the_store(history in history(), after in 0..60usize, fields in prop::sample::select(vec!["", "spec.nodeName=n1", "metadata.name=p2", "spec.nodeName!=n1"])) {
        let store = Store::default();
        let mut known = std::collections::BTreeMap::new();
        let mut start = 1;
        for (step, (name, node)) in history.into_iter().enumerate() {
            let (namespace, name) = (if name < 3 { "a" } else { "b" }, format!("p{}", name % 3));
            match node {
                Some(node) => { put(&store, on_node(namespace, &name, &format!("n{node}"))); }
                None if store.get(&pods(), namespace, &name).is_some() => { remove(&store, namespace, &name); }
                None => {}
            }
            if step == after {
                let listing = store.list(&pods(), &Query { selection: select(fields), ..Query::default() }).unwrap();
                start = listing.revision;
                known = listing.items.into_iter().map(|object| (object.key().clone(), object.revision)).collect();
            }
        }
        let mut watch = store.watch(&pods(), select(fields), Start::After(start)).unwrap();
        while let Some(Some(event)) = watch.next().now_or_never() {
            match event.kind {
                EventKind::Added => prop_assert!(known.insert(event.object.key().clone(), event.object.revision).is_none()),
                EventKind::Modified => prop_assert!(known.insert(event.object.key().clone(), event.object.revision).is_some()),
                EventKind::Deleted => prop_assert!(known.remove(event.object.key()).is_some()),
            }
        }
        let now = store.select(&pods(), &select(fields));
        let now: std::collections::BTreeMap<_, _> = now.into_iter().map(|object| (object.key().clone(), object.revision)).collect();
        prop_assert_eq!(known, now);
    }
}
