//! Output: data on standard output, colours only on a terminal.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use capstan_inspect::Paint;
use clap::ValueEnum;
use serde::Serialize;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Colours if standard output is a terminal and `NO_COLOR` is not set.
pub(crate) fn paint() -> Paint {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if std::io::stdout().is_terminal() && !unwanted { Paint::Ansi } else { Paint::Plain }
}

/// Prints machine-readable output.
pub(crate) fn data(answer: &impl Serialize, format: Format) -> Result<()> {
    let text = match format {
        Format::Yaml => serde_saphyr::to_string(answer).context("cannot write YAML")?,
        Format::Json | Format::Text => serde_json::to_string_pretty(answer).context("cannot write JSON")? + "\n",
    };
    print(&text)
}

/// Prints on standard output. A closed pipe, as by `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}
