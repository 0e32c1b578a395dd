//! What a scenario measured: a table for people, JSON for programs.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

/// Rows in the order in which they are added.
#[derive(Default)]
pub(super) struct Report {
    rows: Vec<(String, String)>,
    json: Map<String, Value>,
    faults: Vec<String>,
}

impl Report {
    /// Adds a row.
    pub(super) fn row(&mut self, what: &str, value: impl Into<String>) {
        self.rows.push((what.to_owned(), value.into()));
    }

    /// Adds a value for programs.
    pub(super) fn json(&mut self, name: &str, value: impl Into<Value>) {
        self.json.insert(name.to_owned(), value.into());
    }

    /// Notes what is beyond its budget.
    pub(super) fn expect(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }

    /// Prints the table, writes the JSON, and fails if anything is beyond its budget.
    pub(super) fn finish(mut self, root: &Path, name: &str) -> Result<()> {
        let width = self.rows.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
        for (what, value) in &self.rows {
            println!("{what:width$}  {value}");
        }
        self.json.insert("faults".into(), self.faults.clone().into());
        let folder = root.join("target/bench");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, format!("{:#}\n", Value::Object(self.json)))?;
        println!("{}", file.display());
        anyhow::ensure!(self.faults.is_empty(), "beyond the budget: {}", self.faults.join("; "));
        Ok(())
    }
}
