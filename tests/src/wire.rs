//! Connection between one operator and the API server: counts writes, and can be cut right after one of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use capstan_apiserver::serve::{Api, Path};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;
use tokio::sync::Notify;

/// A fault at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The operator dies as soon as write number `k` completes: no later request arrives.
    DieAfter(usize),
    /// Write number `k` completes, but its response is lost.
    LoseAnswer(usize),
}

/// A service for `kube::Client` with a fault. Clones share one state.
#[derive(Clone)]
pub struct Wire {
    to: End,
    fault: Fault,
    state: Arc<State>,
}

/// The server of a connection.
#[derive(Clone)]
pub enum End {
    /// The embedded server.
    Embedded(Api),
    /// A real server.
    Real(kube::Client),
}

/// Response body.
type Body = UnsyncBoxBody<bytes::Bytes, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Default)]
struct State {
    writes: AtomicUsize,
    requests: Mutex<BTreeMap<String, usize>>,
    cut: AtomicBool,
    died: Notify,
    /// Bodies of server-side applies by path, if recorded.
    applied: Mutex<Option<BTreeMap<String, Value>>>,
}

impl Wire {
    /// Connects to a server.
    pub fn new(to: End, fault: Fault) -> Self {
        Self { to, fault, state: Arc::default() }
    }

    /// Number of writes.
    pub fn writes(&self) -> usize {
        self.state.writes.load(Ordering::SeqCst)
    }

    /// Number of requests by kind, as `PATCH nimservices/status`; without watches, lists and leases.
    pub fn requests(&self) -> BTreeMap<String, usize> {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts to record applied objects.
    pub fn record_applies(&self) {
        self.state.applied.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
    }

    /// The last applied body of each object, without status, by path.
    pub fn applied(&self) -> BTreeMap<String, Value> {
        self.state.applied.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Records the body of an apply, and returns the request.
    async fn recorded(&self, request: Request<kube::client::Body>) -> Request<kube::client::Body> {
        let is_apply = request
            .headers()
            .get(http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "application/apply-patch+yaml");
        let path = request.uri().path().to_owned();
        let recording = self.state.applied.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !recording || !is_apply || path.ends_with("/status") {
            return request;
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let value = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(applied) = &mut *self.state.applied.lock().unwrap_or_else(PoisonError::into_inner) {
            applied.insert(path, value);
        }
        Request::from_parts(parts, kube::client::Body::from(bytes))
    }

    /// Cuts the connection.
    pub fn cut(&self) {
        self.state.cut.store(true, Ordering::SeqCst);
        self.state.died.notify_waiters();
    }

    /// Waits until the fault has cut the connection.
    pub async fn died(&self) {
        let died = self.state.died.notified();
        if !self.state.cut.load(Ordering::SeqCst) {
            died.await;
        }
    }

    async fn pass(self, request: Request<kube::client::Body>) -> Result<Response<Body>, LostResponse> {
        if self.state.cut.load(Ordering::SeqCst) {
            return Err(LostResponse);
        }
        let is_write = request.method() != Method::GET;
        if let Some(kind) = kind(request.method(), request.uri().path()) {
            *self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
        }
        let request = self.recorded(request).await;
        let number = if is_write { self.state.writes.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        let answer = match &self.to {
            End::Embedded(api) => api.answer(request).await.map(|body| body.map_err(Into::into).boxed_unsync()),
            End::Real(client) => {
                let answer = client.send(request).await.map_err(|_| LostResponse)?;
                answer.map(|body| body.map_err(Into::into).boxed_unsync())
            }
        };
        match self.fault {
            Fault::DieAfter(k) if is_write && number == k => {
                self.cut();
                Err(LostResponse)
            }
            Fault::LoseAnswer(k) if is_write && number == k => Err(LostResponse),
            // A request in flight when the operator died.
            _ if self.state.cut.load(Ordering::SeqCst) => Err(LostResponse),
            _ => Ok(answer),
        }
    }
}

/// Method, resource and subresource of a request about one object. `None` for lists, watches and leases.
fn kind(method: &Method, path: &str) -> Option<String> {
    let path = Path::parse(path);
    let (resource, sub) = (path.resource, path.subresource);
    let about_one = !path.name.is_empty() || *method != Method::GET;
    let sub = if sub.is_empty() { sub } else { format!("/{sub}") };
    let counts = path.is_resource && about_one && path.rest.is_empty() && resource != "leases";
    counts.then(|| format!("{method} {resource}{sub}"))
}

/// The response was lost.
#[derive(Clone, Copy, Debug)]
pub struct LostResponse;

impl std::fmt::Display for LostResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection lost")
    }
}

impl std::error::Error for LostResponse {}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = LostResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, LostResponse>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LostResponse>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
