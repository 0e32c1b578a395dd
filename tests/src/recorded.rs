//! Recorded responses of a real server in `cases/recorded`, for machines without one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exchange::{Answer, Failure};

/// Responses to one case file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Version of the server.
    pub server: String,
    /// Responses by case, one per step.
    pub cases: BTreeMap<String, Vec<Answer>>,
}

impl Recorded {
    /// Reads a file; empty if it does not exist.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        match std::fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a file with one response per line, for readable diffs.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let mut text = format!("{{\"server\": {:?}, \"cases\": {{", self.server);
        for (number, (name, answers)) in self.cases.iter().enumerate() {
            let lines: Result<Vec<String>, _> = answers.iter().map(serde_json::to_string).collect();
            let comma = if number == 0 { "" } else { "," };
            write!(text, "{comma}\n{}: [\n{}\n]", serde_json::to_string(name)?, lines?.join(",\n"))?;
        }
        text += "\n}}\n";
        Ok(std::fs::write(path, text)?)
    }
}
