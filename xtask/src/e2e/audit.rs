//! Writes of the operator, from the API server's audit log.

use std::io::{Read, Seek, SeekFrom};

use anyhow::Result;
use serde_json::Value;

use super::{RELEASE, Suite};
use crate::cluster::AUDIT_LOG;

/// An offset in the log.
pub(super) struct Mark(u64);

impl Suite {
    /// The current offset.
    pub(super) fn mark(&self) -> Result<Mark> {
        Ok(Mark(std::fs::metadata(self.home.join(AUDIT_LOG))?.len()))
    }

    /// Writes of the operator since then, without leases and events, as `VERB RESOURCE NAME`.
    pub(super) fn writes_since(&self, mark: &Mark) -> Result<Vec<String>> {
        let mut file = std::fs::File::open(self.home.join(AUDIT_LOG))?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.filter(is_write).map(|line| describe(&line)).collect())
    }
}

fn is_write(line: &Value) -> bool {
    let user = format!("system:serviceaccount:{RELEASE}:{RELEASE}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    line["stage"] == "ResponseComplete"
        && line["user"]["username"] == user.as_str()
        && ["create", "update", "patch", "delete", "deletecollection"].contains(&text(&line["verb"]).as_str())
        && !["leases", "events", "tokenreviews", "subjectaccessreviews"]
            .contains(&text(&line["objectRef"]["resource"]).as_str())
}

fn describe(line: &Value) -> String {
    let text = |name: &str| line["objectRef"][name].as_str().unwrap_or_default().to_owned();
    let sub = text("subresource");
    let resource = if sub.is_empty() { text("resource") } else { format!("{}/{sub}", text("resource")) };
    let what = format!("{} {resource} {}", line["verb"].as_str().unwrap_or_default(), text("name"));
    match line["responseStatus"]["code"].as_u64() {
        Some(code) if code >= 300 => format!("{what} ({code})"),
        _ => what,
    }
}

/// Whether a [described](describe) write was applied: rejected ones, as by a starting server, are retried.
pub(super) fn is_applied(write: &str) -> bool {
    !write.ends_with(')')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_operator_changed_counts() {
        let line = |user: &str, verb: &str, resource: &str| {
            json!({
                "stage": "ResponseComplete", "verb": verb, "user": {"username": user},
                "objectRef": {"resource": resource, "name": "x", "subresource": "status"},
            })
        };
        let operator = "system:serviceaccount:capstan:capstan";
        assert!(is_write(&line(operator, "patch", "deployments")));
        assert!(!is_write(&line(operator, "watch", "deployments")));
        assert!(!is_write(&line(operator, "patch", "leases")));
        assert!(!is_write(&line("admin", "patch", "deployments")));
        assert_eq!(describe(&line(operator, "patch", "deployments")), "patch deployments/status x");
    }

    #[test]
    fn what_was_refused_is_named_with_the_answer_and_not_applied() {
        let line = |code: u16| {
            let about = json!({"resource": "deployments", "name": "x"});
            json!({"verb": "patch", "objectRef": about, "responseStatus": {"code": code}})
        };
        assert_eq!(describe(&line(403)), "patch deployments x (403)");
        assert!(!is_applied(&describe(&line(403))));
        assert!(is_applied(&describe(&line(200))));
    }
}
