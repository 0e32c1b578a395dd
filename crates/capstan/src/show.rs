//! How answers are printed: data on standard output, colours only where a person looks at it.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use capstan_inspect::Paint;
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

/// Colours where standard output is a terminal, unless `NO_COLOR` says otherwise.
pub(crate) fn paint() -> Paint {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !unwanted { Paint::Ansi } else { Paint::Plain }
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
