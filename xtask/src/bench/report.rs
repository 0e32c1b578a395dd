//! Results of a scenario: a text table, JSON and a chart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::audit::{Counts, Requests};
use super::chart;

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) value: f64,
    /// Whether the chart shows it.
    pub(super) main: bool,
}

/// Measurements of one operator.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) figures: Vec<Figure>,
    requests: BTreeMap<String, Counts>,
}

impl Column {
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a measurement to the chart.
    pub(super) fn main(&mut self, name: &str, unit: &str, value: f64) {
        self.figures.push(Figure { name: name.into(), unit: unit.into(), value, main: true });
    }

    /// Adds a measurement to the table only.
    pub(super) fn detail(&mut self, name: &str, unit: &str, value: f64) {
        self.figures.push(Figure { name: name.into(), unit: unit.into(), value, main: false });
    }

    /// Adds requests by verb and resource.
    pub(super) fn requests(&mut self, when: &str, requests: &Requests) {
        self.requests.insert(when.into(), requests.counts.clone());
    }

    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    fn json(&self) -> Value {
        let figures = self.figures.iter().map(
            |figure| json!({"name": figure.name, "unit": figure.unit, "value": figure.value, "main": figure.main}),
        );
        json!({"name": self.name, "figures": figures.collect::<Vec<_>>(), "requests": self.requests})
    }

    fn read(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let figures = value["figures"].as_array().into_iter().flatten().map(|figure| Figure {
            name: text(&figure["name"]),
            unit: text(&figure["unit"]),
            value: figure["value"].as_f64().unwrap_or_default(),
            main: figure["main"].as_bool().unwrap_or_default(),
        });
        let requests = serde_json::from_value(value["requests"].clone()).unwrap_or_default();
        Self { name: text(&value["name"]), figures: figures.collect(), requests }
    }
}

/// Results of a run.
pub(super) struct Report {
    /// File name, and title of the chart.
    name: String,
    title: String,
    pub(super) columns: Vec<Column>,
    /// Exceeded budgets.
    faults: Vec<String>,
}

impl Report {
    pub(super) fn new(name: &str, title: &str, columns: Vec<Column>) -> Self {
        Self { name: name.into(), title: title.into(), columns, faults: Vec::new() }
    }

