//! External queries: facts that a plan needs and that neither the API nor the clock provides.
//!
//! A plan lists its queries. The runtime runs them between two reconciles, and the results are facts of the next one.
//! Until then the plan does without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Ref;

/// Refresh interval of a model endpoint.
const MODEL_REFRESH: Duration = Duration::from_secs(60);
/// Refresh interval of a log tail.
const LOG_REFRESH: Duration = Duration::from_secs(30);

/// A query. It runs for as long as plans list it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    /// Which model an endpoint serves. Refreshed periodically, because an endpoint may become unreachable.
    Model {
        /// Scheme, host and port.
        url: String,
        /// Revision of the workload: another one may serve another model.
        revision: String,
    },
    /// A new private key, for a Secret that does not exist yet.
    PrivateKey {
        /// The Secret.
        secret: Ref,
    },
    /// The labels of an image. Runs until the registry has responded once.
    Image(Image),
    /// The log of the only container of a pod. The head is read once, the tail is refreshed.
    PodLog {
        /// The pod.
        pod: Ref,
        /// Its uid: a recreated pod has another log.
        uid: String,
        /// Which part of the log.
        part: LogPart,
    },
    /// The value of a key of a Secret, for another Secret that is made from it. Caches hold hashes of values only.
    SecretValue {
        /// The Secret.
        secret: Ref,
        /// The key.
        key: String,
        /// Hash of the value as the cache shows it: another value is another question.
        version: String,
    },
}

/// A value that logs must not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive(pub String);

impl std::fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogPart {
    /// At most this many bytes from its start.
    Head(u32),
    /// At most this many lines from its end.
    Tail(u16),
}

/// An image in a registry, and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Image {
    /// The image reference.
    pub name: String,
    /// Pull secrets; the first that has the registry counts.
    pub secrets: Vec<Ref>,
    /// Proxies; those of our own environment where unset.
    pub proxy: Proxies,
    /// ConfigMap with additional CA certificates.
    pub certificates: Option<Ref>,
}

/// Proxies on the way to a registry; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Proxies {
    /// For HTTP.
    pub http: String,
    /// For HTTPS.
    pub https: String,
    /// NO_PROXY: hosts without a proxy, separated by commas.
    pub none: String,
}

/// Labels of an image, for one platform.
pub type Labels = BTreeMap<String, String>;

impl Query {
    /// Refresh interval; `None` if one result is final.
    pub fn refresh(&self) -> Option<Duration> {
        match self {
            Self::Model { .. } => Some(MODEL_REFRESH),
            Self::PodLog { part: LogPart::Tail(_), .. } => Some(LOG_REFRESH),
            Self::PodLog { part: LogPart::Head(_), .. }
            | Self::PrivateKey { .. }
            | Self::Image(_)
            | Self::SecretValue { .. } => None,
        }
    }

    /// The result of a query that failed for a while; `None` if the plan can only wait.
    pub fn failed(&self, reason: String) -> Option<QueryResult> {
        match self {
            Self::Model { .. } => Some(QueryResult::Model(Err(reason))),
            Self::PrivateKey { .. } => None,
            Self::Image(_) => Some(QueryResult::Image(Err(reason))),
            Self::PodLog { .. } => Some(QueryResult::PodLog(Err(reason))),
            Self::SecretValue { .. } => Some(QueryResult::SecretValue(Err(reason))),
        }
    }
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryResult {
    /// Name of the model, which may be empty; or why the endpoint does not respond, after several attempts.
    Model(Result<String, String>),
    /// The key, as PEM.
    PrivateKey(String),
    /// Labels for each platform of the image; or why they are unknown, after several attempts.
    Image(Result<Vec<Labels>, String>),
    /// The text; or why it cannot be read, after several attempts.
    PodLog(Result<Arc<str>, String>),
    /// The value, as text; or why it cannot be read, after several tries.
    SecretValue(Result<Sensitive, String>),
}
