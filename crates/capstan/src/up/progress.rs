//! Progress of `capstan up`: spinners on a terminal, plain lines elsewhere, JSON lines for programs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// A spinner that becomes a tick.
    Terminal,
    /// One line when a stage is done.
    Lines,
    /// One JSON object per line.
    Json,
}

impl View {
    /// The output that suits standard output.
    pub(crate) fn detect(json: bool) -> Self {
        match (json, std::io::stdout().is_terminal()) {
            (true, _) => Self::Json,
            (false, true) => Self::Terminal,
            (false, false) => Self::Lines,
        }
    }

    /// Starts a stage.
    pub(crate) fn stage(self, name: &'static str) -> Stage {
        let bar = (self == Self::Terminal).then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(style("{spinner:.cyan} {prefix:.bold}  {msg}  {elapsed:.dim}"));
            bar.set_prefix(name);
            bar.enable_steady_tick(Duration::from_millis(80));
            bar
        });
        Stage { view: self, name, begin: Instant::now(), bar, last_message: String::new() }
    }

    /// Prints a message outside of a stage.
    pub(crate) fn say(self, event: &str, text: &str) {
        match self {
            Self::Json => line(&json!({"event": event, "text": text}).to_string()),
            _ => line(text),
        }
    }
}

/// A running stage.
pub(crate) struct Stage {
    view: View,
    name: &'static str,
    begin: Instant,
    bar: Option<ProgressBar>,
    last_message: String,
}

impl Stage {
    /// Prints what the stage waits for, once per change.
    pub(crate) fn waiting(&mut self, what: &str) {
        if self.last_message == what {
            return;
        }
        what.clone_into(&mut self.last_message);
        match (&self.bar, self.view) {
            (Some(bar), _) => bar.set_message(what.to_owned()),
            (None, View::Json) => {
                line(
                    &json!({"stage": self.name, "state": "waiting", "text": what, "seconds": self.seconds()})
                        .to_string(),
                );
            }
            (None, _) => line(&format!("      {}: {what}", self.name)),
        }
    }

    /// Prints progress: a bar on a terminal, text elsewhere.
    pub(crate) fn counted(&mut self, done: usize, all: usize, what: &str) {
        if let Some(bar) = self.bar.as_ref().filter(|bar| bar.length().is_none()) {
            bar.set_length(all as u64);
            bar.set_style(style("{spinner:.cyan} {prefix:.bold}  {bar:30.cyan/dim} {msg}  {elapsed:.dim}"));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
        self.waiting(&format!("{done} of {all} {what}"));
    }

    /// Completes the stage.
    pub(crate) fn done(self, what: &str) {
        let seconds = self.seconds();
        let text = format!("{:>4.1}s  {}: {what}", seconds, self.name);
        match (&self.bar, self.view) {
            (Some(bar), _) => {
                bar.finish_and_clear();
                line(&format!("✓ {text}"));
            }
            (None, View::Json) => {
                line(&json!({"stage": self.name, "state": "done", "text": what, "seconds": seconds}).to_string());
            }
            (None, _) => line(&text),
        }
    }

    fn seconds(&self) -> f64 {
        (self.begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0
    }
}

/// A template; an invalid one falls back to a plain spinner.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Prints a line; a closed pipe is not an error.
fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
