//! Webhooks over TLS on loopback.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Endpoint, Resolver, ServiceReference};
use crate::admit::Settings;
use crate::admit::tests::{Bench, refused};
use crate::ops::WriteOptions;
use crate::store::{Object, TableKey};

type Answers = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A webhook that listens on loopback and records requests.
struct Hook {
    port: u16,
    /// CA bundle as base64.
    ca: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

/// Certificates for `127.0.0.1` and the service `hook`.
fn certificates() -> (String, rustls::ServerConfig) {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["hook.default.svc".to_owned(), "127.0.0.1".to_owned()];
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    (ca.pem(), config)
}

impl Hook {
    async fn start(answers: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let (ca, config) = certificates();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answers): (_, Arc<Answers>) = (asked.clone(), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, log, answers) = (acceptor.clone(), log.clone(), answers.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (log, answers) = (log.clone(), answers.clone());
                        async move {
                            let path = request.uri().to_string();
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let (code, answer) = answers(&path, &review);
                            log.lock().unwrap().push((path, review));
                            let response =
                                http::Response::builder().status(code).header("content-type", "application/json");
                            response.body(Full::new(Bytes::from(answer.to_string())))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { port, ca: BASE64_STANDARD.encode(ca), asked }
    }

    fn url(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca})
    }

    fn asked(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|(path, _)| path.split('?').next().unwrap_or_default().to_owned()).collect()
    }
}

