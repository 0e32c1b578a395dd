//! Tests of the HTTP layer with kube's client: in-process without a socket, and over TLS.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use bytes::Bytes;
use capstan_apiserver::admit;
use capstan_apiserver::auth::{Auth, UserInfo};
use capstan_apiserver::error::Result as Answer;
use capstan_apiserver::faults::{Fault, Matcher};
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{Server, Settings};
use capstan_apiserver::serve::{Api as Http, ExecOptions, Listen, LogOptions, Runtime, Streams};
use capstan_apiserver::store::Object;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role};
use kube::api::{Api, AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{PartialObjectMeta, WatchEvent};
use kube::discovery::Discovery;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A started server, and what must live as long as it.
struct Ready {
    http: Http,
    _lifecycle: Lifecycle,
}

impl Ready {
    async fn start() -> Self {
        let (kinds, admission) = admit::standard(&admit::Settings::alone());
        let server = Server::new(Settings { kinds: Some(kinds), admission, seed: Some(7), ..Settings::default() });
        let lifecycle = Lifecycle::start(&server).await.unwrap();
        let http = Http::start(server, Auth::new()).await.unwrap();
        Self { http, _lifecycle: lifecycle }
    }

    fn client(&self) -> kube::Client {
        self.http.as_user(UserInfo::admin()).client("default")
    }

    fn client_of(&self, name: &str) -> kube::Client {
        self.http.as_user(UserInfo::new(name, &[])).client("default")
    }

    /// The response to a raw request, as the administrator.
    async fn raw(&self, request: Request<String>) -> (u16, http::HeaderMap, Value) {
        raw(&self.http.as_user(UserInfo::admin()), request).await
    }
}

async fn raw(http: &Http, request: Request<String>) -> (u16, http::HeaderMap, Value) {
    let response = http.answer(request).await;
    let (head, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let value = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
    (head.status.as_u16(), head.headers, value)
}

fn get(path: &str, accept: &str) -> Request<String> {
    Request::get(path).header("accept", accept).body(String::new()).unwrap()
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"a": "1"}}))
}

fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
}

#[tokio::test]
async fn objects_live_and_die_without_a_socket() {
    let ready = Ready::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(ready.client());
    let made = api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert!(made.metadata.uid.is_some());
    let patch = Patch::Merge(json!({"data": {"b": "2"}}));
    let changed = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(changed.data.unwrap().len(), 2);
    let listed = api.list(&ListParams::default().fields("metadata.name=a")).await.unwrap();
    assert_eq!((listed.items.len(), listed.types.kind.as_str()), (1, "ConfigMapList"));
    let gone = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.right().unwrap().is_success());
    let missing = api.get("a").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.message == r#"configmaps "a" not found"#));
}

#[tokio::test]
async fn server_side_apply_creates_and_conflicts() {
    let ready = Ready::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(ready.client());
    let apply =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    api.patch("a", &PatchParams::apply("one"), &Patch::Apply(apply("1"))).await.unwrap();
    let conflict = api.patch("a", &PatchParams::apply("two"), &Patch::Apply(apply("2"))).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409));
    let forced = api.patch("a", &PatchParams::apply("two").force(), &Patch::Apply(apply("2"))).await.unwrap();
    assert_eq!(forced.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn a_watch_sends_what_happens_and_bookmarks() {
    let ready = Ready::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(ready.client());
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let mut events = api.watch(&WatchParams::default().initial_events(), "").await.unwrap().boxed();
    let first = events.try_next().await.unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Added(object) if object.metadata.name.as_deref() == Some("a")));
    let second = events.try_next().await.unwrap().unwrap();
    let WatchEvent::Bookmark(bookmark) = second else { panic!("{second:?}") };
    assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let third = events.try_next().await.unwrap().unwrap();
    assert!(matches!(third, WatchEvent::Deleted(_)));
}

