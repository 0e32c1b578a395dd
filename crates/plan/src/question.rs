//! What a plan wants to know that neither the API nor the clock tells.
//!
//! A plan asks by naming the question in its answer. Somebody asks it between two decisions, and what came back is a fact
//! of the next one. Until then the plan goes on without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Ref;

/// How often an endpoint that answered is asked again.
const MODEL_REFRESH: Duration = Duration::from_secs(60);
/// How often the end of a log is read again.
const LOG_REFRESH: Duration = Duration::from_secs(30);

/// A question. It is asked for as long as plans name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// Which model an endpoint serves. Asked again now and then, because an endpoint may fall silent.
    Model {
        /// Scheme, host and port.
        url: String,
        /// What serves there: another one may serve another model.
        revision: String,
    },
    /// A new private key, for a Secret that is not there yet.
    PrivateKey {
        /// The Secret.
        secret: Ref,
    },
    /// What an image says of itself in its labels. Asked until the registry has answered once.
    Image(Image),
    /// What the only container of a pod has printed. The beginning is read once, the end again and again.
    PodLog {
        /// The pod.
        pod: Ref,
        /// Its uid: a namesake prints something else.
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
    /// At most this many bytes from its beginning.
    Head(u32),
    /// At most this many lines from its end.
    Tail(u16),
}

/// An image in a registry, and how to get there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Image {
    /// Its name, as pods give it.
    pub name: String,
    /// Secrets with credentials for registries; the first that knows the registry counts.
    pub secrets: Vec<Ref>,
    /// Proxies; those of our own environment where none is given.
    pub proxy: Proxies,
    /// ConfigMap with certificates to trust besides the usual ones.
    pub certificates: Option<Ref>,
}

/// Proxies on the way to a registry; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Proxies {
    /// For HTTP.
    pub http: String,
    /// For HTTPS.
    pub https: String,
    /// Hosts that are reached directly, separated by commas.
    pub none: String,
}

/// Labels of an image, for one platform.
pub type Labels = BTreeMap<String, String>;

impl Question {
    /// How long an answer counts; `None` where one is enough.
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

    /// What to tell a plan when nobody answered for a while; nothing where it can only wait.
    pub fn unanswered(&self, why: String) -> Option<Answer> {
        match self {
            Self::Model { .. } => Some(Answer::Model(Err(why))),
            Self::PrivateKey { .. } => None,
            Self::Image(_) => Some(Answer::Image(Err(why))),
            Self::PodLog { .. } => Some(Answer::PodLog(Err(why))),
            Self::SecretValue { .. } => Some(Answer::SecretValue(Err(why))),
        }
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Name of the model, which may be empty; or why the endpoint does not say, after several tries.
    Model(Result<String, String>),
    /// The key, as PEM.
    PrivateKey(String),
    /// Labels for each platform of the image; or why they are not known, after several tries.
    Image(Result<Vec<Labels>, String>),
    /// The text; or why it cannot be read, after several tries.
    PodLog(Result<Arc<str>, String>),
    /// The value, as text; or why it cannot be read, after several tries.
    SecretValue(Result<Sensitive, String>),
}
