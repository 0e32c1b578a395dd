//! Snapshot files, redacted.

use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Serializer;
use serde_json::Value;

use super::Snapshot;
use crate::{Error, Result};

/// Format version of snapshot files.
const FORMAT: &str = "capstan.dev/snapshot/v1";
/// Serializes the current format version, whatever was read.
pub(super) fn own_format<S: Serializer>(_: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(FORMAT)
}

/// Replacement of a secret.
const REDACTED: &str = "REDACTED";
/// Parts of names of environment variables with secret values.
const SECRET_NAMES: &[&str] = &["PASSWORD", "PASSWD", "TOKEN", "SECRET", "API_KEY", "APIKEY", "CREDENTIAL"];

/// Magic number of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// Name of the snapshot in an archive.
pub const SNAPSHOT: &str = "snapshot.json";

/// Extracts the snapshot of an archive.
fn unpack(archive: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.file_name().is_some_and(|name| name == SNAPSHOT) {
            let mut text = Vec::new();
            entry.read_to_end(&mut text)?;
            return Ok(text);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no {SNAPSHOT} in it")))
}

/// Prefixes of known API tokens, with the minimum length of the rest.
const TOKENS: &[(&str, usize)] =
    &[("nvapi-", 1), ("hf_", 30), ("Bearer ", 8), ("bearer ", 8), ("eyJ", 20), ("ghp_", 30), ("glpat-", 16)];

impl Snapshot {
    /// Loads a snapshot from a file of [`Snapshot::save`] or from an archive.
    pub fn load(file: &Path) -> Result<Self> {
        let mut text = std::fs::read(file).map_err(|source| Error::Read { file: file.to_owned(), source })?;
        if text.starts_with(GZIP) {
            text = unpack(&text).map_err(|source| Error::NoArchive { file: file.to_owned(), source })?;
        }
        let no_snapshot =
            |why: &dyn std::fmt::Display| Error::NoSnapshot { file: file.to_owned(), why: why.to_string() };
        let snapshot: Self = serde_json::from_slice(&text).map_err(|error| no_snapshot(&error))?;
        match snapshot.format == FORMAT {
            true => Ok(snapshot),
            false => Err(no_snapshot(&format!("its format is {:?}, not {FORMAT:?}", snapshot.format))),
        }
    }

    /// Saves the snapshot. Redact it first: see [`Snapshot::redacted`].
    pub fn save(&self, file: &Path) -> Result<()> {
        std::fs::write(file, self.to_json()?).map_err(|source| Error::Write { file: file.to_owned(), source })
    }

    /// The content of a snapshot file.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::Encode)
    }

    /// Removes the values of Secrets, of environment variables that look like secrets, and of such lines in logs.
    pub fn redacted(mut self) -> Self {
        for secret in self.objects.get_mut("Secret").into_iter().flatten() {
            for field in ["data", "stringData"] {
                let data = secret.get_mut(field).and_then(Value::as_object_mut).into_iter().flatten();
                data.for_each(|(_, value)| *value = REDACTED.into());
            }
        }
        for map in self.objects.get_mut("ConfigMap").into_iter().flatten() {
            let data = map.get_mut("data").and_then(Value::as_object_mut).into_iter().flatten();
            data.filter(|(key, _)| is_secret(key)).for_each(|(_, value)| *value = REDACTED.into());
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
    let name = name.to_uppercase().replace('-', "_");
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Redacts values of variables and flags in pods and pod templates, and tokens anywhere.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let secret = fields.get("name").and_then(Value::as_str).is_some_and(is_secret);
            if secret && fields.get("value").is_some_and(Value::is_string) {
                fields.insert("value".into(), REDACTED.into());
            }
            fields.values_mut().for_each(redact);
            // A termination message may be the end of the log.
            if fields.contains_key("exitCode")
                && let Some(Value::String(message)) = fields.get_mut("message")
            {
                *message = message.lines().map(redact_line).collect::<Vec<_>>().join("\n");
            }
        }
        Value::Array(items) => {
            let mut follows = false;
            for item in items {
                match item {
                    // `--token abc` as two arguments.
                    Value::String(text) if follows && !text.starts_with('-') => REDACTED.clone_into(text),
                    Value::String(text) if text.starts_with('-') => *text = redact_line(text),
                    _ => redact(item),
                }
                follows =
                    item.as_str().is_some_and(|text| text.starts_with('-') && !text.contains('=') && is_secret(text));
            }
        }
        Value::String(text) => {
            if let Some(redacted) = without_tokens(text) {
                *text = redacted;
            }
        }
        _ => {}
    }
}

