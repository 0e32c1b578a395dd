//! `capstan operator`: the manager, in a cluster or beside one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use capstan_operator::questions::Ask;
use capstan_operator::{Certificate, Options, Webhook};
use capstan_runtime::webhook::keeper;
use capstan_runtime::{Clock, leader};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where /healthz and /readyz answer; 0 for nowhere
    #[arg(long, default_value = ":8081", value_parser = address, value_name = "ADDRESS")]
    health_probe_bind_address: Bind,
    /// Where /metrics answers; 0 for nowhere
    #[arg(long, default_value = "0", value_parser = address, value_name = "ADDRESS")]
    metrics_bind_address: Bind,
    /// Write only while holding a lease, so that replicas can stand by
    #[arg(long)]
    leader_elect: bool,
    /// How long others wait after the last renewal that they saw, in seconds
    #[arg(long, default_value = "15", value_name = "SECONDS")]
    lease_duration: u64,
    /// How long to write after the last renewal that succeeded, in seconds
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    renew_deadline: u64,
    /// How often to renew, in seconds
    #[arg(long, default_value = "2", value_name = "SECONDS")]
    retry_period: u64,
    /// Leave the CRDs of the cluster as they are
    #[arg(long)]
    skip_crds: bool,
    /// Where the admission webhook listens; off when absent, unless ENABLE_WEBHOOKS is true
    #[arg(long, value_parser = address, value_name = "ADDRESS")]
    webhook_bind_address: Option<Bind>,
    /// Folder with tls.crt and tls.key for the webhook; we make and renew our own when absent
    #[arg(long, value_name = "FOLDER")]
    webhook_cert_dir: Option<PathBuf>,
    /// ValidatingWebhookConfiguration that gets our CA bundle
    #[arg(long, default_value = "capstan-validating-webhook-configuration", value_name = "NAME")]
    webhook_configuration: String,
    /// DNS name of the webhook's Service
    #[arg(long, default_value = "capstan-webhook-service", value_name = "NAME")]
    webhook_service: String,
    /// Namespace of the lease and of the webhook's Secret
    #[arg(long, env = "OPERATOR_NAMESPACE", default_value = "capstan", value_name = "NAMESPACE")]
    namespace: String,
    /// Name of this process among its replicas
    #[arg(long, env = "POD_NAME", default_value = "capstan", value_name = "NAME")]
    pod_name: String,
    /// Log lines as JSON
    #[arg(long)]
    log_json: bool,
}

/// An address, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bind(Option<SocketAddr>);

/// `0` is nowhere, `:8081` every address.
fn address(text: &str) -> Result<Bind, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    match text {
        "0" | "" => Ok(Bind(None)),
        _ => full.parse().map(|address| Bind(Some(address))).map_err(|_| "write ADDRESS:PORT, :PORT, or 0".to_owned()),
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    log(args.log_json);
    let webhook = webhook(&args)?;
    let client = crate::connect().await?;
    let options = Options {
        apply_crds: !args.skip_crds,
        leader: args.leader_elect.then(|| leader::Settings {
            lease: Duration::from_secs(args.lease_duration),
            renew: Duration::from_secs(args.renew_deadline),
            retry: Duration::from_secs(args.retry_period),
            ..leader::Settings::new(&args.namespace, &args.pod_name)
        }),
        health: args.health_probe_bind_address.0,
        metrics: args.metrics_bind_address.0,
        webhook,
        instance: args.pod_name,
        clock: Clock::Real,
        ask: Ask::network(),
        kserve_namespace: std::env::var("KSERVE_NAMESPACE").ok().filter(|name| !name.is_empty()),
    };
    let stop = CancellationToken::new();
    let (mut terminate, ending) = (signal(SignalKind::terminate())?, stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        ending.cancel();
    });
    let (ready, _) = tokio::sync::oneshot::channel();
    Ok(capstan_operator::run(client, options, stop, ready).await?)
}

fn webhook(args: &Args) -> Result<Option<Webhook>> {
    let enabled = match std::env::var("ENABLE_WEBHOOKS").as_deref() {
        Ok("true" | "1" | "t" | "TRUE" | "True" | "T") => true,
        Ok("false" | "0" | "f" | "FALSE" | "False" | "F" | "") | Err(_) => false,
        Ok(other) => return Err(anyhow!("ENABLE_WEBHOOKS is {other:?}: set true or false")),
    };
    let address = args.webhook_bind_address.map_or_else(|| enabled.then(|| ([0, 0, 0, 0], 9443).into()), |bind| bind.0);
    let own = || {
        let service = format!("{}.{}.svc", args.webhook_service, args.namespace);
        Certificate::Own(keeper::Settings {
            namespace: args.namespace.clone(),
            secret: "capstan-webhook-cert".into(),
            configuration: args.webhook_configuration.clone(),
            names: vec![service.clone(), format!("{service}.cluster.local")],
        })
    };
    let certificate = || args.webhook_cert_dir.clone().map_or_else(own, Certificate::Mounted);
    Ok(address.map(|address| Webhook { address, certificate: certificate() }))
}

fn log(json: bool) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json { log.json().init() } else { log.init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_flags_of_other_managers_write_them() {
        assert_eq!(address("0"), Ok(Bind(None)));
        assert_eq!(address(":8081").unwrap().0.unwrap().to_string(), "0.0.0.0:8081");
        assert_eq!(address("127.0.0.1:8080").unwrap().0.unwrap().to_string(), "127.0.0.1:8080");
        assert!(address("nonsense").is_err());
    }
}