#[tokio::test]
async fn kubes_watcher_follows_with_lists_and_with_streams() {
    let ready = Ready::start().await;
    let api: Api<ConfigMap> = Api::default_namespaced(ready.client());
    api.create(&PostParams::default(), &config_map("a")).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = watcher(api.clone(), config).boxed();
        let mut names = Vec::new();
        loop {
            match events.try_next().await.unwrap().unwrap() {
                watcher::Event::InitApply(object) => names.push(object.metadata.name.unwrap()),
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        assert_eq!(names, ["a"]);
        let patch = Patch::Merge(json!({"metadata": {"labels": {"n": names.len().to_string()}}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"n": null}}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        let next = events.try_next().await.unwrap().unwrap();
        assert!(matches!(next, watcher::Event::Apply(_)));
    }
}

#[tokio::test]
async fn metadata_alone_can_be_asked_for() {
    let ready = Ready::start().await;
    let client = ready.client();
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &pod("p")).await.unwrap();
    let metadata: Api<PartialObjectMeta<Pod>> = Api::default_namespaced(client);
    assert_eq!(metadata.get_metadata("p").await.unwrap().metadata.name.as_deref(), Some("p"));
    let listed = metadata.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let mut events = metadata.watch_metadata(&WatchParams::default(), "0").await.unwrap().boxed();
    assert!(matches!(events.try_next().await.unwrap().unwrap(), WatchEvent::Added(_)));
}

#[tokio::test]
async fn both_forms_of_discovery_tell_the_same() {
    let ready = Ready::start().await;
    let kinds = |discovery: Discovery| {
        let mut kinds: Vec<String> = discovery
            .groups()
            .flat_map(|group| group.recommended_resources())
            .map(|(resource, _)| format!("{}/{}", resource.api_version, resource.kind))
            .collect();
        kinds.sort();
        kinds
    };
    let plain = kinds(Discovery::new(ready.client()).run().await.unwrap());
    let aggregated = kinds(Discovery::new(ready.client()).run_aggregated().await.unwrap());
    assert_eq!(plain, aggregated);
    assert!(plain.contains(&"apps/v1/Deployment".to_owned()), "{plain:?}");
    assert_eq!(ready.client().apiserver_version().await.unwrap().minor, "37");
}

#[tokio::test]
async fn the_same_api_is_served_over_tls() {
    let ready = Ready::start().await;
    let listener = ready.http.listen(Listen::default()).await.unwrap();
    let text = listener.kubeconfig(UserInfo::admin()).text();
    let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let api: Api<Namespace> = Api::all(client);
    assert!(api.list(&ListParams::default()).await.unwrap().items.len() >= 4);
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    let ready = Ready::start().await;
    let listener = ready.http.listen(Listen::default()).await.unwrap();
    let kubeconfig = listener.kubeconfig(UserInfo::admin());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(kubeconfig.ca_pem.as_bytes()).unwrap()).unwrap();
    for (protocol, version) in [("h2", http::Version::HTTP_2), ("http/1.1", http::Version::HTTP_11)] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![protocol.into()];
        let socket = tokio::net::TcpStream::connect(listener.address()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let request = |uri: String| {
            let token = format!("Bearer {}", kubeconfig.token);
            Request::get(uri).header("host", "127.0.0.1").header("authorization", token).body(String::new()).unwrap()
        };
        let (path, stream) = ("/api/v1/namespaces/default", TokioIo::new(stream));
        let answer = if protocol == "h2" {
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request(format!("{}{path}", kubeconfig.server))).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request(path.to_owned())).await.unwrap()
        };
        assert_eq!((answer.status().as_u16(), answer.version()), (200, version));
    }
}

#[tokio::test]
async fn a_lost_answer_is_a_lost_connection_and_no_answer() {
    let ready = Ready::start().await;
    let listener = ready.http.listen(Listen::default()).await.unwrap();
    let config = kube::config::Kubeconfig::from_yaml(&listener.kubeconfig(UserInfo::admin()).text()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    config.default_retry = false;
    let faults = ready.http.server().faults();
    for (name, client) in [("a", ready.client()), ("b", kube::Client::try_from(config).unwrap())] {
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        let map = ConfigMap {
            metadata: kube::core::ObjectMeta { name: Some(name.into()), ..Default::default() },
            ..Default::default()
        };
        let fault = faults.add(Fault::lose_answer(Matcher::new().writes()).first(1));
        let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
        assert!(!matches!(error, kube::Error::Api(_)), "{error:?}");
        fault.remove();
        assert!(maps.get_opt(name).await.unwrap().is_some(), "the write was carried out");
    }
}

#[tokio::test]
async fn nobody_may_do_anything_before_a_role_says_so() {
    let ready = Ready::start().await;
    let eve: Api<ConfigMap> = Api::default_namespaced(ready.client_of("eve"));
    let refused = eve.list(&ListParams::default()).await.unwrap_err();
    let message = r#"configmaps is forbidden: User "eve" cannot list resource "configmaps" in API group "" in the namespace "default""#;
    assert!(matches!(refused, kube::Error::Api(status) if status.message == message && status.code == 403));
    bind(&ready, "view", "eve").await;
    eve.list(&ListParams::default()).await.unwrap();
    let refused = eve.create(&PostParams::default(), &config_map("a")).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
}

/// Binds a ClusterRole to a user, cluster-wide.
async fn bind(ready: &Ready, role: &str, user: &str) {
    let binding: ClusterRoleBinding = object(json!({
        "metadata": {"name": format!("{role}-{user}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }));
    Api::all(ready.client()).create(&PostParams::default(), &binding).await.unwrap();
}

#[tokio::test]
async fn a_new_role_is_aggregated_into_those_that_select_it() {
    let ready = Ready::start().await;
    let roles: Api<ClusterRole> = Api::all(ready.client());
    let role = object(json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["x.io"], "resources": ["widgets"], "verbs": ["get"]}],
    }));
    roles.create(&PostParams::default(), &role).await.unwrap();
    for name in ["view", "edit", "admin"] {
        let has = |role: Option<&ClusterRole>| {
            let rules = role.and_then(|role| role.rules.clone()).unwrap_or_default();
            rules.iter().any(|rule| rule.api_groups.as_deref() == Some(&["x.io".to_owned()]))
        };
        kube::runtime::wait::await_condition(roles.clone(), name, has).await.unwrap();
    }
}

#[tokio::test]
async fn nobody_gives_away_more_than_they_have() {
    let ready = Ready::start().await;
    bind(&ready, "admin", "ann").await;
    let roles: Api<Role> = Api::default_namespaced(ready.client_of("ann"));
    let role = |resource: &str, verb: &str| -> Role {
        object(
            json!({"metadata": {"name": resource}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}]}),
        )
    };
    roles.create(&PostParams::default(), &role("pods", "get")).await.unwrap();
    let refused = roles.create(&PostParams::default(), &role("nodes", "get")).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(
        status.message,
        "roles.rbac.authorization.k8s.io \"nodes\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}"
    );
}

