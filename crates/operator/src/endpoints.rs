//! Health, metrics and admission over HTTP.

use std::net::SocketAddr;

use capstan_runtime::serve::Guard;
use capstan_runtime::webhook::{self, rotation};
use capstan_runtime::{Runtime, serve};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{Certificate, Error, Options, admission};

/// Starts the health, metrics and admission endpoints that the options enable.
pub(crate) async fn listen(
    tasks: &mut JoinSet<()>,
    runtime: &Runtime,
    options: &Options,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let own = webhook::Certificate::default();
    if let Some(settings) = options.certificate_rotation.clone() {
        tasks.spawn(rotation::run(runtime.clone(), settings, own.clone(), stop.clone()));
    }
    if let Some(endpoint) = &options.metrics {
        let listener = open(endpoint.address, "metrics").await?;
        let guard = Guard::token_review(runtime.client.clone());
        let certificate = certificate(tasks, &endpoint.certificate, &own, stop);
        tasks.spawn(serve::metrics(listener, runtime.metrics.clone(), guard, certificate, stop.clone()));
    }
    let mut hook = None;
    if let Some(endpoint) = &options.webhook
        && let Some(certificate) = certificate(tasks, &endpoint.certificate, &own, stop)
    {
        let listener = open(endpoint.address, "the webhook").await?;
        hook = Some(certificate.clone());
        tasks.spawn(webhook::run(listener, certificate, admission::routes(runtime, options), stop.clone()));
    }
    if let Some(address) = options.health {
        let (listener, cache) = (open(address, "health checks").await?, runtime.cache.clone());
        let ready = move || {
            serve::caches_synced(&cache)?;
            // Without a certificate the API server could not call the webhook.
            let served = hook.as_ref().is_none_or(webhook::Certificate::is_set);
            if served { Ok(()) } else { Err("no certificate for the webhook yet".into()) }
        };
        tasks.spawn(serve::health(listener, ready, stop.clone()));
    }
    Ok(())
}

/// The certificate that an endpoint serves, if it has one.
fn certificate(
    tasks: &mut JoinSet<()>,
    source: &Certificate,
    own: &webhook::Certificate,
    stop: &CancellationToken,
) -> Option<webhook::Certificate> {
    match source {
        Certificate::None => None,
        Certificate::Own => Some(own.clone()),
        Certificate::Mounted(folder) => {
            let (mounted, folder, stop) = (webhook::Certificate::default(), folder.clone(), stop.clone());
            let certificate = mounted.clone();
            tasks.spawn(async move { webhook::files::run(&folder, mounted, stop).await });
            Some(certificate)
        }
    }
}

async fn open(address: SocketAddr, purpose: &'static str) -> Result<tokio::net::TcpListener, Error> {
    let listener = tokio::net::TcpListener::bind(address).await;
    listener.map_err(|error| Error::Listen { address, purpose, cause: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_one_clear_line() {
        let taken = open((std::net::Ipv4Addr::LOCALHOST, 0).into(), "metrics").await.expect("a free port");
        let address = taken.local_addr().expect("an address");
        let error = open(address, "probes").await.expect_err("taken").to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for probes: ")), "{error}");
    }
}
