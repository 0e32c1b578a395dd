//! `capstan operator`: runs the operator, in a cluster or outside.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use capstan_operator::gpu::{Agent, Layout, Readiness, StartupTaint};
use capstan_operator::queries::QueryBackend;
use capstan_operator::{Certificate, Endpoint, Options};
use capstan_runtime::webhook::rotation;
use capstan_runtime::{Anchor, Clock, leader};

use crate::{logging, memory};

/// Timeout of a registry request for image metadata: without it a model is served later.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Address of /healthz and /readyz; 0 disables them
    #[arg(long, default_value = ":8081", value_parser = address, value_name = "ADDRESS")]
    health_probe_bind_address: Bind,
    /// Address of /metrics, which checks RBAC for clients; 0 disables it
    #[arg(long, default_value = "0", value_parser = address, value_name = "ADDRESS")]
    metrics_bind_address: Bind,
    /// Serve metrics over TLS
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    metrics_secure: bool,
    /// Directory with tls.crt and tls.key for metrics; a self-signed certificate is issued and renewed if absent
    #[arg(long, value_name = "FOLDER")]
    metrics_cert_dir: Option<PathBuf>,
    /// Name of the metrics Service
    #[arg(long, default_value = "capstan-metrics", value_name = "NAME")]
    metrics_service: String,
    /// Enable leader election: write only while holding the lease, so that replicas can stand by
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = clap::ArgAction::Set, value_name = "BOOL")]
    leader_elect: bool,
    /// Lease duration: how long other candidates wait after the last observed renewal, in seconds
    #[arg(long, default_value = "15", value_name = "SECONDS")]
    lease_duration: u64,
    /// Renew deadline: how long the leader writes after its last successful renewal, in seconds
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    renew_deadline: u64,
    /// Retry period: interval between renewals, in seconds
    #[arg(long, default_value = "2", value_name = "SECONDS")]
    retry_period: u64,
    /// Do not install or upgrade CRDs
    #[arg(long)]
    skip_crds: bool,
    /// ClusterRole that owns the lease and the Secret: they are garbage collected with it
    #[arg(long, value_name = "NAME")]
    anchor: Option<String>,
    /// Let the anchor own the CRDs too: deleting it deletes them and every object of their kinds
    #[arg(long, requires = "anchor", conflicts_with = "skip_crds")]
    delete_crds_with_anchor: bool,
    /// Address of the admission webhook; disabled if absent, unless ENABLE_WEBHOOKS is true
    #[arg(long, value_parser = address, value_name = "ADDRESS")]
    webhook_bind_address: Option<Bind>,
    /// Directory with tls.crt and tls.key for the webhook; a self-signed certificate is issued and renewed if absent
    #[arg(long, value_name = "FOLDER")]
    webhook_cert_dir: Option<PathBuf>,
    /// ValidatingWebhookConfiguration to inject the CA bundle into
    #[arg(long, default_value = "capstan-validating-webhook-configuration", value_name = "NAME")]
    webhook_configuration: String,
    /// Name of the webhook Service
    #[arg(long, default_value = "capstan-webhook-service", value_name = "NAME")]
    webhook_service: String,
    /// Report progress on each GPU node in the condition GPUReady
    #[arg(long)]
    node_ready_condition: bool,
    /// Startup taint of new GPU nodes until their GPUs work: key, key:Effect or key=value:Effect
    #[arg(long, value_parser = StartupTaint::parse, value_name = "TAINT")]
    startup_taint: Option<StartupTaint>,
    /// Namespace of the lease and of the webhook's Secret
    #[arg(long, env = "OPERATOR_NAMESPACE", default_value = "capstan", value_name = "NAMESPACE")]
    namespace: String,
    /// Identity of this replica
    #[arg(long, env = "POD_NAME", default_value = "capstan", value_name = "NAME")]
    pod_name: String,
    /// Pod layout of node roles, unless a ClusterPolicy sets it: combined, per-component
    #[arg(long, env = "CAPSTAN_NODE_LAYOUT", default_value = "combined", value_parser = Layout::parse, value_name = "LAYOUT")]
    node_layout: Layout,
    /// Kubeconfig file, if KUBECONFIG is not set
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    log: logging::Flags,
    #[command(flatten)]
    ignored: Ignored,
}

