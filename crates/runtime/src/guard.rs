//! Authorization of `/metrics`: TokenReview and SubjectAccessReview for GET `/metrics`, as for other cluster
//! components.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, timeout};

/// How long a decision is cached. Scrapers use the same token again and again.
const DECISION_TTL: Duration = Duration::from_secs(60);

/// Maximum number of cached decisions, and the timeout of a review.
const MAX_DECISIONS: usize = 256;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

type Refusal = (StatusCode, &'static str);
type Decisions = HashMap<String, (Instant, Result<(), Refusal>)>;

/// Authorizes requests. Clones share one state.
#[derive(Clone)]
pub struct Guard {
    client: Option<Client>,
    decisions: Arc<Mutex<Decisions>>,
}

impl Guard {
    /// Allows all requests: for a port on loopback.
    pub fn open() -> Self {
        Self { client: None, decisions: Arc::default() }
    }

    /// Authenticates and authorizes bearer tokens with the API server.
    pub fn token_review(client: Client) -> Self {
        Self { client: Some(client), decisions: Arc::default() }
    }

    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(client) = &self.client else { return Ok(()) };
        let header = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err((StatusCode::UNAUTHORIZED, "a bearer token is needed"));
        };
        if let Some(answer) = self.cached(token) {
            return answer;
        }
        let answer = match timeout(REVIEW_TIMEOUT, review(client, token)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(%error, "authorization review for metrics failed");
                return Err((StatusCode::SERVICE_UNAVAILABLE, "cannot ask the API server"));
            }
            Err(_) => return Err((StatusCode::SERVICE_UNAVAILABLE, "the API server does not answer")),
        };
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= MAX_DECISIONS {
            decisions.clear();
        }
        decisions.insert(token.to_owned(), (Instant::now(), answer));
        answer
    }

    fn cached(&self, token: &str) -> Option<Result<(), Refusal>> {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.get(token).filter(|(at, _)| at.elapsed() < DECISION_TTL).map(|(_, answer)| *answer)
    }
}

async fn review(client: &Client, token: &str) -> kube::Result<Result<(), Refusal>> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let status = Api::all(client.clone()).create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let (Some(true), Some(user)) = (status.authenticated, status.user) else {
        return Ok(Err((StatusCode::UNAUTHORIZED, "the token is not valid")));
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some("/metrics".into()),
                verb: Some("get".into()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let access = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(match access.status.is_some_and(|status| status.allowed) {
        true => Ok(()),
        false => Err((StatusCode::FORBIDDEN, "you may not get /metrics")),
    })
}