#[tokio::test]
async fn an_apply_that_makes_an_object_needs_the_right_to_create_it() {
    let ready = Ready::start().await;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]});
    let role: ClusterRole = object(json!({"metadata": {"name": "patcher"}, "rules": [rule]}));
    Api::all(ready.client()).create(&PostParams::default(), &role).await.unwrap();
    bind(&ready, "patcher", "ann").await;
    let maps = |client| -> Api<ConfigMap> { Api::default_namespaced(client) };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}});
    let params = PatchParams::apply("test");
    let refused = maps(ready.client_of("ann")).patch("m", &params, &Patch::Apply(&map)).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(
        status.message,
        "configmaps \"m\" is forbidden: User \"ann\" cannot create resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    maps(ready.client()).patch("m", &params, &Patch::Apply(&map)).await.unwrap();
    maps(ready.client_of("ann")).patch("m", &params, &Patch::Apply(&map)).await.unwrap();
}

#[tokio::test]
async fn a_service_account_acts_with_its_token_until_it_goes() {
    let ready = Ready::start().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(ready.client());
    let account: ServiceAccount = object(json!({"metadata": {"name": "bot"}}));
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest = object(json!({"spec": {"audiences": []}}));
    let answer = accounts.create_token_request("bot", &PostParams::default(), &request).await.unwrap();
    let token = answer.status.unwrap().token.unwrap();
    let ask = || {
        let body = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}).to_string();
        Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("authorization", format!("Bearer {token}"))
            .body(body)
            .unwrap()
    };
    let (code, _, review) = ready.raw(ask()).await;
    assert_eq!((code, &review["status"]["allowed"]), (201, &json!(false)));
    accounts.delete("bot", &DeleteParams::default()).await.unwrap();
    assert_eq!(ready.raw(ask()).await.0, 401);
}

