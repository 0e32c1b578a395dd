//! How answers are printed: data on standard output, colours only where a person looks at it.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

/// In which form an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// Colours where standard output is a terminal, unless `NO_COLOR` says otherwise.
    pub(crate) fn detect() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { on: std::io::stdout().is_terminal() && !unwanted }
    }

    /// No colours.
    pub(crate) fn none() -> Self {
        Self { on: false }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }
}

/// Prints an answer for programs.
pub(crate) fn data(answer: &impl Serialize, format: Format) -> Result<()> {
    let text = match format {
        Format::Yaml => serde_saphyr::to_string(answer).context("cannot write YAML")?,
        Format::Json | Format::Text => serde_json::to_string_pretty(answer).context("cannot write JSON")? + "\n",
    };
    print(&text)
}

/// Prints on standard output. Whoever stops reading, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}
