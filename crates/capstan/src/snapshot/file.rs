//! Snapshots in files, without secrets.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::Snapshot;

/// Of files that this version writes and reads.
const FORMAT: &str = "capstan.dev/snapshot/v1";
/// What stands where a secret was.
const REDACTED: &str = "REDACTED";
/// Parts of names of variables whose values nobody else should read.
const SECRET_NAMES: &[&str] = &["PASSWORD", "PASSWD", "TOKEN", "SECRET", "API_KEY", "APIKEY", "CREDENTIAL"];

impl Snapshot {
    /// A snapshot from a file that [`Snapshot::save`] wrote.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let text = std::fs::read(file).map_err(|error| anyhow!("cannot read {}: {error}", file.display()))?;
        let no_snapshot = |why: &dyn std::fmt::Display| {
            anyhow!("{} is no snapshot of a cluster: {why}; make one with capstan plan --from-cluster", file.display())
        };
        let snapshot: Self = serde_json::from_slice(&text).map_err(|error| no_snapshot(&error))?;
        match snapshot.format == FORMAT {
            true => Ok(snapshot),
            false => Err(no_snapshot(&format!("its format is {:?}, not {FORMAT:?}", snapshot.format))),
        }
    }

    /// Writes it for another time. Secrets must be gone by then: see [`Snapshot::redacted`].
    pub(crate) fn save(&self, file: &Path) -> Result<()> {
        let snapshot = Self { format: FORMAT.into(), ..self.clone() };
        let text = serde_json::to_vec(&snapshot).context("cannot write a snapshot")?;
        std::fs::write(file, text).map_err(|error| anyhow!("cannot write {}: {error}", file.display()))
    }

    /// The same without values of Secrets, of variables that look like secrets, and of such lines in logs.
    pub(crate) fn redacted(mut self) -> Self {
        for secret in self.objects.get_mut("Secret").into_iter().flatten() {
            for field in ["data", "stringData"] {
                for value in secret[field].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
                    *value = REDACTED.into();
                }
            }
        }
        self.objects.values_mut().flatten().for_each(redact);
        for log in self.logs.values_mut() {
            *log = log.lines().map(redact_line).collect::<Vec<_>>().join("\n");
        }
        self.redacted = true;
        self
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Values of variables, wherever a pod or a template of one has them.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let secret = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
            if secret && fields.get("value").is_some_and(Value::is_string) {
                fields.insert("value".into(), REDACTED.into());
            }
            fields.values_mut().for_each(redact);
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

/// `TOKEN=abc` and `token: abc` say no more than that there is one.
fn redact_line(line: &str) -> String {
    match line.find(['=', ':']) {
        Some(at) if is_secret(&line[..at]) => format!("{} {REDACTED}", &line[..=at]),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot
            .add(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ngc"}, "data": {"KEY": "bm8="}}));
        let env = json!([{"name": "NGC_API_KEY", "value": "nvapi-1"}, {"name": "MODE", "value": "fast"}]);
        snapshot.add(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"env": env}]}}));
        snapshot.logs.insert("ns/p/c".into(), "started\nngc_api_key=nvapi-1\nready".into());
        snapshot
    }

    #[test]
    fn no_secret_gets_into_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cluster.json");
        cluster().redacted().save(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("nvapi-1") && !text.contains("bm8="), "{text}");
        let loaded = Snapshot::load(&file).unwrap();
        assert_eq!(loaded.of("", "Pod")[0]["spec"]["containers"][0]["env"][1]["value"], "fast");
        assert_eq!(loaded.log("ns", "p", "c"), Some("started\nngc_api_key= REDACTED\nready"));
    }

    #[test]
    fn another_file_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        std::fs::write(&file, "[]").unwrap();
        let error = Snapshot::load(&file).unwrap_err().to_string();
        assert!(error.contains("a.json is no snapshot of a cluster"), "{error}");
    }
}
