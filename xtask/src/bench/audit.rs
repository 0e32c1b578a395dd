//! Requests of the operator, from the API server's audit log.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::cluster::AUDIT_LOG;

/// Requests by verb and resource, as `patch nimservices/status`.
pub(super) type Counts = BTreeMap<String, u64>;

/// Requests in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Completed requests, without watches, leases and discovery.
    pub(super) counts: Counts,
    /// Started watches.
    pub(super) watches: u64,
    /// When the last counted request completed.
    pub(super) last: Option<jiff::Timestamp>,
}

impl Requests {
    /// Sum of counted requests.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Adds both.
    pub(super) fn add(&mut self, more: Self) {
        for (request, count) in more.counts {
            *self.counts.entry(request).or_default() += count;
        }
        self.watches += more.watches;
        self.last = self.last.max(more.last);
    }

    fn add_line(&mut self, line: &Value, user: &str) {
        if line["user"]["username"] != user {
            return;
        }
        if line["verb"] == "watch" {
            self.watches += u64::from(line["stage"] == "ResponseStarted");
        } else if let Some(request) = request(line) {
            *self.counts.entry(request).or_default() += 1;
            let at = line["stageTimestamp"].as_str().and_then(|at| at.parse().ok());
            self.last = self.last.max(at);
        }
    }
}

/// The audit log, read from an offset.
pub(super) struct Audit {
    file: PathBuf,
    user: &'static str,
    place: u64,
}

impl Audit {
    /// The log of the cluster in `home`, from now on, for one user.
    pub(super) fn new(home: &Path, user: &'static str) -> Result<Self> {
        let file = home.join(AUDIT_LOG);
        let place = std::fs::metadata(&file)?.len();
        Ok(Self { file, user, place })
    }

    /// Requests since the last call.
    pub(super) fn since(&mut self) -> Result<Requests> {
        let mut file = std::fs::File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.place))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.place += whole as u64;
        let mut requests = Requests::default();
        for line in text[..whole].lines().filter(|line| line.contains(self.user)) {
            if let Ok(line) = serde_json::from_str(line) {
                requests.add_line(&line, self.user);
            }
        }
        Ok(requests)
    }
}

/// The request of a log line, if it counts.
fn request(line: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (verb, resource) = (text(&line["verb"]), text(&line["objectRef"]["resource"]));
    let counts = line["stage"] == "ResponseComplete" && !["", "leases"].contains(&resource.as_str());
    let sub = line["objectRef"]["subresource"].as_str().map(|sub| format!("/{sub}")).unwrap_or_default();
    counts.then(|| format!("{verb} {resource}{sub}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(user: &str, verb: &str, resource: &str) -> Value {
        json!({
            "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
            "stageTimestamp": "2026-01-01T00:00:01.5Z",
            "objectRef": {"resource": resource, "subresource": "status"},
        })
    }

    #[test]
    fn watches_leases_and_others_do_not_count() {
        let mut requests = Requests::default();
        for line in [line("me", "patch", "pods"), line("you", "patch", "pods"), line("me", "patch", "leases")] {
            requests.add_line(&line, "me");
        }
        requests.add_line(&line("me", "watch", "pods"), "me");
        assert_eq!(requests.counts, Counts::from([("patch pods/status".to_owned(), 1)]));
        assert_eq!(requests.last, "2026-01-01T00:00:01.5Z".parse().ok());
    }

    #[test]
    fn a_watch_is_told_apart_when_it_begins() {
        let mut begins = line("me", "watch", "pods");
        begins["stage"] = "ResponseStarted".into();
        let mut requests = Requests::default();
        requests.add_line(&begins, "me");
        requests.add_line(&line("me", "watch", "pods"), "me");
        assert_eq!(requests, Requests { watches: 1, ..Requests::default() });
    }
}
