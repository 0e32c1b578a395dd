//! What can go wrong, in classes: each has a metric label and a way to try again.

use std::time::Duration;

use capstan_plan::Ref;
use kube::core::response::Status;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error("cannot {verb} {what}")]
    Request {
        /// What was tried: `get`, `apply` …
        verb: &'static str,
        /// On what.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// A request got no answer in time; it may have had its effect.
    #[error("no answer in time to {verb} {what}")]
    Timeout {
        /// What was tried.
        verb: &'static str,
        /// On what.
        what: String,
    },
    /// Somebody else may be the leader, so nothing may be written.
    #[error("this process does not lead and may not write")]
    NotLeader,
    /// The table of kinds has no row for it.
    #[error("the table of kinds has no {0}")]
    UnknownKind(String),
    /// An object does not fit its type.
    #[error("cannot read {reference}: {reason}")]
    Undecodable {
        /// Which.
        reference: Box<Ref>,
        /// Its uid.
        uid: String,
        /// What does not fit.
        reason: String,
    },
    /// A reconcile panicked: a fault of ours.
    #[error("panicked: {0}")]
    Panic(String),
    /// Certificates could not be made or read.
    #[error("certificate: {0}")]
    Certificate(String),
    /// A file or socket could not be used.
    #[error("cannot use {what}")]
    Io {
        /// File or address.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What kind of error it is: metric label and retry delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody else was faster: look again and retry soon.
    Conflict,
    /// It is not there.
    NotFound,
    /// The server rejects what we send.
    Invalid,
    /// We may not.
    Forbidden,
    /// The server asks us to slow down.
    Throttled,
    /// The server does not answer, or not as it should.
    Unavailable,
    /// We do not lead.
    NotLeader,
    /// The object does not fit its type.
    Undecodable,
    /// A fault of ours.
    Panic,
    /// None of the above.
    Internal,
}

impl Class {
    /// Label of metrics.
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

    /// How long to wait after the `failures`-th failure in a row, with jitter.
    ///
    /// A server that is away is asked about once a second, so that work goes on at once when it is back. What only a
    /// person can repair is tried rarely: a change of the object is a new try anyway.
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

/// Failures in a row. Those of a server that was away say nothing about how long another one lasts: just after its start
/// a server forbids what it allows a moment later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streak {
    last: Option<Class>,
    times: u32,
}

impl Streak {
    /// Counts one more failure, and says how many there were.
    pub(crate) fn another(&mut self, class: Class) -> u32 {
        let away = matches!(self.last, Some(Class::Unavailable | Class::Throttled | Class::NotLeader));
        self.times = if away && self.last != Some(class) { 1 } else { self.times.saturating_add(1) };
        self.last = Some(class);
        self.times
    }
}

impl Error {
    pub(crate) fn request(verb: &'static str, what: impl ToString, source: kube::Error) -> Self {
        Self::Request { verb, what: what.to_string(), source: Box::new(source) }
    }

    /// What kind of error it is.
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

    /// What the server said, if it said something.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Request { source, .. } => status_of(source),
            _ => None,
        }
    }

    /// How long to wait after the `failures`-th failure in a row. What the server asks for counts more than our habit.
    pub fn delay(&self, failures: u32) -> Duration {
        let asked = self.status().and_then(|status| status.details.as_ref()).map_or(0, |d| d.retry_after_seconds);
        self.class().delay(failures).max(Duration::from_secs(asked.into()))
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        let mut text = match self {
            // kube prints its own error twice over; what the server said is enough.
            Self::Request { verb, what, source } if status_of(source).is_some() => {
                return format!("cannot {verb} {what}: {}", status_of(source).map_or("", |status| &status.message));
            }
            _ => self.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.ends_with(&said) {
                text = format!("{text}: {said}");
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

/// The class of an error of the client.
pub(crate) fn class_of(error: &kube::Error) -> Class {
    match status_of(error) {
        None => Class::Unavailable,
        Some(status) if is_another_object(status) => Class::Conflict,
        Some(status) => class_of_code(status.code),
    }
}

/// A patch with the uid of an object that has been replaced is an invalid change to servers; to us it is a conflict.
fn is_another_object(status: &Status) -> bool {
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
        for times in 1..=100 {
            assert_eq!(streak.another(Class::Unavailable), times);
        }
        assert_eq!(streak.another(Class::Forbidden), 1);
        assert_eq!(streak.another(Class::Conflict), 2);
        assert_eq!(streak.another(Class::Forbidden), 3);
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
