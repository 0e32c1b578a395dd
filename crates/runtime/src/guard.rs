//! Who may read metrics: whoever the API server says may GET `/metrics`, as for every other component of a cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, timeout};

/// How long an answer counts. Scrapers come again and again with the same token.
const REMEMBER: Duration = Duration::from_secs(60);

/// How many answers are kept, and how long one may take.
const REMEMBERED: usize = 256;
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

type Refusal = (StatusCode, &'static str);
type Known = HashMap<String, (Instant, Result<(), Refusal>)>;

/// Decides who may read. Clones share one state.
#[derive(Clone)]
pub struct Guard {
    client: Option<Client>,
    known: Arc<Mutex<Known>>,
}

impl Guard {
    /// Lets everybody in: for a port that only this machine reaches.
    pub fn open() -> Self {
        Self { client: None, known: Arc::default() }
    }

    /// Asks the API server who a token belongs to, and what they may do.
    pub fn ask(client: Client) -> Self {
        Self { client: Some(client), known: Arc::default() }
    }

    pub(crate) async fn admit(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(client) = &self.client else { return Ok(()) };
        let header = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err((StatusCode::UNAUTHORIZED, "a bearer token is needed"));
        };
        if let Some(answer) = self.remembered(token) {
            return answer;
        }
        let answer = match timeout(REVIEW_TIMEOUT, ask(client, token)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::debug!(%error, "authorization review for metrics failed");
                return Err((StatusCode::SERVICE_UNAVAILABLE, "cannot ask the API server"));
            }
            Err(_) => return Err((StatusCode::SERVICE_UNAVAILABLE, "the API server does not answer")),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(token.to_owned(), (Instant::now(), answer));
        answer
    }

    fn remembered(&self, token: &str) -> Option<Result<(), Refusal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(token).filter(|(at, _)| at.elapsed() < REMEMBER).map(|(_, answer)| *answer)
    }
}

async fn ask(client: &Client, token: &str) -> kube::Result<Result<(), Refusal>> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let who = Api::all(client.clone()).create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let (Some(true), Some(user)) = (who.authenticated, who.user) else {
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
    let may = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(match may.status.is_some_and(|status| status.allowed) {
        true => Ok(()),
        false => Err((StatusCode::FORBIDDEN, "you may not get /metrics")),
    })
}
