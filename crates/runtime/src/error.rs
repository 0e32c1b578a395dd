//! Errors and their classes: each class has a metric label and a retry delay.

use std::time::Duration;

use capstan_plan::Ref;
use kube::core::response::Status;

/// An error of the runtime.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error("cannot {verb} {what}")]
    Request {
        /// The verb: `get`, `apply` …
        verb: &'static str,
        /// Its target.
        what: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// A request timed out; it may have taken effect.
    #[error("no answer in time to {verb} {what}")]
    Timeout {
        /// The verb.
        verb: &'static str,
        /// Its target.
        what: String,
    },
    /// This process is not the leader, so nothing may be written.
    #[error("this process does not lead and may not write")]
    NotLeader,
    /// The table of kinds has no row for it.
    #[error("the table of kinds has no {0}")]
    UnknownKind(String),
    /// An object cannot be decoded.
    #[error("cannot read {reference}: {reason}")]
    Undecodable {
        /// The object.
        reference: Box<Ref>,
        /// Its uid.
        uid: String,
        /// The decoding error.
        reason: String,
    },
    /// A reconcile panicked: a bug.
    #[error("panicked: {0}")]
    Panic(String),
    /// A certificate could not be created or parsed.
    #[error("certificate: {0}")]
    Certificate(String),
    /// A file or socket could not be used.
    #[error("cannot use {what}")]
    Io {
        /// File or address.
        what: String,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
}

/// The class of an error: metric label and retry delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A concurrent write: retry soon.
    Conflict,
    /// Not found.
    NotFound,
    /// The server rejects the request as invalid.
    Invalid,
    /// RBAC forbids the request.
    Forbidden,
    /// The server throttles us.
    Throttled,
    /// The server is unreachable or fails.
    Unavailable,
    /// This process is not the leader.
    NotLeader,
    /// The object cannot be decoded.
    Undecodable,
    /// A bug.
    Panic,
    /// Any other error.
    Internal,
}

impl Class {
    /// Metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::NotLeader => "not_leader",
            Self::Undecodable => "undecodable",
            Self::Panic => "panic",
            Self::Internal => "internal",
        }
    }

    /// Backoff with jitter after the `failures`-th consecutive failure.
    ///
    /// An unreachable server is retried about once a second, so that work resumes soon after it is back. Errors that
    /// only a user can fix are retried rarely: a change of the object triggers a reconcile anyway.
    pub fn delay(self, failures: u32) -> Duration {
        let (base, cap) = match self {
            Self::Conflict | Self::NotFound => (20, 5_000),
            Self::Unavailable | Self::NotLeader => (100, 1_500),
            Self::Throttled => (1_000, 30_000),
            Self::Invalid | Self::Forbidden | Self::Panic | Self::Internal => (500, 300_000),
            Self::Undecodable => (60_000, 600_000),
        };
        let full = cap.min(base << failures.saturating_sub(1).min(20));
        Duration::from_millis(full / 2 + fastrand::u64(0..=full / 2))
    }
}

/// Consecutive failures. Those of an unavailable server do not count for the backoff of other classes: a server that
/// just started may forbid what it allows soon after.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streak {
    last: Option<Class>,
    count: u32,
}

impl Streak {
    /// Counts a failure. Returns the number of consecutive failures.
    pub(crate) fn record(&mut self, class: Class) -> u32 {
        let unavailable = matches!(self.last, Some(Class::Unavailable | Class::Throttled | Class::NotLeader));
        self.count = if unavailable && self.last != Some(class) { 1 } else { self.count.saturating_add(1) };
        self.last = Some(class);
        self.count
    }
}

impl Error {
    pub(crate) fn request(verb: &'static str, what: impl ToString, source: kube::Error) -> Self {
        Self::Request { verb, what: what.to_string(), source: Box::new(source) }
    }

    /// Its class.
    pub fn class(&self) -> Class {
        match self {
            Self::Request { source, .. } => class_of(source),
            Self::Timeout { .. } => Class::Unavailable,
            Self::NotLeader => Class::NotLeader,
            Self::UnknownKind(_) | Self::Certificate(_) | Self::Io { .. } => Class::Internal,
            Self::Undecodable { .. } => Class::Undecodable,
            Self::Panic(_) => Class::Panic,
        }
    }

    /// The `Status` in the server's response, if there is one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => status_of(source),
            _ => None,
        }
    }

    /// Backoff after the `failures`-th consecutive failure; `retryAfterSeconds` of the server takes precedence if
    /// longer.
    pub fn delay(&self, failures: u32) -> Duration {
        let retry_after = self.status().and_then(|status| status.details.as_ref()).map_or(0, |d| d.retry_after_seconds);
        self.class().delay(failures).max(Duration::from_secs(retry_after.into()))
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        let mut text = match self {
            // kube prints its error twice; the server's message is enough.
            Self::Request { verb, what, source } if status_of(source).is_some() => {
                return format!("cannot {verb} {what}: {}", status_of(source).map_or("", |status| &status.message));
            }
            _ => self.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let cause_text = error.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            cause = error.source();
        }
        text
    }
}

pub(crate) fn status_of(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The class of a client error.
pub(crate) fn class_of(error: &kube::Error) -> Class {
    match status_of(error) {
        None => Class::Unavailable,
        Some(status) if is_uid_mismatch(status) => Class::Conflict,
        Some(status) => class_of_code(status.code),
    }
}

/// A patch with the uid of a replaced object is a 422 to servers; to us it is a conflict.
fn is_uid_mismatch(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

pub(crate) fn class_of_code(code: u16) -> Class {
    match code {
        404 => Class::NotFound,
        409 | 410 => Class::Conflict,
        401 | 403 => Class::Forbidden,
        429 => Class::Throttled,
        400..=499 => Class::Invalid,
        _ => Class::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_within_bounds() {
        for failures in 1..200 {
            let delay = Class::Unavailable.delay(failures);
            assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_millis(1_500), "{delay:?}");
        }
        assert!(Class::Invalid.delay(9) > Class::Invalid.delay(1));
    }

    #[test]
    fn failures_of_a_server_that_was_away_do_not_count_for_others() {
        let mut streak = Streak::default();
        for count in 1..=100 {
            assert_eq!(streak.record(Class::Unavailable), count);
        }
        assert_eq!(streak.record(Class::Forbidden), 1);
        assert_eq!(streak.record(Class::Conflict), 2);
        assert_eq!(streak.record(Class::Forbidden), 3);
    }

    #[test]
    fn the_server_may_ask_for_more_time() {
        let mut status = Status::failure("slow down", "TooManyRequests").with_code(429);
        status.details = serde_json::from_value(serde_json::json!({"retryAfterSeconds": 40})).unwrap();
        let error = Error::request("apply", "Service a/b", kube::Error::Api(status.boxed()));
        assert_eq!(error.class(), Class::Throttled);
        assert_eq!(error.delay(1), Duration::from_secs(40));
        assert_eq!(error.chain(), "cannot apply Service a/b: slow down");
    }
}