/// Redacts the value of `TOKEN=abc` and `"token": "abc"`.
fn redact_line(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(['=', ':']) {
        let (name, after) = rest.split_at(at + 1);
        out += name;
        let word = name[..at].rsplit(|c: char| c.is_whitespace() || ",;{(?&".contains(c)).next().unwrap_or_default();
        rest = after;
        if is_secret(word) {
            let value = after.trim_start_matches([' ', '"', '\'']);
            let end = value.find(|c: char| c.is_whitespace() || "\"',;})&".contains(c)).unwrap_or(value.len());
            if end > 0 {
                out += &after[..after.len() - value.len()];
                out += REDACTED;
                rest = &value[end..];
            }
        }
    }
    out += rest;
    without_tokens(&out).unwrap_or(out)
}

/// The text without tokens and URL passwords; `None` if it has none.
fn without_tokens(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, end)) = token(rest) {
        out += &rest[..at];
        out += REDACTED;
        rest = &rest[end..];
    }
    (!out.is_empty()).then(|| out + rest)
}

/// Start and end of the first token.
fn token(text: &str) -> Option<(usize, usize)> {
    let known = TOKENS.iter().flat_map(|(begin, least)| {
        text.match_indices(begin).filter_map(move |(at, _)| {
            let starts = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            let body = &text[at + begin.len()..];
            let length =
                body.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.~+/=".contains(c))).unwrap_or(body.len());
            (starts && length >= *least).then_some((at, at + begin.len() + length))
        })
    });
    // `https://user:password@host`
    let passwords = text.match_indices("://").filter_map(|(at, mark)| {
        let start = at + mark.len();
        let place = &text[start..];
        let end = place.find(|c: char| c.is_whitespace() || "/\"'".contains(c)).unwrap_or(place.len());
        let user = place[..end].rfind('@')?;
        place[..user].contains(':').then_some((start, start + user))
    });
    known.chain(passwords).min()
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
        let ended = json!({"exitCode": 1, "message": "failed\nngc_api_key=nvapi-1"});
        snapshot.add(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "status": {"last": ended}}));
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
        assert_eq!(loaded.of("", "Pod")[1]["status"]["last"]["message"], "failed\nngc_api_key=REDACTED");
        assert_eq!(loaded.log("ns", "p", "c"), Some("started\nngc_api_key=REDACTED\nready"));
    }

    #[test]
    fn secrets_are_found_in_the_middle_of_lines_and_the_rest_stays() {
        let cases = [
            ("12:01:02 login with NGC_API_KEY=abc failed: 401", "12:01:02 login with NGC_API_KEY=REDACTED failed: 401"),
            (r#"{"level":"info","password":"abc","code":401}"#, r#"{"level":"info","password":"REDACTED","code":401}"#),
            ("Authorization: Bearer abcdefghij", "Authorization: REDACTED"),
            ("uses https://me:pw@proxy:3128/ now", "uses https://REDACTED@proxy:3128/ now"),
            ("pulled docker-pullable://r.io/a@sha256:12", "pulled docker-pullable://r.io/a@sha256:12"),
            ("secret ngc not found", "secret ngc not found"),
            ("hf_hub_download is slow", "hf_hub_download is slow"),
        ];
        for (line, expected) in cases {
            assert_eq!(redact_line(line), expected);
        }
    }

    #[test]
    fn flags_with_secrets_lose_their_values() {
        let mut args = json!(["--api-key=abc", "--token", "def", "--port", "80", "sh"]);
        redact(&mut args);
        assert_eq!(args, json!(["--api-key=REDACTED", "--token", "REDACTED", "--port", "80", "sh"]));
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