fn answer(review: &Value, response: Value) -> (u16, Value) {
    let mut response = response;
    response["uid"] = review["request"]["uid"].clone();
    (200, json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
}

fn allow(review: &Value) -> (u16, Value) {
    answer(review, json!({"allowed": true}))
}

fn patched(review: &Value, patch: Value) -> (u16, Value) {
    let patch = BASE64_STANDARD.encode(patch.to_string());
    answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// A webhook for ConfigMaps, with additional fields from `more`.
fn hook(name: &str, client: Value, more: Value) -> Value {
    let rule = json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let mut hook = json!({
        "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client, "rules": [rule],
    });
    json_patch::merge(&mut hook, &more);
    hook
}

fn configuration(name: &str, hooks: Vec<Value>) -> Value {
    json!({"metadata": {"name": name}, "webhooks": hooks})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

const VALIDATING: &str = "validatingwebhookconfigurations";
const MUTATING: &str = "mutatingwebhookconfigurations";

#[tokio::test]
async fn a_webhook_is_asked_as_a_real_server_asks_it() {
    let hook_ = Hook::start(|_, review| allow(review)).await;
    let bench = Bench::new(Settings::alone()).await;
    let hooks = vec![hook("a.x.io", hook_.url("/check"), json!({"timeoutSeconds": 7}))];
    bench.create(VALIDATING, configuration("a", hooks)).await.unwrap();
    bench.create("configmaps", map("m")).await.unwrap();
    bench.patch("configmaps", "m", json!({"data": {"a": "b"}})).await.unwrap();
    bench.delete("configmaps", "m").await.unwrap();
    let asked = hook_.asked();
    assert_eq!(asked.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/check?timeout=7s"; 3]);
    let create = &asked[0].1;
    assert_eq!((&create["kind"], &create["apiVersion"]), (&json!("AdmissionReview"), &json!("admission.k8s.io/v1")));
    let request = &create["request"];
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!((&request["kind"], &request["requestKind"]), (&kind, &kind));
    assert_eq!((&request["resource"], &request["requestResource"]), (&resource, &resource));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("m"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "kubernetes-admin");
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!((&request["object"]["kind"], &request["oldObject"]), (&json!("ConfigMap"), &Value::Null));
    let update = &asked[1].1["request"];
    assert_eq!(update["operation"], "UPDATE");
    assert_eq!((&update["object"]["data"]["a"], &update["oldObject"]["data"]), (&json!("b"), &Value::Null));
    let delete = &asked[2].1["request"];
    assert_eq!((&delete["operation"], &delete["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(delete["oldObject"]["data"]["a"], "b");
}

#[tokio::test]
async fn a_refusal_says_who_refused_and_why() {
    let refusals = [
        (json!({"message": "no way", "code": 418, "reason": "Forbidden"}), 418, ": no way"),
        (json!({"reason": "BadRequest", "code": 200}), 400, ": BadRequest"),
        (Value::Null, 400, " without explanation"),
    ];
    for (status, code, end) in refusals {
        let answer_ = status.clone();
        let hook_ = Hook::start(move |_, review| answer(review, json!({"allowed": false, "status": answer_}))).await;
        for kind in [VALIDATING, MUTATING] {
            let bench = Bench::new(Settings::alone()).await;
            bench.create(kind, configuration("a", vec![hook("a.x.io", hook_.url("/"), json!({}))])).await.unwrap();
            let message = format!("admission webhook \"a.x.io\" denied the request{end}");
            assert_eq!(refused(bench.create("configmaps", map("m")).await), (code, message));
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_an_answer_fails_the_request_or_not_as_the_policy_says() {
    type Answer = fn(&Value) -> (u16, Value);
    let cases: [(Answer, &str); 8] = [
        (
            |_| (500, json!("boom")),
            "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
        ),
        (|_| (404, json!({})), "failed to call webhook: the server could not find the requested resource"),
        (|_| (403, json!({"kind": "Status", "message": "go away"})), "failed to call webhook: go away"),
        (
            |_| (200, json!({"kind": "AdmissionReview"})),
            "received invalid webhook response: webhook response was absent",
        ),
        (
            |review| answer(review, json!({"allowed": true, "patch": "W10="})),
            "received invalid webhook response: webhook returned response.patch but not response.patchType",
        ),
        (
            |review| answer(review, json!({"allowed": true, "patchType": "JSONPatch"})),
            "received invalid webhook response: webhook returned response.patchType but not response.patch",
        ),
        (
            |review| answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": "eHg="})),
            "received undecodable patch in webhook response: invalid character 'x' looking for beginning of value",
        ),
        (
            |review| {
                let (code, mut body) = allow(review);
                body["response"]["uid"] = "x".into();
                (code, body)
            },
            "received invalid webhook response: expected response.uid=",
        ),
    ];
    for (answers, why) in cases {
        let hook_ = Hook::start(move |_, review| answers(review)).await;
        let bench = Bench::new(Settings::alone()).await;
        let closed = configuration("a", vec![hook("a.x.io", hook_.url("/"), json!({}))]);
        bench.create(MUTATING, closed).await.unwrap();
        let (code, message) = refused(bench.create("configmaps", map("m")).await);
        let expected = format!("Internal error occurred: failed calling webhook \"a.x.io\": {why}");
        assert!(code == 500 && message.starts_with(&expected), "{message}");
        bench
            .patch(
                MUTATING,
                "a",
                json!({"webhooks": [hook("a.x.io", hook_.url("/"), json!({"failurePolicy": "Ignore"}))]}),
            )
            .await
            .unwrap();
        bench.create("configmaps", map("m")).await.unwrap();
    }
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_is_explained() {
    let hook_ = Hook::start(|_, review| allow(review)).await;
    let stranger = Hook::start(|_, review| allow(review)).await;
    let here = format!("https://127.0.0.1:{}/x", hook_.port);
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let cases = [
        (
            json!({"url": "https://127.0.0.1:1/x", "caBundle": hook_.ca}),
            "failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=10s\": dial tcp 127.0.0.1:1: connect: connection refused".to_owned(),
        ),
        (
            json!({"url": here, "caBundle": stranger.ca}),
            format!("failed to call webhook: Post \"{here}?timeout=10s\": {unknown}"),
        ),
        (json!({"url": here}), format!("failed to call webhook: Post \"{here}?timeout=10s\": {unknown}")),
        (
            json!({"url": format!("https://localhost:{}/x", hook_.port), "caBundle": hook_.ca}),
            format!(
                "failed to call webhook: Post \"https://localhost:{}/x?timeout=10s\": tls: failed to verify certificate: x509: certificate is valid for hook.default.svc",
                hook_.port
            ),
        ),
        (
            json!({"url": here, "caBundle": BASE64_STANDARD.encode("junk")}),
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block".to_owned(),
        ),
        (
            json!({"service": {"name": "nope", "namespace": "default", "path": "/p"}, "caBundle": hook_.ca}),
            "failed to call webhook: Post \"https://nope.default.svc:443/p?timeout=10s\": service \"nope\" not found".to_owned(),
        ),
    ];
    for (client, why) in cases {
        let bench = Bench::new(Settings::alone()).await;
        bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", client, json!({}))])).await.unwrap();
        let (code, message) = refused(bench.create("configmaps", map("m")).await);
        let expected = format!("Internal error occurred: failed calling webhook \"a.x.io\": {why}");
        assert!(code == 500 && message.starts_with(&expected), "{message}");
    }
}

#[tokio::test]
async fn patches_change_the_object_and_later_webhooks_see_them() {
    let hook_ = Hook::start(|path, review| {
        if path.starts_with("/first") {
            patched(review, json!([{"op": "add", "path": "/metadata/labels", "value": {"first": "1"}}]))
        } else {
            let seen = review["request"]["object"]["metadata"]["labels"].clone();
            patched(review, json!([{"op": "add", "path": "/data", "value": {"seen": seen.to_string()}}]))
        }
    })
    .await;
    let bench = Bench::new(Settings::alone()).await;
    // Configurations are called in the order of their names.
    bench.create(MUTATING, configuration("b", vec![hook("b.x.io", hook_.url("/second"), json!({}))])).await.unwrap();
    bench.create(MUTATING, configuration("a", vec![hook("a.x.io", hook_.url("/first"), json!({}))])).await.unwrap();
    let made = bench.create("configmaps", map("m")).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"first": "1"}));
    assert_eq!(made["data"], json!({"seen": r#"{"first":"1"}"#}));
    assert_eq!(hook_.paths(), ["/first", "/second"]);
}

#[tokio::test]
async fn webhooks_that_want_to_are_asked_again_when_the_object_changed_after_them() {
    let hook_ = Hook::start(|path, review| {
        if path.starts_with("/second") {
            patched(review, json!([{"op": "add", "path": "/metadata/labels", "value": {"second": "1"}}]))
        } else {
            allow(review)
        }
    })
    .await;
    let bench = Bench::new(Settings::alone()).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = vec![
        hook("a.x.io", hook_.url("/first"), again.clone()),
        hook("b.x.io", hook_.url("/never"), json!({})),
        hook("c.x.io", hook_.url("/second"), again.clone()),
        hook("d.x.io", hook_.url("/third"), again),
    ];
    bench.create(MUTATING, configuration("a", hooks)).await.unwrap();
    bench.create("configmaps", map("m")).await.unwrap();
    assert_eq!(hook_.paths(), ["/first", "/never", "/second", "/third", "/first"]);
}

#[tokio::test]
async fn plugins_look_again_at_what_a_webhook_changed() {
    let hook_ = Hook::start(|_, review| {
        patched(review, json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}]))
    })
    .await;
    let bench = Bench::new(Settings::default()).await;
    bench.create("serviceaccounts", json!({"metadata": {"name": "default"}})).await.unwrap();
    let pods =
        json!({"rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    bench.create(MUTATING, configuration("a", vec![hook("a.x.io", hook_.url("/"), pods)])).await.unwrap();
    let pod = bench.create("pods", crate::admit::tests::pod("p")).await.unwrap();
    let side = &pod["spec"]["containers"][1];
    assert_eq!(side["imagePullPolicy"], "Always");
    assert_eq!(side["volumeMounts"][0]["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
}

#[tokio::test]
async fn rules_and_selectors_choose_requests() {
    let hook_ = Hook::start(|_, review| answer(review, json!({"allowed": false}))).await;
    let rule = |rule: Value| json!({"rules": [rule]});
    let all = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    let with = |key: &str, value: Value| {
        let mut changed = all.clone();
        changed[key] = value;
        rule(changed)
    };
    let cases = [
        (rule(all.clone()), true),
        (with("operations", json!(["UPDATE"])), false),
        (with("apiGroups", json!(["apps"])), false),
        (with("apiGroups", json!([""])), true),
        (with("apiVersions", json!(["v2"])), false),
        (with("resources", json!(["configmaps"])), true),
        (with("resources", json!(["configmaps/status"])), false),
        (with("resources", json!(["*/*"])), true),
        (with("scope", json!("Cluster")), false),
        (with("scope", json!("Namespaced")), true),
        (json!({"objectSelector": {"matchLabels": {"a": "b"}}}), false),
        (json!({"objectSelector": {"matchLabels": {"own": "1"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), true),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]}}),
            false,
        ),
        (json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'm'"}]}), true),
        (json!({"matchConditions": [{"name": "c", "expression": "request.operation == 'DELETE'"}]}), false),
        (
            json!({"matchConditions": [{"name": "c", "expression": "!('system:masters' in request.userInfo.groups)"}]}),
            false,
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.spec.x == 1"}], "failurePolicy": "Ignore"}),
            false,
        ),
    ];
    for (more, called) in cases {
        let bench = Bench::new(Settings::alone()).await;
        bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", hook_.url("/"), more.clone())])).await.unwrap();
        let made = bench.create("configmaps", json!({"metadata": {"name": "m", "labels": {"own": "1"}}})).await;
        assert_eq!(made.is_err(), called, "{more}");
    }
    let bench = Bench::new(Settings::alone()).await;
    let broken = json!({"matchConditions": [{"name": "c", "expression": "object.data.foo == 'x'"}]});
    bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", hook_.url("/"), broken)])).await.unwrap();
    assert_eq!(
        refused(bench.create("configmaps", map("m")).await),
        (
            403,
            "configmaps \"m\" is forbidden: expression 'object.data.foo == 'x'' resulted in error: no such key: data"
                .into()
        )
    );
}

#[tokio::test]
async fn configurations_of_webhooks_are_out_of_their_reach() {
    let hook_ = Hook::start(|_, review| answer(review, json!({"allowed": false}))).await;
    let bench = Bench::new(Settings::alone()).await;
    let all = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", hook_.url("/"), all)])).await.unwrap();
    assert!(bench.create("configmaps", map("m")).await.is_err());
    bench.delete(VALIDATING, "a").await.unwrap();
    bench.create("configmaps", map("m")).await.unwrap();
}

#[tokio::test]
async fn a_dry_run_calls_only_webhooks_without_side_effects() {
    let hook_ = Hook::start(|_, review| allow(review)).await;
    for (effects, allowed) in [("None", true), ("NoneOnDryRun", true), ("Some", false), ("Unknown", false)] {
        let mut bench = Bench::new(Settings::alone()).await;
        let hooks = vec![hook("a.x.io", hook_.url("/"), json!({"sideEffects": effects}))];
        // Validation rejects such side effects now, so the configuration is stored directly.
        let body = configuration("a", hooks);
        let written = bench.create(VALIDATING, body).await;
        if !allowed && written.is_err() {
            continue;
        }
        bench.options = WriteOptions { dry_run: true, ..WriteOptions::default() };
        let result = bench.create("configmaps", map("m")).await;
        if allowed {
            result.unwrap();
            assert_eq!(hook_.asked()[0].1["request"]["dryRun"], true);
        } else {
            let message = "admission webhook \"a.x.io\" does not support dry run".to_owned();
            assert_eq!(refused(result), (400, message));
        }
    }
}

#[tokio::test]
async fn warnings_reach_the_caller() {
    let hook_ = Hook::start(|_, review| answer(review, json!({"allowed": true, "warnings": ["careful"]}))).await;
    let bench = Bench::new(Settings::alone()).await;
    bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", hook_.url("/"), json!({}))])).await.unwrap();
    assert_eq!(bench.write("configmaps", map("m")).await.unwrap().warnings, ["careful"]);
}

/// An in-process handler, or none.
struct Inside;

impl Resolver for Inside {
    fn resolve(&self, service: &ServiceReference) -> Result<Endpoint, String> {
        match (service.name.as_str(), service.port) {
            ("hook", 8443) => Ok(Endpoint::Local(Arc::new(|path, body| {
                Box::pin(async move {
                    let review: Value = serde_json::from_slice(&body).unwrap();
                    let (code, answer) =
                        patched(&review, json!([{"op": "add", "path": "/data", "value": {"path": path}}]));
                    (code, Bytes::from(answer.to_string()))
                })
            }))),
            ("silent", _) => Ok(Endpoint::Local(Arc::new(|_, _| Box::pin(std::future::pending())))),
            _ => Err(format!("service {:?} not found", service.name)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_inside_the_process_needs_no_socket_and_no_real_time() {
    let bench = Bench::new(Settings { resolver: Some(Arc::new(Inside)), ..Settings::alone() }).await;
    let client = json!({"service": {"namespace": "default", "name": "hook", "path": "/mutate", "port": 8443}});
    bench.create(MUTATING, configuration("a", vec![hook("a.x.io", client, json!({}))])).await.unwrap();
    let made = bench.create("configmaps", map("m")).await.unwrap();
    assert_eq!(made["data"], json!({"path": "/mutate?timeout=10s"}));
    let silent = json!({"service": {"namespace": "default", "name": "silent"}});
    let silent = vec![hook("b.x.io", silent, json!({"timeoutSeconds": 3}))];
    bench.create(VALIDATING, configuration("b", silent)).await.unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(
        refused(bench.create("configmaps", map("n")).await).1,
        "Internal error occurred: failed calling webhook \"b.x.io\": failed to call webhook: Post \"https://silent.default.svc:443/?timeout=3s\": context deadline exceeded"
    );
    assert_eq!(before.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_service_is_found_by_its_endpoints() {
    let hook_ = Hook::start(|_, review| allow(review)).await;
    let bench = Bench::new(Settings::alone()).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "targetPort": hook_.port}]}});
    bench.create("services", service).await.unwrap();
    let client = json!({"service": {"namespace": "default", "name": "hook"}, "caBundle": hook_.ca});
    bench.create(VALIDATING, configuration("a", vec![hook("a.x.io", client, json!({}))])).await.unwrap();
    let (_, message) = refused(bench.create("configmaps", map("m")).await);
    assert!(message.ends_with("no endpoints available for service \"hook\""), "{message}");
    // The API rejects loopback endpoints, which mean another machine to every reader.
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": [{"name": "", "port": hook_.port}], "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    let table = TableKey::new("discovery.k8s.io", "endpointslices");
    bench.server.store().create(&table, Object::synthetic(&slice)).expect("there is none yet");
    bench.create("configmaps", map("m")).await.unwrap();
    assert_eq!(hook_.paths(), ["/"]);
}

#[tokio::test]
async fn an_equivalent_version_is_converted_for_the_webhook() {
    let hook_ = Hook::start(|_, review| allow(review)).await;
    let bench = Bench::new(Settings::alone()).await;
    let rule = json!({"operations": ["*"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["*"]});
    let equivalent = hook("a.x.io", hook_.url("/equivalent"), json!({"rules": [rule]}));
    let exact = hook("b.x.io", hook_.url("/exact"), json!({"rules": [rule], "matchPolicy": "Exact"}));
    bench.create(VALIDATING, configuration("a", vec![equivalent, exact])).await.unwrap();
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let autoscaler = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}});
    bench.create("horizontalpodautoscalers.v2", autoscaler).await.unwrap();
    let asked = hook_.asked();
    assert_eq!(asked.len(), 1);
    let request = &asked[0].1["request"];
    assert_eq!((&request["resource"]["version"], &request["requestResource"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
    assert_eq!(request["object"]["spec"]["targetCPUUtilizationPercentage"], 80);
}