    /// Records an exceeded budget.
    pub(super) fn expect(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(fault());
        }
    }

    /// Limits a measurement of the first operator.
    pub(super) fn limit(&mut self, name: &str, limit: f64) {
        match self.columns.first().and_then(|column| column.value(name)) {
            Some(value) => {
                self.expect(value <= limit, || {
                    format!("{name}: {}, the limit is {}", format_number(value), format_number(limit))
                });
            }
            None => self.expect(false, || format!("{name}: not measured, the limit is {}", format_number(limit))),
        }
    }

    /// Limits the requests of the first operator while idle to none.
    pub(super) fn limit_idle(&mut self, seconds: u64) {
        self.limit(&format!("requests in {seconds} s without changes"), 0.0);
    }

    /// Adds the operators of earlier runs.
    fn against(&mut self, files: &[PathBuf]) -> Result<()> {
        for file in files {
            let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let earlier: Value = serde_json::from_str(&text).with_context(|| format!("no JSON: {}", file.display()))?;
            self.columns.extend(earlier["operators"].as_array().into_iter().flatten().map(Column::read));
        }
        Ok(())
    }

    /// Prints the table with earlier runs, writes JSON and chart, and fails if a budget is exceeded.
    pub(super) fn finish(mut self, root: &Path, earlier: &[PathBuf]) -> Result<()> {
        self.against(earlier)?;
        println!("{}\n{}", self.title, self.table());
        let operators: Vec<Value> = self.columns.iter().map(Column::json).collect();
        let json = json!({"title": self.title, "operators": operators, "faults": self.faults});
        let folder = root.join("target/bench");
        std::fs::create_dir_all(&folder)?;
        for (kind, text) in [("json", format!("{json:#}\n")), ("svg", chart::draw(&self.title, &self.columns))] {
            let file = folder.join(format!("{}.{kind}", self.name));
            std::fs::write(&file, text)?;
            println!("{}", file.display());
        }
        anyhow::ensure!(self.faults.is_empty(), "beyond the budget: {}", self.faults.join("; "));
        Ok(())
    }

    fn table(&self) -> String {
        let mut lines = vec![self.head()];
        let Some(first) = self.columns.first() else { return String::new() };
        for figure in &first.figures {
            let values: Vec<_> = self.columns.iter().map(|column| column.value(&figure.name)).collect();
            let unit = if figure.unit.is_empty() { String::new() } else { format!(" [{}]", figure.unit) };
            lines.push(cells(format!("{}{unit}", figure.name), &values));
        }
        for when in first.requests.keys() {
            lines.push(vec![format!("requests, {when}")]);
            let of = |column: &Column| column.requests.get(when).cloned().unwrap_or_default();
            let mut kinds: Vec<String> = self.columns.iter().flat_map(|column| of(column).into_keys()).collect();
            kinds.sort();
            kinds.dedup();
            for kind in kinds {
                let value = |column: &Column| column.requests.get(when).map(|counts| counts.get(&kind).copied());
                let values: Vec<_> =
                    self.columns.iter().map(|one| value(one).map(|count| count.unwrap_or(0) as f64)).collect();
                lines.push(cells(format!("  {kind}"), &values));
            }
        }
        aligned(&lines)
    }

    fn head(&self) -> Vec<String> {
        let others = self.columns.iter().skip(1).flat_map(|column| [column.name.clone(), "ratio".into()]);
        let first = self.columns.first().map(|column| column.name.clone());
        [String::new()].into_iter().chain(first).chain(others).collect()
    }
}

/// A row: the first value, then each other one and the ratio of the first to it.
fn cells(name: String, values: &[Option<f64>]) -> Vec<String> {
    let mut cells = vec![name];
    let first = values.first().copied().flatten();
    for (index, value) in values.iter().enumerate() {
        cells.push(value.map_or("-".into(), format_number));
        if index > 0 {
            cells.push(ratio(first, *value).map_or("-".into(), |ratio| format!("{ratio:.2}")));
        }
    }
    cells
}

/// Ratio of our value to another.
fn ratio(ours: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (ours, other) = (ours?, other?);
    (other != 0.0).then(|| ours / other)
}

/// Formats a number with its significant digits.
pub(super) fn format_number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            row += &if index == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") };
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let (mut ours, mut other) = (Column::named("ours"), Column::named("other"));
        ours.main("ready", "s", 2.5);
        ours.detail("requests for each", "", 8.0);
        other.main("ready", "s", 10.0);
        let counts = Counts::from([("patch nodes".to_owned(), 3)]);
        ours.requests("until silent", &Requests { counts, ..Requests::default() });
        Report::new("x", "X", vec![ours, other])
    }

    #[test]
    fn another_operator_stands_beside_with_a_ratio() {
        let rows = [
            "                    ours  other  ratio",
            "ready [s]           2.50     10   0.25",
            "requests for each      8      -      -",
            "requests, until silent",
            "  patch nodes          3      -      -",
        ];
        let table = report().table();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(table.lines().map(words).collect::<Vec<_>>(), rows.map(words));
    }

    #[test]
    fn a_column_is_read_as_it_was_written() {
        let column = &report().columns[0];
        assert_eq!(Column::read(&column.json()).figures, column.figures);
    }

    #[test]
    fn a_limit_names_both_numbers_and_what_was_not_measured() {
        let mut report = report();
        report.limit("ready", 2.0);
        report.limit("requests for each", 8.0);
        report.limit("memory", 40.0);
        assert_eq!(report.faults, ["ready: 2.50, the limit is 2", "memory: not measured, the limit is 40"]);
    }
}