/// Flags of other operators without effect here, accepted for compatibility.
#[derive(clap::Args)]
struct Ignored {
    /// No effect: only HTTP/1.1 is served
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true, hide = true)]
    enable_http2: Option<bool>,
    /// No effect: each NIMService sets its platform
    #[arg(long, hide = true, value_parser = ["", "standalone", "kserve"])]
    platform: Option<String>,
}

/// An address, or disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bind(Option<SocketAddr>);

/// `0` disables it, `:8081` binds all addresses.
fn address(text: &str) -> Result<Bind, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    match text {
        "0" | "" => Ok(Bind(None)),
        _ => full.parse().map(|address| Bind(Some(address))).map_err(|_| "write ADDRESS:PORT, :PORT, or 0".to_owned()),
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    logging::init(&args.log)?;
    if args.ignored.enable_http2 == Some(true) {
        tracing::warn!("--enable-http2 has no effect: metrics and webhook speak HTTP/1.1");
    }
    let options = options(&args)?;
    let client = crate::connect(args.kubeconfig.as_deref(), "operator").await?;
    let stop = crate::signals::termination()?;
    tokio::spawn(memory::release_memory_periodically(stop.clone()));
    let (ready, _) = tokio::sync::oneshot::channel();
    Ok(capstan_operator::run(client, options, stop, ready).await?)
}

fn options(args: &Args) -> Result<Options> {
    let anchor = args.anchor.clone().map(|cluster_role| Anchor { cluster_role });
    let own = |folder: &Option<PathBuf>| folder.clone().map_or(Certificate::Own, Certificate::Mounted);
    let metrics = args.metrics_bind_address.0.map(|address| {
        let certificate = if args.metrics_secure { own(&args.metrics_cert_dir) } else { Certificate::None };
        Endpoint { address, certificate }
    });
    let webhook = webhook_address(args)?.map(|address| Endpoint { address, certificate: own(&args.webhook_cert_dir) });
    Ok(Options {
        apply_crds: !args.skip_crds,
        leader: args.leader_elect.then(|| leader::Settings {
            anchor: anchor.clone(),
            lease: Duration::from_secs(args.lease_duration),
            renew: Duration::from_secs(args.renew_deadline),
            retry: Duration::from_secs(args.retry_period),
            ..leader::Settings::new(&args.namespace, &args.pod_name)
        }),
        health: args.health_probe_bind_address.0,
        certificate_rotation: certificate_rotation(args, metrics.as_ref(), webhook.as_ref(), anchor.clone()),
        metrics,
        webhook,
        crd_anchor: anchor.filter(|_| args.delete_crds_with_anchor),
        instance: args.pod_name.clone(),
        clock: Clock::Real,
        query_backend: QueryBackend::network(),
        registries: Some(REGISTRY_TIMEOUT),
        kserve_namespace: std::env::var("KSERVE_NAMESPACE").ok().filter(|name| !name.is_empty()),
        gpu: gpu(args, |name| std::env::var(name).ok()),
        nemo: nemo(|name| std::env::var(name).ok()),
    })
}

/// Settings of NeMo services, from variables that the chart sets.
fn nemo(variable: impl Fn(&str) -> Option<String>) -> capstan_operator::nemo::Settings {
    let usual = capstan_operator::nemo::Settings::default();
    let image = variable("NEMO_WAIT_IMAGE").filter(|image| !image.is_empty());
    capstan_operator::nemo::Settings { wait_image: image.unwrap_or(usual.wait_image) }
}

/// Options of an operator in this process: without leader election, with the release image of this version.
pub(crate) fn in_process() -> Options {
    let mut options = Options::in_process();
    options.gpu.agent.image = crate::own_image();
    options
}

