//! What a simulation says at its end.

use std::fmt::Write;

use serde::Serialize;

use super::chart;
use super::jobs::JobsOutcome;
use super::scenario::Scenario;
use super::tally::{Moment, Sample};
use capstan_inspect::Paint;

/// Everything that is said.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What happened.
    pub scenario: Scenario,
    /// How many nodes there are.
    pub nodes: usize,
    /// Virtual time that passed.
    pub virtual_seconds: u64,
    /// Real time that it took.
    pub real_seconds: f64,
    /// What the governing policy says at the end.
    pub verdict: String,
    /// What happened when.
    pub timeline: Vec<Moment>,
    /// How much of the allowed disruption was used; an install has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Hours that nodes did not serve, together.
    pub node_hours_lost: f64,
    /// The same by GPU.
    pub gpu_hours_lost: f64,
    /// What became of the jobs, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobsOutcome>,
    /// What the operator sent.
    pub requests: Requests,
    /// The fleet at the end.
    pub end: Sample,
    /// The fleet over time.
    pub samples: Vec<Sample>,
}

/// How much of what was allowed was used.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Budget {
    /// Nodes that may be out of use at a time.
    pub allowed: usize,
    /// Most that were.
    pub most: usize,
    /// As many as were on average, while there were any.
    pub mean: f64,
}

/// How many requests the operator sent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Requests {
    /// Lists, gets and watches.
    pub reads: u64,
    /// Everything else.
    pub writes: u64,
}

impl Report {
    /// Whether it went as one would wish: all nodes serve, and no more were out of use than may be.
    pub fn is_good(&self) -> bool {
        let kept = self.budget.is_none_or(|budget| budget.most <= budget.allowed);
        kept && self.end.serving == self.nodes
    }

    /// For people.
    pub fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let Sample { serving, cordoned, failed, done, .. } = self.end;
        let mut first = format!("{serving} of {} nodes serve", self.nodes);
        for (count, what) in [(cordoned, "out of use"), (failed, "failed")] {
            if count > 0 {
                let _ = write!(first, ", {count} {what}");
            }
        }
        let first = if self.is_good() { paint.green(&first) } else { paint.red(&first) };
        let _ = writeln!(out, "{first}  ({})\n", self.verdict);
        for moment in &self.timeline {
            let _ = writeln!(out, "  {}  {}", paint.dim(&clock(moment.after)), moment.what);
        }
        let _ = writeln!(out, "  {}  the end\n", paint.dim(&clock(self.virtual_seconds)));
        let mut row = |name: &str, text: String| {
            let _ = writeln!(out, "{}  {text}", paint.bold(&format!("{name:>10}")));
        };
        row("serving", chart::line(&self.samples, self.nodes, |sample| sample.serving));
        if let Some(budget) = self.budget {
            row("out of use", chart::line(&self.samples, budget.allowed, |sample| sample.cordoned));
            let Budget { allowed, most, mean } = budget;
            let share = if allowed == 0 { 0.0 } else { 100.0 * mean / allowed as f64 };
            let exceeded = if most > allowed { paint.red(" EXCEEDED") } else { String::new() };
            row(
                "budget",
                format!("at most {most} of {allowed} nodes at a time{exceeded}; {share:.0} % used while any were"),
            );
        }
        if done > 0 && self.budget.is_some() {
            row("upgraded", format!("{done} of {} nodes", self.nodes));
        }
        row("lost", format!("{:.0} node-hours, {:.0} GPU-hours", self.node_hours_lost, self.gpu_hours_lost));
        if let Some(jobs) = &self.jobs {
            let JobsOutcome { finished, interrupted, hours_lost } = jobs;
            row("jobs", format!("{finished} finished, {interrupted} interrupted after {hours_lost:.0} hours of work"));
        }
        row("requests", format!("{} reads, {} writes of the operator", self.requests.reads, self.requests.writes));
        row("time", format!("{} simulated in {:.1} s", clock(self.virtual_seconds), self.real_seconds));
        out
    }
}

/// A time as `HH:MM:SS`.
fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
