//! Logging: our flags, and the zap flags of other operators.

use anyhow::{Result, anyhow};
use tracing_subscriber::EnvFilter;

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Log lines as JSON
    #[arg(long)]
    log_json: bool,
    /// Log lines as json or console
    #[arg(long, value_name = "ENCODER", value_parser = ["json", "console"], conflicts_with = "log_json")]
    zap_encoder: Option<String>,
    /// Minimum log level: debug, info, warn or error, or a verbosity number; RUST_LOG is more specific
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    /// Development mode: log at debug level
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    zap_devel: bool,
    /// No effect: errors are logged with all their causes
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    /// No effect: times are RFC 3339
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

/// Initializes logging to standard error.
pub(crate) fn init(args: &Flags) -> Result<()> {
    let filter = match EnvFilter::try_from_default_env() {
        Ok(filter) => filter,
        Err(_) => match level(args)? {
            "debug" => "debug".into(),
            // The client logs every failed request, which our own line reports with context.
            level => format!("{level},kube_client::client::builder=off").into(),
        },
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = args.log_json || args.zap_encoder.as_deref() == Some("json");
    if json {
        log.json().init()
    } else {
        log.init()
    }
    Ok(())
}

fn level(args: &Flags) -> Result<&'static str> {
    let usual = if args.zap_devel { "debug" } else { "info" };
    match args.zap_log_level.as_deref() {
        None | Some("") => Ok(usual),
        Some("debug") => Ok("debug"),
        Some("info") => Ok("info"),
        Some("warn") => Ok("warn"),
        Some("error" | "panic") => Ok("error"),
        Some(number) => match number.parse::<u8>() {
            Ok(0) => Ok("info"),
            Ok(_) => Ok("debug"),
            Err(_) => Err(anyhow!("--zap-log-level is {number:?}: set debug, info, warn, error or a number")),
        },
    }
}