/// GPU settings from these arguments and environment variables.
pub(crate) fn gpu(args: &Args, variable: impl Fn(&str) -> Option<String>) -> capstan_operator::gpu::Settings {
    // Operand images set by the chart.
    let set = |name: &&str| Some((String::from(*name), variable(name)?));
    capstan_operator::gpu::Settings {
        namespace: args.namespace.clone(),
        images: capstan_operator::gpu::IMAGES.iter().filter_map(set).collect(),
        agent: Agent { layout: args.node_layout, ..Agent::of(&variable) },
        readiness: Readiness { condition: args.node_ready_condition, taint: args.startup_taint.clone() },
        requestor: capstan_operator::gpu::Requestor::of(&variable),
        ..Default::default()
    }
}

/// Certificate issuer for our own Services, if one is needed.
fn certificate_rotation(
    args: &Args,
    metrics: Option<&Endpoint>,
    webhook: Option<&Endpoint>,
    anchor: Option<Anchor>,
) -> Option<rotation::Settings> {
    let is_own = |endpoint: &&Endpoint| endpoint.certificate == Certificate::Own;
    let (metrics, webhook) = (metrics.filter(is_own), webhook.filter(is_own));
    let services = [webhook.map(|_| &args.webhook_service), metrics.map(|_| &args.metrics_service)];
    let names = services.into_iter().flatten().flat_map(|service| {
        let name = format!("{service}.{}.svc", args.namespace);
        [name.clone(), format!("{name}.cluster.local")]
    });
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| rotation::Settings {
        namespace: args.namespace.clone(),
        secret: rotation::SECRET.into(),
        configuration: webhook.map(|_| args.webhook_configuration.clone()),
        names,
        anchor,
    })
}

fn webhook_address(args: &Args) -> Result<Option<SocketAddr>> {
    let enabled = match std::env::var("ENABLE_WEBHOOKS").as_deref() {
        Ok("true" | "1" | "t" | "TRUE" | "True" | "T") => true,
        Ok("false" | "0" | "f" | "FALSE" | "False" | "F" | "") | Err(_) => false,
        Ok(other) => return Err(anyhow!("ENABLE_WEBHOOKS is {other:?}: set true or false")),
    };
    let usual = || enabled.then(|| ([0, 0, 0, 0], 9443).into());
    Ok(args.webhook_bind_address.map_or_else(usual, |bind| bind.0))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &str) -> Options {
        let line = std::iter::once("operator").chain(flags.split_whitespace());
        options(&Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{flags}: {error}")).args).unwrap()
    }

    #[test]
    fn command_lines_of_other_managers_are_understood() {
        let options = parse(
            "--health-probe-bind-address=:8081 --metrics-bind-address=:8080 --leader-elect --zap-devel=false \
             --zap-log-level=info --zap-stacktrace-level=error --zap-encoder=json --enable-http2=false --platform=kserve",
        );
        assert!(options.leader.is_some());
        assert_eq!(options.metrics.unwrap().certificate, Certificate::None);
        assert!(options.certificate_rotation.is_none() && options.webhook.is_none());
    }

    #[test]
    fn one_certificate_serves_both_endpoints() {
        let options = parse(
            "--namespace ns --metrics-bind-address=:8443 --metrics-secure --metrics-service m \
             --webhook-bind-address :9443 --webhook-service w --anchor a",
        );
        let rotation = options.certificate_rotation.unwrap();
        assert_eq!(rotation.names, ["w.ns.svc", "w.ns.svc.cluster.local", "m.ns.svc", "m.ns.svc.cluster.local"]);
        assert_eq!(rotation.configuration.as_deref(), Some("capstan-validating-webhook-configuration"));
        assert_eq!(rotation.anchor.unwrap().cluster_role, "a");
        assert_eq!(options.crd_anchor, None);
        let mounted = parse("--metrics-bind-address=:8443 --metrics-secure --metrics-cert-dir /tls");
        assert!(mounted.certificate_rotation.is_none());
        assert_eq!(mounted.metrics.unwrap().certificate, Certificate::Mounted("/tls".into()));
    }

    #[test]
    fn addresses_are_read_as_the_flags_of_other_managers_write_them() {
        assert_eq!(address("0"), Ok(Bind(None)));
        assert_eq!(address(":8081").unwrap().0.unwrap().to_string(), "0.0.0.0:8081");
        assert_eq!(address("127.0.0.1:8080").unwrap().0.unwrap().to_string(), "127.0.0.1:8080");
        assert!(address("nonsense").is_err());
    }
}
