//! Report of a simulation.

use std::fmt::Write;

use serde::Serialize;

use super::chart;
use super::jobs::JobsOutcome;
use super::scenario::Scenario;
use super::tally::{Sample, TimelineEntry};
use capstan_inspect::Paint;

/// The report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// Number of nodes.
    pub nodes: usize,
    /// Simulated time.
    pub virtual_seconds: u64,
    /// Wall-clock time.
    pub real_seconds: f64,
    /// Final status of the governing policy.
    pub verdict: String,
    /// Timeline of the scenario.
    pub timeline: Vec<TimelineEntry>,
    /// Use of the disruption budget; an install has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Total node hours without service.
    pub node_hours_lost: f64,
    /// The same in GPU hours.
    pub gpu_hours_lost: f64,
    /// Results of the jobs, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobsOutcome>,
    /// Requests of the operator.
    pub requests: Requests,
    /// Final state of the fleet.
    pub end: Sample,
    /// State of the fleet over time.
    pub samples: Vec<Sample>,
}

/// Use of the disruption budget.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Budget {
    /// `maxUnavailable` as a number of nodes.
    pub allowed: usize,
    /// Maximum of unavailable nodes.
    pub most: usize,
    /// Mean of unavailable nodes, while there were any.
    pub mean: f64,
}

/// Requests of the operator.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Requests {
    /// Lists, gets and watches.
    pub reads: u64,
    /// All others.
    pub writes: u64,
}

impl Report {
    /// Whether the run succeeded: all nodes serve, and the budget was not exceeded.
    pub fn is_good(&self) -> bool {
        let within_budget = self.budget.is_none_or(|budget| budget.most <= budget.allowed);
        within_budget && self.end.serving == self.nodes
    }

    /// The report as text.
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
        for entry in &self.timeline {
            let _ = writeln!(out, "  {}  {}", paint.dim(&clock(entry.after)), entry.what);
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

/// Formats a time as `HH:MM:SS`.
fn clock(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
