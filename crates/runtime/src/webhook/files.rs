//! A certificate from a directory, such as a Secret mounted by cert-manager.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Certificate;
use crate::error::Error;

/// Poll interval. Mounted Secrets change by renamed symlinks, which inotify watches of files miss.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Serves `tls.crt` and `tls.key` of `directory`, and reloads them until `stop`.
pub async fn run(directory: &Path, certificate: Certificate, stop: CancellationToken) {
    let mut last = None;
    let follow = async {
        loop {
            match read(directory).await {
                Ok(now) if last.as_ref() == Some(&now) => {}
                // The two files may change one after the other: a mismatch is retried.
                Ok(now) => match certificate.set(&now.0, &now.1) {
                    Ok(()) => {
                        tracing::info!(directory = %directory.display(), "serving the certificate from files");
                        last = Some(now);
                    }
                    Err(error) => {
                        tracing::warn!(error = error.chain(), "certificate invalid; keeping the previous one")
                    }
                },
                Err(error) => {
                    tracing::warn!(error = error.chain(), "certificate not readable; keeping the previous one")
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    stop.run_until_cancelled(follow).await;
}

async fn read(directory: &Path) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let file = |name: &'static str| async move {
        let path = directory.join(name);
        tokio::fs::read(&path).await.map_err(|source| Error::Io { what: path.display().to_string(), source })
    };
    Ok((file("tls.crt").await?, file("tls.key").await?))
}
