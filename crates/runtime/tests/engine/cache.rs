//! The cache tells everything that happens, also what happens while nobody looks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_api::nim::NimService;
use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_plan::{Gvk, Ref};
use capstan_runtime::{Error, Gate, Key, Runtime};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;

use crate::support::{Cluster, Link, config_map, nim_service, reference, runtime, until};

/// `+name`, `~name` or `-name` for every change of a ConfigMap in the default namespace.
fn record(runtime: &Runtime) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    runtime.cache.subscribe(move |change| {
        if change.kind.kind == "ConfigMap" && &*change.key.namespace == "default" {
            let sign = match (change.old, change.new) {
                (None, _) => "+",
                (Some(_), Some(_)) => "~",
                (_, None) => "-",
            };
            sink.lock().unwrap().push(format!("{sign}{}", change.key.name));
        }
    });
    seen
}

fn holds(runtime: &Runtime, name: &str, value: &str) -> bool {
    runtime.cache.get(&reference(name)).is_some_and(|object| object["data"]["key"] == value)
}

async fn outage(link: &Link) {
    link.cut();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_while_the_watch_runs() {
    let cluster = Cluster::start().await;
    cluster.apply(config_map("a", "1")).await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    let seen = record(&runtime);
    cluster.apply(config_map("b", "1")).await;
    cluster.apply(config_map("a", "2")).await;
    cluster.delete(&config_map("b", "1")).await;
    until(5, "all four", || seen.lock().unwrap().len() == 4).await;
    assert_eq!(*seen.lock().unwrap(), ["+a", "+b", "~a", "-b"]);
    let kept = runtime.cache.get(&reference("a")).unwrap();
    assert!(kept["metadata"]["managedFields"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_relist_tells_what_vanished_and_what_did_not_change_is_no_news() {
    let cluster = Cluster::forgetful().await;
    for name in ["a", "b", "c"] {
        cluster.apply(config_map(name, "1")).await;
    }
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    let seen = record(&runtime);
    outage(&link).await;
    cluster.delete(&config_map("b", "1")).await;
    cluster.apply(config_map("c", "2")).await;
    for value in 0..10 {
        cluster.apply(config_map("noise", &value.to_string())).await;
    }
    cluster.delete(&config_map("noise", "")).await;
    seen.lock().unwrap().clear();
    link.mend();
    until(5, "b is gone", || runtime.cache.get(&reference("b")).is_none()).await;
    assert_eq!(*seen.lock().unwrap(), ["~c", "-b"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_watch_goes_on_where_it_was() {
    let cluster = Cluster::start().await;
    cluster.apply(config_map("a", "1")).await;
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    let seen = record(&runtime);
    outage(&link).await;
    cluster.apply(config_map("a", "2")).await;
    cluster.delete(&config_map("a", "2")).await;
    cluster.apply(config_map("a", "3")).await;
    seen.lock().unwrap().clear();
    link.mend();
    until(5, "the last value", || holds(&runtime, "a", "3")).await;
    assert_eq!(*seen.lock().unwrap(), ["~a", "-a", "+a"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_appears_is_watched_and_one_that_goes_is_forgotten() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    let served = || runtime.cache.served().contains(&Gvk::of::<NimService>());
    assert!(!served());
    cluster.install("nimservice").await;
    until(5, "served", served).await;
    cluster.apply(nim_service("llama")).await;
    let llama = Ref::of::<NimService>("default", "llama");
    until(5, "the object", || runtime.cache.get(&llama).is_some()).await;
    let gone = Arc::new(Mutex::new(0));
    let sink = gone.clone();
    runtime.cache.subscribe(move |change| {
        if change.kind.kind == "NIMService" && change.new.is_none() {
            *sink.lock().unwrap() += 1;
        }
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nimservices.apps.nvidia.com"},
    });
    cluster.delete(&definition).await;
    until(10, "forgotten", || !served() && runtime.cache.get(&llama).is_none()).await;
    assert_eq!(*gone.lock().unwrap(), 1);
    assert!(runtime.cache.is_synced());
    cluster.install("nimservice").await;
    cluster.apply(nim_service("llama")).await;
    until(10, "there again", || runtime.cache.get(&llama).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn values_of_secrets_are_not_kept() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
        "data": {"NGC_API_KEY": "c2VjcmV0"},
    });
    cluster.apply(secret).await;
    let reference = Ref::of::<Secret>("default", "key");
    until(5, "the secret", || runtime.cache.get(&reference).is_some()).await;
    let kept = runtime.cache.get(&reference).unwrap();
    assert!(kept["data"]["NGC_API_KEY"].is_string(), "the key is known: {kept}");
    assert!(!kept.to_string().contains("c2VjcmV0"), "its value is not: {kept}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_cannot_be_read_are_left_out_and_the_rest_goes_on() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    // Deeper than any parser goes: users can store that under fields that keep everything.
    link.forge("\"poison\"", &format!("{}1{}", "[".repeat(200), "]".repeat(200)));
    for index in 0..50 {
        cluster.apply(config_map(&format!("bad-{index}"), "poison")).await;
    }
    cluster.apply(config_map("good", "1")).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let runtime = Runtime::start(link.client(), capstan_runtime::Settings::default(), &stop);
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    runtime.cache.on_undecodable(move |object| sink.lock().unwrap().push(object.clone()));
    runtime.cache.synced().await;
    assert!(holds(&runtime, "good", "1"));
    assert_eq!(told.lock().unwrap().len(), 50);
    assert!(told.lock().unwrap().iter().all(|poison| !poison.uid.is_empty()));
    for index in 50..100 {
        cluster.apply(config_map(&format!("bad-{index}"), "poison")).await;
    }
    cluster.apply(config_map("good", "2")).await;
    until(5, "the watch goes on", || holds(&runtime, "good", "2")).await;
    assert_eq!(told.lock().unwrap().len(), 100);
    let names = runtime.cache.keys(&Gvk::of::<ConfigMap>());
    assert!(names.iter().all(|key| !key.name.starts_with("bad")));
    // An object that turns bad is left out too, and comes back when it is good again.
    cluster.apply(config_map("good", "poison")).await;
    until(5, "left out", || runtime.cache.get(&reference("good")).is_none()).await;
    cluster.apply(config_map("good", "3")).await;
    until(5, "back", || holds(&runtime, "good", "3")).await;
    assert_eq!(runtime.metrics.watch_restarts("ConfigMap"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_its_type_is_an_error_of_its_own() {
    let cluster = Cluster::start().await;
    cluster.install("nimservice").await;
    cluster.apply(nim_service("llama")).await;
    let link = cluster.link();
    link.forge("\"repository\":\"nim\"", "\"repository\":{\"not\":\"text\"}");
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    let read = runtime.cache.typed::<NimService>(&Key::new("default", "llama"));
    let Err(Error::Undecodable { reference, reason, .. }) = read else { panic!("{read:?}") };
    assert_eq!(reference.name, "llama");
    assert!(!reason.is_empty());
    assert!(runtime.cache.typed::<NimService>(&Key::new("default", "other")).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_old_server_is_read_page_by_page() {
    let cluster = Cluster::start().await;
    for index in 0..1100 {
        cluster.apply(config_map(&format!("map-{index:04}"), "1")).await;
    }
    let link = cluster.link();
    link.forge("v1.37.", "v1.33.");
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    let read = runtime.cache.in_namespace(&Gvk::of::<ConfigMap>(), "default");
    assert_eq!(read.len(), 1100);
    assert_eq!(link.requests("/configmaps").len(), 3);
    cluster.apply(config_map("map-0000", "2")).await;
    until(5, "the watch follows", || holds(&runtime, "map-0000", "2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_known_whichever_version_of_it_the_server_has() {
    let cluster = Cluster::start().await;
    let claim = |name: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        })
    };
    let known = |runtime: &Runtime, name: &str| {
        let found = runtime.cache.get(&Ref::of::<ResourceClaim>("default", name));
        found.is_some_and(|claim| claim["apiVersion"] == "resource.k8s.io/v1")
    };
    cluster.apply(claim("a")).await;
    for old in ["v1beta2", "v1beta1"] {
        let link = cluster.link();
        link.age("resource.k8s.io", "v1", old);
        let (runtime, _stop) = runtime(&link, Gate::open()).await;
        until(5, "the claim", || known(&runtime, "a")).await;
        assert!(!runtime.cache.served().contains(&Gvk::of::<ResourceClaim>()), "nothing else of that version is there");
        // The control plane is upgraded.
        link.renew();
        let name = format!("after-{old}");
        cluster.apply(claim(&name)).await;
        until(700, "served", || runtime.cache.served().contains(&Gvk::of::<ResourceClaim>())).await;
        until(5, "the claim that came later", || known(&runtime, &name)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_list_is_read_again_from_its_beginning() {
    let cluster = Cluster::start().await;
    for index in 0..600 {
        cluster.apply(config_map(&format!("map-{index:03}"), "1")).await;
    }
    let link = cluster.link();
    link.forge("v1.37.", "v1.33.");
    let lists = Matcher::new().user("operator").verb(Verb::List).resource("configmaps");
    let status = capstan_apiserver::error::Status::new(500, "InternalError", "no second page");
    let fault = cluster.server.faults().add(Fault::fail(lists, status).nth(2));
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(runtime.cache.in_namespace(&Gvk::of::<ConfigMap>(), "default").len(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_we_may_not_see_is_waited_for_only_if_every_server_has_it() {
    let cluster = Cluster::start().await;
    cluster.install("nimservice").await;
    let forbidden = || capstan_apiserver::error::Status::new(403, "Forbidden", "no");
    let kind = |plural: &str| Matcher::new().user("operator").resource(plural);
    cluster.server.faults().add(Fault::fail(kind("nimservices"), forbidden()));
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    assert!(!runtime.cache.served().contains(&Gvk::of::<NimService>()));
    let fault = cluster.server.faults().add(Fault::fail(kind("ingresses"), forbidden()));
    let stop = tokio_util::sync::CancellationToken::new();
    let second = Runtime::start(cluster.link().client(), Default::default(), &stop);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let missing: Vec<_> = second.cache.missing().iter().map(|kind| kind.kind).collect();
    assert_eq!(missing, ["Ingress"]);
    fault.remove();
    until(310, "allowed", || second.cache.is_synced()).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_server_forbids_while_it_starts_is_asked_for_again_at_once() {
    let cluster = Cluster::start().await;
    let link = cluster.link();
    let (runtime, _stop) = runtime(&link, Gate::open()).await;
    link.cut();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let status = capstan_apiserver::error::Status::new(403, "Forbidden", "the rules are not read yet");
    let watches = Matcher::new().user("operator").resource("configmaps");
    let fault = cluster.server.faults().add(Fault::fail(watches, status).first(2));
    cluster.apply(config_map("a", "1")).await;
    link.mend();
    until(5, "the watch goes on", || holds(&runtime, "a", "1")).await;
    assert_eq!(fault.hits(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_ends_no_watch() {
    let cluster = Cluster::start().await;
    let (runtime, _stop) = runtime(&cluster.link(), Gate::open()).await;
    runtime.cache.subscribe(|change| assert_ne!(&*change.key.name, "bad"));
    let seen = record(&runtime);
    cluster.apply(config_map("bad", "1")).await;
    cluster.apply(config_map("good", "1")).await;
    until(5, "both", || seen.lock().unwrap().len() == 2).await;
}
