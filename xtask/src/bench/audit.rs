//! The operator's requests, from the API server's audit log.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::cluster::AUDIT_LOG;

/// Requests by verb and resource, as `patch nimservices/status`.
pub(super) type Counts = BTreeMap<String, u64>;

/// The log, read from a place on.
pub(super) struct Audit {
    file: PathBuf,
    user: &'static str,
    place: u64,
}

impl Audit {
    /// The log of the cluster in `home`, from here and now on, of one user.
    pub(super) fn new(home: &Path, user: &'static str) -> Result<Self> {
        let file = home.join(AUDIT_LOG);
        let place = std::fs::metadata(&file)?.len();
        Ok(Self { file, user, place })
    }

    /// What was answered since the last call. Watches and leases do not count, nor does asking what is served.
    pub(super) fn since(&mut self) -> Result<Counts> {
        let mut file = std::fs::File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.place))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half a line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.place += whole as u64;
        let mut counts = Counts::new();
        for line in text[..whole].lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            if let Some(request) = request(&line, self.user) {
                *counts.entry(request).or_default() += 1;
            }
        }
        Ok(counts)
    }
}

/// What a line says that `user` asked for, if it counts.
fn request(line: &Value, user: &str) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (verb, resource) = (text(&line["verb"]), text(&line["objectRef"]["resource"]));
    let counts = line["stage"] == "ResponseComplete"
        && line["user"]["username"] == user
        && verb != "watch"
        && !["", "leases"].contains(&resource.as_str());
    let sub = line["objectRef"]["subresource"].as_str().map(|sub| format!("/{sub}")).unwrap_or_default();
    counts.then(|| format!("{verb} {resource}{sub}"))
}

/// All of them.
pub(super) fn total(counts: &Counts) -> u64 {
    counts.values().sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn watches_leases_and_others_do_not_count() {
        let line = |user: &str, verb: &str, resource: &str| {
            json!({
                "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
                "objectRef": {"resource": resource, "subresource": "status"},
            })
        };
        assert_eq!(request(&line("me", "patch", "pods"), "me").as_deref(), Some("patch pods/status"));
        for other in [line("me", "watch", "pods"), line("you", "patch", "pods"), line("me", "patch", "leases")] {
            assert_eq!(request(&other, "me"), None);
        }
    }
}
