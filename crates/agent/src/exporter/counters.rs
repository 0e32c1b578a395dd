//! The exported metrics with type and help: from a CSV file of three columns, or the defaults.

use super::fields::{self, COMPUTED, FIELDS, Field, Kind};
use crate::{Error, Result};

/// The exported metrics.
#[derive(Clone)]
pub struct Counters {
    /// Metrics.
    pub metrics: Vec<Counter>,
    /// Fields added as labels to every metric.
    pub labels: Vec<&'static Field>,
    /// Metrics that the exporter computes itself, with their help.
    pub computed: Vec<(&'static str, String)>,
}

/// One exported metric.
#[derive(Clone)]
pub struct Counter {
    /// The metric.
    pub field: &'static Field,
    /// Metric type.
    pub kind: Kind,
    /// Help text.
    pub help: String,
}

impl Default for Counters {
    fn default() -> Self {
        let on = || FIELDS.iter().filter(|field| field.default);
        let metrics = on().filter(|field| field.kind != Kind::Label);
        Self {
            metrics: metrics.map(|field| Counter { field, kind: field.kind, help: field.help.into() }).collect(),
            labels: on().filter(|field| field.kind == Kind::Label).collect(),
            computed: Vec::new(),
        }
    }
}

impl Counters {
    /// Reads a counters file: name, type, help; `#` begins a comment.
    pub fn parse(text: &str) -> Result<Self> {
        let mut counters = Self { metrics: Vec::new(), labels: Vec::new(), computed: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            counters.row(line).map_err(|why| Error::Config(format!("counters, line {}: {why}", number + 1)))?;
        }
        Ok(counters)
    }

    fn row(&mut self, line: &str) -> Result<(), String> {
        let columns: Vec<&str> = line.splitn(3, ',').map(str::trim).collect();
        let [name, kind, help] = columns[..] else {
            return Err(format!("'{line}' has {} columns; write name, type, help", columns.len()));
        };
        let kind = Kind::parse(kind)
            .ok_or_else(|| format!("type '{kind}' of {name} is unknown; use gauge, counter or label"))?;
        // A help text with commas may be quoted.
        let help = help.trim_matches('"').to_owned();
        if let Some(&(known, _)) = COMPUTED.iter().find(|(known, _)| *known == name) {
            self.computed.push((known, help));
            return Ok(());
        }
        if let Some((_, why)) = fields::ABSENT.iter().find(|(known, _)| *known == name) {
            tracing::warn!(name, why, "metric not supported");
            return Ok(());
        }
        match fields::find(name) {
            Some(field) if kind == Kind::Label => self.labels.push(field),
            Some(field) => self.metrics.push(Counter { field, kind, help }),
            // A DCGM field that NVML lacks: existing counter files list them, so warn and skip.
            None if name.starts_with("DCGM_FI_") => tracing::warn!(name, "metric not available from NVML; skipped"),
            None => return Err(format!("metric '{name}' is unknown")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_says_which_metrics_under_which_type() {
        let text = "# comment\n\nDCGM_FI_DEV_GPU_TEMP, gauge, Temp (in C).\nDCGM_FI_DEV_SERIAL, label, x\nDCGM_EXP_XID_ERRORS_COUNT, gauge, \"a, b\"\n";
        let counters = Counters::parse(text).expect("readable");
        let names: Vec<_> =
            counters.metrics.iter().map(|counter| (counter.field.name, counter.help.as_str())).collect();
        assert_eq!(names, [("DCGM_FI_DEV_GPU_TEMP", "Temp (in C).")]);
        assert_eq!(counters.labels.iter().map(|field| field.name).collect::<Vec<_>>(), ["DCGM_FI_DEV_SERIAL"]);
        assert_eq!(counters.computed, [("DCGM_EXP_XID_ERRORS_COUNT", "a, b".to_owned())]);
    }

    #[test]
    fn a_bad_line_is_named_with_its_number() {
        let cases = [
            ("DCGM_FI_DEV_GPU_TEMP, gauge\n", "line 1: 'DCGM_FI_DEV_GPU_TEMP, gauge' has 2 columns"),
            ("#\nDCGM_FI_DEV_GPU_TEMP, guage, x\n", "line 2: type 'guage' of DCGM_FI_DEV_GPU_TEMP is unknown"),
            ("MY_METRIC, gauge, x\n", "line 1: metric 'MY_METRIC' is unknown"),
        ];
        for (text, wanted) in cases {
            let error = Counters::parse(text).err().expect("refused").to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn every_default_metric_of_dcgm_is_there() {
        let default = Counters::default();
        assert_eq!((default.metrics.len(), default.labels.len()), (25, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,200}") {
            let _ = Counters::parse(&text);
        }
    }
}
