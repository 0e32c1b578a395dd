//! The API as a tower service: one request in, one answer out, with or without a socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use tokio::task::JoinHandle;

use super::body::Body;
use super::discovery::Discovery;
use super::media::{Media, header};
use super::openapi::Documents;
use super::path::Path;
use super::query::Query;
use super::respond::Lost;
use super::runtime::Runtime;
use super::{gate, pages, respond, tunnel, verbs};
use crate::auth::{self, Auth, Creation, Escalation, UserInfo};
use crate::error::{Result, Status};
use crate::ops::{Caller, Server};

/// Largest body of a request.
const BODY_LIMIT: usize = 3 << 20;

/// The HTTP face of a server. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Api {
    pub(super) inner: Arc<Inner>,
    /// Who a request without a token comes from.
    user: Arc<UserInfo>,
}

/// What all requests share.
pub(super) struct Inner {
    pub(super) server: Server,
    pub(super) auth: Arc<Auth>,
    pub(super) runtime: OnceLock<Arc<dyn Runtime>>,
    pub(super) discovery: Discovery,
    pub(super) documents: Documents,
    /// Keeps aggregated roles up to date.
    aggregate: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = &self.aggregate {
            task.abort();
        }
    }
}

impl Api {
    /// The HTTP face of `server`. Requests without a token are anonymous.
    pub fn new(server: Server, auth: Arc<Auth>) -> Self {
        Self::with_task(server, auth, None)
    }

    /// A ready server: one that has the namespaces, roles and bindings of every cluster, checks writes of roles, and
    /// keeps aggregated roles up to date.
    pub async fn start(server: Server, auth: Arc<Auth>) -> Result<Self> {
        server.add_admission(Arc::new(Creation::new(auth.clone())));
        server.add_admission(Arc::new(Escalation::new(auth.clone())));
        auth::install(&server).await?;
        let aggregate = tokio::spawn(auth::aggregate(server.clone()));
        Ok(Self::with_task(server, auth, Some(aggregate)))
    }

    fn with_task(server: Server, auth: Arc<Auth>, aggregate: Option<JoinHandle<()>>) -> Self {
        auth.attach(&server);
        let (discovery, documents) = (Discovery::default(), Documents::default());
        let inner = Inner { server, auth, runtime: OnceLock::new(), discovery, documents, aggregate };
        Self { inner: Arc::new(inner), user: Arc::new(UserInfo::anonymous()) }
    }

    /// Says what runs containers: logs, exec, attach and port forwarding. Only the first call counts.
    pub fn set_runtime(&self, runtime: Arc<dyn Runtime>) {
        let _ = self.inner.runtime.set(runtime);
    }

    /// The same, where a request without a token comes from `user`.
    pub fn as_user(&self, user: UserInfo) -> Self {
        Self { inner: self.inner.clone(), user: Arc::new(user) }
    }

    /// The server behind it.
    pub fn server(&self) -> &Server {
        &self.inner.server
    }

    /// Tokens and policy.
    pub fn auth(&self) -> &Arc<Auth> {
        &self.inner.auth
    }

    /// A client that talks to this API without a socket.
    pub fn client(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.clone(), namespace)
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let media = Media::negotiate(&head.headers, &query);
        let plain = media.as_ref().map(|media| media.plain()).unwrap_or_default();
        let mut call = match self.admit(head, query) {
            Ok(call) => call,
            Err(status) => return respond::failure(plain, &status),
        };
        if !matches!(call.method, Method::GET | Method::HEAD) {
            call.body = match collect(body).await {
                Ok(body) => body,
                Err(status) => return respond::failure(plain, &status),
            };
        }
        if !call.path.is_resource {
            return pages::answer(&self.inner, &call, media).await;
        }
        let answer = match media {
            Ok(media) => verbs::answer(&self.inner, &call, media).await,
            Err(status) => Err(verbs::not_acceptable(&self.inner, &call, status)),
        };
        // Nobody outside may rely on what a crash takes back.
        if !matches!(call.method, Method::GET | Method::HEAD)
            && let Err(error) = self.inner.server.store().saved().await
        {
            return respond::failure(plain, &Status::internal(error));
        }
        answer.unwrap_or_else(|status| respond::failure(plain, &status))
    }

    /// Finds out who asks for what, and whether they may.
    fn admit(&self, head: http::request::Parts, query: Query) -> Result<Call> {
        let path = Path::parse(head.uri.path());
        let attributes = path.attributes(&head.method, &query);
        let user = gate::user(&self.inner.auth, &head.headers, &self.user, &attributes)?;
        self.inner.auth.authorize(&user, &attributes)?;
        let user_agent = header(&head.headers, USER_AGENT.as_str());
        let caller = Caller { user, user_agent };
        let (method, mut headers, extensions) = (head.method, head.headers, head.extensions);
        // HTTP/2 has the name of the server in the target of the request.
        if let Some(host) = head.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
            headers.entry(HOST).or_insert(host);
        }
        Ok(Call { method, path, query, headers, extensions, caller, body: Bytes::new() })
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// A request that may go ahead.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: Path,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    /// Where the connection can be taken over, for exec and its like.
    pub(super) extensions: http::Extensions,
    pub(super) caller: Caller,
    pub(super) body: Bytes,
}

async fn collect<B>(body: B) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_LIMIT}");
            Err(Status::new(413, "RequestEntityTooLarge", message))
        }
        Err(error) => Err(Status::bad_request(error.to_string())),
    }
}

/// An answer, unless it got lost on its way.
fn found(response: Response<Body>) -> Result<Response<Body>, Lost> {
    match response.extensions().get::<Lost>() {
        Some(lost) => Err(*lost),
        None => Ok(response),
    }
}

impl<B> tower::Service<Request<B>> for Api
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Lost>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            // Without a connection there is nothing to take over, so one is made.
            let wants_stream = request.headers().contains_key(http::header::UPGRADE);
            if wants_stream && request.extensions().get::<hyper::upgrade::OnUpgrade>().is_none() {
                return found(tunnel::answer(api, request).await);
            }
            found(api.answer(request).await)
        })
    }
}
