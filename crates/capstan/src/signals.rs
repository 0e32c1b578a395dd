//! Signals that ask the process to end.

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled when the process is asked to end: by Ctrl-C, by a service manager (SIGTERM), or because its
/// terminal closes (SIGHUP). From here on none of them ends the process by itself, and none is lost.
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
