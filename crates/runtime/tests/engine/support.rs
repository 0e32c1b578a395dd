//! A cluster without nodes, and clients whose connection can be cut, counted and corrupted.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use capstan_apiserver::admit;
use capstan_apiserver::auth::{Auth, UserInfo};
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{Server, Settings};
use capstan_apiserver::serve::Api;
use capstan_apiserver::store::Retention;
use capstan_runtime::{Gate, Runtime};
use futures::{StreamExt, TryStreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// An API server with the custom resource definition of NIMService.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) api: Api,
    /// A client that nothing happens to.
    pub(crate) admin: Client,
    _lifecycle: Lifecycle,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::with(Retention::default()).await
    }

    /// One that remembers so little that an interrupted watch cannot go on.
    pub(crate) async fn forgetful() -> Self {
        Self::with(Retention { events: 4, ..Retention::default() }).await
    }

    async fn with(retention: Retention) -> Self {
        let (kinds, admission) = admit::standard(&admit::Settings::alone());
        let server = Server::new(Settings { kinds: Some(kinds), admission, retention, ..Settings::default() });
        let lifecycle = Lifecycle::start(&server).await.unwrap();
        let api = Api::start(server.clone(), Auth::new()).await.unwrap().as_user(UserInfo::admin());
        let admin = api.client("default");
        Self { server, api, admin, _lifecycle: lifecycle }
    }

    pub(crate) fn link(&self) -> Link {
        let user = UserInfo::new("operator", &["system:masters"]);
        Link { api: self.api.as_user(user), state: Arc::default() }
    }

    pub(crate) async fn install(&self, kind: &str) {
        let definition = capstan_api::kinds().find(|entry| entry.is_called(kind)).unwrap().definition();
        let mut value = serde_json::to_value(definition).unwrap();
        value["apiVersion"] = "apiextensions.k8s.io/v1".into();
        value["kind"] = "CustomResourceDefinition".into();
        self.apply(value).await;
    }

    pub(crate) async fn apply(&self, object: Value) -> Value {
        let api = self.dynamic(&object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("tests").force();
        serde_json::to_value(api.patch(name, &params, &Patch::Apply(&object)).await.unwrap()).unwrap()
    }

    pub(crate) async fn delete(&self, object: &Value) {
        self.dynamic(object).delete(object["metadata"]["name"].as_str().unwrap(), &Default::default()).await.unwrap();
    }

    pub(crate) async fn get(&self, object: &Value) -> Option<Value> {
        let found = self.dynamic(object).get_opt(object["metadata"]["name"].as_str().unwrap()).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    fn dynamic(&self, object: &Value) -> kube::Api<DynamicObject> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap()));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => kube::Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => kube::Api::all_with(self.admin.clone(), &resource),
        }
    }
}

/// A connection to the API that may fail.
#[derive(Clone)]
pub(crate) struct Link {
    api: Api,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    down: watch::Sender<bool>,
    /// What is replaced by what in every answer.
    forged: Mutex<Option<(String, String)>>,
    /// A group and version that is not there, and an older one that is.
    aged: Mutex<Option<(String, String)>>,
    requests: Mutex<Vec<String>>,
}

impl Link {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(crate) fn cut(&self) {
        self.state.down.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.state.down.send_replace(false);
    }

    /// Ends what is open; new connections work.
    pub(crate) fn hiccup(&self) {
        self.cut();
        self.mend();
    }

    pub(crate) fn forge(&self, from: &str, to: &str) {
        *self.state.forged.lock().unwrap() = Some((from.into(), to.into()));
    }

    /// From now on a group has no version `new`, but an `old` one.
    pub(crate) fn age(&self, group: &str, new: &str, old: &str) {
        *self.state.aged.lock().unwrap() = Some((format!("/apis/{group}/{new}"), format!("/apis/{group}/{old}")));
    }

    /// The server has the newer version again.
    pub(crate) fn renew(&self) {
        *self.state.aged.lock().unwrap() = None;
    }

    /// `VERB PATH` of every request that was not a read, and forgets them.
    pub(crate) fn writes(&self) -> Vec<String> {
        let all = std::mem::take(&mut *self.state.requests.lock().unwrap());
        all.into_iter().filter(|request| !request.starts_with("GET")).collect()
    }

    /// All requests about objects of a plural, reads too, and forgets them.
    pub(crate) fn requests(&self, plural: &str) -> Vec<String> {
        let all = std::mem::take(&mut *self.state.requests.lock().unwrap());
        all.into_iter().filter(|request| request.contains(plural) && !request.contains("watch=")).collect()
    }
}

type AnyBody = StreamBody<Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<Request<kube::client::Body>> for Link {
    type Response = Response<AnyBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<kube::client::Body>) -> Self::Future {
        let Self { api, state } = self.clone();
        if let Some((new, old)) = &*state.aged.lock().unwrap() {
            let uri = request.uri().to_string();
            let is = |prefix: &str| {
                uri.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
            };
            let seen = if is(new) { uri.replacen(new, "/apis/none/v0", 1) } else { uri.clone() };
            let seen = if is(old) { uri.replacen(old, new, 1) } else { seen };
            *request.uri_mut() = seen.parse().unwrap();
        }
        Box::pin(async move {
            let line = format!("{} {}", request.method(), request.uri());
            state.requests.lock().unwrap().push(line);
            let mut down = state.down.subscribe();
            if *down.borrow_and_update() {
                return Err("connection refused".into());
            }
            let (head, body) = api.answer(request).await.into_parts();
            let forged = state.forged.lock().unwrap().clone();
            let lost = async move { while !matches!(down.changed().await, Ok(()) | Err(_)) {} };
            let frames = BodyStream::new(body).map_err(BoxError::from).take_until(Box::pin(lost));
            let frames = frames.map_ok(move |frame| match (&forged, frame.into_data()) {
                (Some((from, to)), Ok(data)) => {
                    Frame::data(String::from_utf8(data.to_vec()).unwrap().replace(from, to).into())
                }
                (_, Ok(data)) => Frame::data(data),
                (_, Err(frame)) => frame,
            });
            Ok(Response::from_parts(head, StreamBody::new(frames.boxed())))
        })
    }
}

/// A runtime on a link, with all caches read.
pub(crate) async fn runtime(link: &Link, gate: Gate) -> (Runtime, CancellationToken) {
    let stop = CancellationToken::new();
    let settings = capstan_runtime::Settings { gate, ..Default::default() };
    let runtime = Runtime::start(link.client(), settings, &stop);
    within(60, "synced", runtime.cache.synced()).await;
    (runtime, stop)
}

/// Fails when something takes longer than so many virtual seconds.
pub(crate) async fn within<T>(seconds: u64, what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(seconds);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("{what}: not within {seconds} s"))
}

/// Waits until a condition holds; fails after so many virtual seconds.
pub(crate) async fn until(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    within(seconds, what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"key": value},
    })
}

pub(crate) fn reference(name: &str) -> capstan_plan::Ref {
    capstan_plan::Ref::of::<ConfigMap>("default", name)
}

pub(crate) fn nim_service(name: &str) -> Value {
    json!({
        "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": {"repository": "nim", "tag": "1"}, "authSecret": "key", "expose": {"service": {"port": 8000}}},
    })
}
