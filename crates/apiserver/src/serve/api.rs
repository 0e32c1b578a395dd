//! The API as a tower service: one request in, one response out, with or without a socket.

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
use super::respond::Disconnected;
use super::runtime::Runtime;
use super::{authenticate, non_resource, respond, tunnel, verbs};
use crate::auth::{self, Auth, Creation, Escalation, UserInfo};
use crate::error::{Result, Status};
use crate::ops::{Caller, Server};

/// Maximum size of a request body.
const BODY_LIMIT: usize = 3 << 20;

/// The HTTP API of a server. Clones are cheap and share all state.
#[derive(Clone)]
pub struct Api {
    pub(super) inner: Arc<Inner>,
    /// The user of requests without a token.
    user: Arc<UserInfo>,
}

/// State shared by all requests.
pub(super) struct Inner {
    pub(super) server: Server,
    pub(super) auth: Arc<Auth>,
    pub(super) runtime: OnceLock<Arc<dyn Runtime>>,
    pub(super) discovery: Discovery,
    pub(super) documents: Documents,
    /// Task of the ClusterRole aggregation controller.
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
    /// The HTTP API of `server`. Requests without a token are anonymous.
    pub fn new(server: Server, auth: Arc<Auth>) -> Self {
        Self::with_task(server, auth, None)
    }

    /// A server with the bootstrap namespaces, roles and bindings, RBAC escalation checks and ClusterRole aggregation.
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

    /// Sets the container runtime: logs, exec, attach and port forwarding. Only the first call has an effect.
    pub fn set_runtime(&self, runtime: Arc<dyn Runtime>) {
        let _ = self.inner.runtime.set(runtime);
    }

    /// A clone whose requests without a token are made by `user`.
    pub fn as_user(&self, user: UserInfo) -> Self {
        Self { inner: self.inner.clone(), user: Arc::new(user) }
    }

    /// The underlying server.
    pub fn server(&self) -> &Server {
        &self.inner.server
    }

    /// Authenticator and authorizer.
    pub fn auth(&self) -> &Arc<Auth> {
        &self.inner.auth
    }

    /// A client of this API without a socket.
    pub fn client(&self, namespace: &str) -> kube::Client {
        kube::Client::new(self.clone(), namespace)
    }

    /// Handles one request.
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
            return non_resource::answer(&self.inner, &call, media).await;
        }
        let answer = match media {
            Ok(media) => verbs::answer(&self.inner, &call, media).await,
            Err(status) => Err(verbs::not_acceptable(&self.inner, &call, status)),
        };
        // Wait for durability: a client must not see a write succeed that a crash reverts.
        if !matches!(call.method, Method::GET | Method::HEAD)
            && let Err(error) = self.inner.server.store().saved().await
        {
            return respond::failure(plain, &Status::internal(error));
        }
        answer.unwrap_or_else(|status| respond::failure(plain, &status))
    }

    /// Resolves, authenticates and authorizes a request.
    fn admit(&self, head: http::request::Parts, query: Query) -> Result<Call> {
        let path = Path::parse(head.uri.path());
        let attributes = path.attributes(&head.method, &query);
        let user = authenticate::user(&self.inner.auth, &head.headers, &self.user, &attributes)?;
        self.inner.auth.authorize(&user, &attributes)?;
        let user_agent = header(&head.headers, USER_AGENT.as_str());
        let caller = Caller { user, user_agent };
        let (method, mut headers, extensions) = (head.method, head.headers, head.extensions);
        // HTTP/2 has the host in the `:authority` pseudo-header.
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

/// An authorized request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: Path,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    /// Contains the connection upgrade, for exec, attach and port-forward.
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

/// The response, unless a fault dropped the connection.
fn unless_disconnected(response: Response<Body>) -> Result<Response<Body>, Disconnected> {
    match response.extensions().get::<Disconnected>() {
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
    type Error = Disconnected;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Disconnected>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            // In-process requests have no connection to upgrade, so an in-memory one is created.
            let wants_stream = request.headers().contains_key(http::header::UPGRADE);
            if wants_stream && request.extensions().get::<hyper::upgrade::OnUpgrade>().is_none() {
                return unless_disconnected(tunnel::answer(api, request).await);
            }
            unless_disconnected(api.answer(request).await)
        })
    }
}
