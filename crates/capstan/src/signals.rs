//! Termination signals.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled on Ctrl-C, SIGTERM or SIGHUP. From here on none of these signals kills the process, and
/// none is lost.
pub(crate) fn termination() -> Result<CancellationToken> {
    let token = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut signals = signal(kind).context("cannot listen for signals")?;
        let token = token.clone();
        tokio::spawn(async move {
            signals.recv().await;
            token.cancel();
        });
    }
    Ok(token)
}
