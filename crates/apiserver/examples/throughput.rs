//! Benchmarks reads and writes: `cargo run --release -p capstan-apiserver --example throughput [pods]`.
//!
//! Half of the numbers are of the bare store, half of the verbs with the full write pipeline. Nothing is asserted: the
//! numbers are for changes to the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_apiserver::ops::{Caller, ListOptions, Server, Settings, Target, WriteOptions};
use capstan_apiserver::store::{
    FieldPaths, FieldSelector, Object, Query, Retention, Selection, Start, Store, TableKey, TypeMeta,
};
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};

const NODES: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let pods = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(75_000);
    let before = resident();
    let store = store(pods);
    println!("resident memory: {} MiB for {pods} pods and their history", (resident() - before) >> 20);
    commits(&store);
    lists(&store);
    watches(&store, pods);
    drop(store);
    verbs(pods / 5).await;
}

fn pod(index: usize) -> Value {
    let padding = "x".repeat(600);
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/app:v1.2.3", "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "env": [{"name": "PADDING", "value": padding}],
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{index:06}"), "namespace": format!("team-{}", index % 50),
            "uid": format!("00000000-0000-4000-8000-{index:012}"), "generation": 1,
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d8f6c7b9", "team": format!("{}", index % 50)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": format!("owner-{}", index % 500), "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"containers": [container("main"), container("sidecar")], "nodeName": "", "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "default"},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}]},
    })
}

fn table() -> TableKey {
    TableKey::new("", "pods")
}

struct Maker {
    types: Arc<TypeMeta>,
    fields: FieldPaths,
}

impl Maker {
    fn new() -> Self {
        let types = Arc::new(TypeMeta { api_version: "v1".into(), kind: "Pod".into() });
        let fields = ["spec.nodeName", "spec.schedulerName", "status.phase"].into_iter().collect();
        Self { types, fields }
    }

    fn object(&self, value: &Value) -> Object {
        Object::new(self.types.clone(), value, &self.fields)
    }
}

fn store(pods: usize) -> Store {
    let (store, maker) = (Store::new(Retention::default()), Maker::new());
    let size = maker.object(&pod(0)).len();
    println!("one pod: {size} bytes of JSON");
    report("store: create from JSON values", pods, || {
        for index in 0..pods {
            store.create(&table(), maker.object(&pod(index))).expect("the name is new");
        }
    });
    report("store: update from JSON values", pods, || {
        for index in 0..pods {
            let mut value = pod(index);
            value["spec"]["nodeName"] = format!("node-{}", index % NODES).into();
            value["status"]["phase"] = "Running".into();
            let (namespace, name) = (format!("team-{}", index % 50), format!("web-{index:06}"));
            let live = store.get(&table(), &namespace, &name).expect("it was created");
            store.update(&table(), maker.object(&value), live.revision).expect("nobody else writes");
        }
    });
    store
}

fn commits(store: &Store) {
    let maker = Maker::new();
    let drafts: Vec<Object> = (0..10_000).map(|index| maker.object(&pod(index))).collect();
    report("store: commit without encoding", drafts.len(), || {
        for object in drafts {
            let live = store.get(&table(), object.namespace(), object.name()).expect("it was created");
            store.update(&table(), object, live.revision).expect("nobody else writes");
        }
    });
}

fn lists(store: &Store) {
    let list = |query: &Query| store.list(&table(), query).expect("the query is fine");
    let everything = Query::default();
    report("store: list of everything, as text", 1, || {
        let mut text = Vec::with_capacity(256 << 20);
        for object in list(&everything).items {
            object.write_item(&mut text);
        }
        println!("  {} MiB", text.len() >> 20);
    });
    report("store: pages of 500", 1, || {
        let mut query = Query { limit: 500, ..Query::default() };
        while let Some(token) = list(&query).continue_token {
            query.continue_token = token;
        }
    });
    report("store: pods of one node", NODES, || {
        for node in 0..NODES {
            let fields = FieldSelector::equal("spec.nodeName", &format!("node-{node}"));
            list(&Query { selection: Selection { fields, ..Selection::default() }, ..Query::default() });
        }
    });
}

fn watches(store: &Store, pods: usize) {
    let maker = Maker::new();
    let mut watches: Vec<_> = (0..NODES)
        .map(|node| {
            let fields = FieldSelector::equal("spec.nodeName", &format!("node-{node}"));
            let selection = Selection { fields, ..Selection::default() };
            store.watch(&table(), selection, Start::Now).expect("now is never too old")
        })
        .collect();
    let mut whole = store.watch(&table(), Selection::default(), Start::Now).expect("now is never too old");
    let writes = pods.min(10_000);
    let mut received = 0;
    report("store: update with a watcher per node and one of all", writes, || {
        for index in 0..writes {
            let mut value = pod(index);
            value["spec"]["nodeName"] = format!("node-{}", index % NODES).into();
            value["status"]["phase"] = "Running".into();
            let (namespace, name) = (format!("team-{}", index % 50), format!("web-{index:06}"));
            let live = store.get(&table(), &namespace, &name).expect("it was created");
            store.update(&table(), maker.object(&value), live.revision).expect("nobody else writes");
        }
        for watch in watches.iter_mut().chain([&mut whole]) {
            while let Some(Some(_)) = tokio::task::coop::unconstrained(watch.next()).now_or_never() {
                received += 1;
            }
        }
    });
    println!("  {received} events received");
}

async fn verbs(pods: usize) {
    let server = Server::new(Settings::default());
    let (caller, options) = (Caller::system("bench"), WriteOptions::default());
    let resource = |plural: &str| server.registry().lookup("", "v1", plural).expect("built in");
    let namespaces = Target::all(resource("namespaces"), None);
    for index in 0..50 {
        let body = json!({"metadata": {"name": format!("team-{index}")}});
        server.create(&caller, &namespaces, body.into(), &options).await.expect("the name is new");
    }
    let all = Target::all(resource("pods"), None);
    let mut watch = server.watch(&caller, &all, &ListOptions::default()).await.expect("it starts now");
    let mut slowest = Duration::ZERO;
    let start = Instant::now();
    for index in 0..pods {
        let namespace = format!("team-{}", index % 50);
        let target = Target::all(resource("pods"), Some(&namespace));
        let mut body = pod(index);
        body["metadata"].as_object_mut().expect("an object").remove("uid");
        server.create(&caller, &target, body.into(), &options).await.expect("the name is new");
        let written = Instant::now();
        watch.next().await.expect("the watch lives");
        slowest = slowest.max(written.elapsed());
    }
    print_rate("verbs: create a pod and see it in a watch", pods, start.elapsed());
    println!("  slowest event after {slowest:?}");
    let start = Instant::now();
    for index in 0..pods {
        let (namespace, name) = (format!("team-{}", index % 50), format!("web-{index:06}"));
        let target = Target::one(resource("pods"), Some(&namespace), &name).sub("binding");
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "node-1"}});
        server.create(&caller, &target, binding.into(), &options).await.expect("it is not bound yet");
    }
    print_rate("verbs: bind", pods, start.elapsed());
}

fn report(what: &str, count: usize, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    print_rate(what, count, start.elapsed());
}

fn print_rate(what: &str, count: usize, took: Duration) {
    let each = took / u32::try_from(count).unwrap_or(u32::MAX).max(1);
    println!("{what}: {count} in {took:.1?}, {each:?} each, {:.0} per second", count as f64 / took.as_secs_f64());
}

/// Resident memory of this process in bytes, where the system reports it.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