#[tokio::test]
async fn reviews_know_the_user() {
    let ready = Ready::start().await;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(ready.client_of("eve"));
    let review =
        object(json!({"metadata": {}, "spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}}));
    let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
    let status = answer.status.unwrap();
    assert!(status.allowed);
    assert!(status.reason.unwrap().starts_with("RBAC: allowed by ClusterRoleBinding"));
}

#[tokio::test]
async fn tables_follow_the_objects() {
    let ready = Ready::start().await;
    let api: Api<Pod> = Api::default_namespaced(ready.client());
    api.create(&PostParams::default(), &pod("p")).await.unwrap();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (code, _, table) = ready.raw(get("/api/v1/namespaces/default/pods", accept)).await;
    assert_eq!((code, &table["kind"]), (200, &json!("Table")));
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(&columns[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("p"), json!("0/1"), json!("Pending")]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn unknown_fields_are_told_in_headers() {
    let ready = Ready::start().await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}, "odd": 1}).to_string();
    let post = |query: &str| {
        Request::post(format!("/api/v1/namespaces/default/configmaps{query}"))
            .header("content-type", "application/json")
            .body(body.clone())
            .unwrap()
    };
    let (code, _, status) = ready.raw(post("?fieldValidation=Strict")).await;
    assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")));
    let (code, headers, _) = ready.raw(post("")).await;
    assert_eq!((code, headers["warning"].to_str().unwrap()), (201, r#"299 - "unknown field \"odd\"""#));
}

#[tokio::test]
async fn yaml_is_taken_and_given() {
    let ready = Ready::start().await;
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/yaml")
        .header("accept", "application/yaml")
        .body("metadata:\n  name: a\ndata:\n  k: v\n".to_owned())
        .unwrap();
    let (code, headers, text) = ready.raw(request).await;
    assert_eq!((code, headers["content-type"].to_str().unwrap()), (201, "application/yaml"));
    assert!(text.as_str().unwrap().contains("kind: ConfigMap"), "{text}");
}

#[tokio::test]
async fn open_api_describes_every_group() {
    let ready = Ready::start().await;
    let (_, _, index) = ready.raw(get("/openapi/v3", "application/json")).await;
    let path = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (code, headers, document) = ready.raw(get(&path, "application/json")).await;
    assert_eq!(code, 200);
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert!(document["components"]["schemas"]["io.k8s.api.core.v1.Container"].is_object());
    let mut again = get(&path, "application/json");
    again.headers_mut().insert("if-none-match", headers["etag"].clone());
    assert_eq!(ready.raw(again).await.0, 304);
    let (_, _, older) = ready.raw(get("/openapi/v2", "application/json")).await;
    assert!(older["definitions"]["io.k8s.api.apps.v1.Deployment"].is_object());
}

/// Containers that echo their request.
struct Echo;

impl Runtime for Echo {
    fn logs<'a>(&'a self, pod: &'a Object, options: LogOptions) -> BoxFuture<'a, Answer<BoxStream<'static, Bytes>>> {
        let line = format!("{} {} {:?}\n", pod.name(), options.container, options.tail_lines);
        Box::pin(async move { Ok(futures::stream::iter([Bytes::from(line)]).boxed()) })
    }

    fn exec<'a>(&'a self, _pod: &'a Object, options: ExecOptions, mut streams: Streams) -> BoxFuture<'a, Answer<i32>> {
        Box::pin(async move {
            let mut input = String::new();
            if options.stdin {
                streams.stdin.read_to_string(&mut input).await.unwrap();
            }
            let text = format!("{} {input}", options.command.join(" "));
            streams.stdout.write_all(text.as_bytes()).await.unwrap();
            streams.stderr.write_all(b"oops").await.unwrap();
            Ok(3)
        })
    }

    fn port_forward<'a>(
        &'a self,
        _pod: &'a Object,
        port: u16,
        mut stream: tokio::io::DuplexStream,
    ) -> BoxFuture<'a, Answer<()>> {
        Box::pin(async move {
            let mut input = [0; 4];
            stream.read_exact(&mut input).await.unwrap();
            stream.write_all(format!("{port} {}", String::from_utf8_lossy(&input)).as_bytes()).await.unwrap();
            Ok(())
        })
    }
}

async fn with_echo() -> (Ready, Api<Pod>) {
    let ready = Ready::start().await;
    ready.http.set_runtime(Arc::new(Echo));
    let api: Api<Pod> = Api::default_namespaced(ready.client());
    api.create(&PostParams::default(), &pod("p")).await.unwrap();
    (ready, api)
}

#[tokio::test]
async fn logs_come_from_the_runtime() {
    let (_ready, api) = with_echo().await;
    let options = LogParams { tail_lines: Some(5), ..LogParams::default() };
    assert_eq!(api.logs("p", &options).await.unwrap(), "p c Some(5)\n");
    let odd = LogParams { container: Some("x".into()), ..LogParams::default() };
    let refused = api.logs("p", &odd).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.message == "container x is not valid for pod p"));
}

async fn exec(api: &Api<Pod>) {
    let params = AttachParams::default().stdin(true).stderr(true);
    let mut process = api.exec("p", ["cat", "-n"], &params).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    stdin.write_all(b"hello").await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let status = process.take_status().unwrap();
    stdout.read_to_string(&mut out).await.unwrap();
    stderr.read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str()), ("cat -n hello", "oops"));
    let status = status.await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    process.join().await.unwrap();
}

#[tokio::test]
async fn commands_run_without_a_socket() {
    let (_ready, api) = with_echo().await;
    exec(&api).await;
}

#[tokio::test]
async fn commands_run_over_tls() {
    let (ready, _) = with_echo().await;
    let listener = ready.http.listen(Listen::default()).await.unwrap();
    let config = kube::config::Kubeconfig::from_yaml(&listener.kubeconfig(UserInfo::admin()).text()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    exec(&Api::default_namespaced(kube::Client::try_from(config).unwrap())).await;
}

#[tokio::test]
async fn ports_are_forwarded() {
    let (_ready, api) = with_echo().await;
    let mut forwarder = api.portforward("p", &[80, 81]).await.unwrap();
    let mut stream = forwarder.take_stream(81).unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"81 ping");
}
