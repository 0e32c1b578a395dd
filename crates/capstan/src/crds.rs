//! `capstan crds`: prints our CustomResourceDefinitions, or installs them and waits until they are served.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use capstan_api::crd::Entry;
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};

/// Field manager of everything that we apply.
const FIELD_MANAGER: &str = "capstan";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this kind: NIMService, nimservices or a short name; may be repeated
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml", conflicts_with = "apply")]
    output: Format,
    /// Install or upgrade them in the current cluster by server-side apply, and wait until they are served
    #[arg(long)]
    apply: bool,
    /// How long to wait for one definition to be served, in seconds
    #[arg(long, default_value = "30", value_name = "SECONDS", requires = "apply")]
    timeout: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let kinds = select(&args.kind)?;
    let crds: Vec<CustomResourceDefinition> = kinds.iter().map(|kind| kind.definition()).collect();
    if !args.apply {
        return print(&crds, args.output);
    }
    let client = connect().await?;
    for crd in &crds {
        apply(&client, crd, Duration::from_secs(args.timeout)).await?;
        println!("customresourcedefinition/{} applied", crd.name_any());
    }
    Ok(())
}

/// A client for the cluster that the environment names.
async fn connect() -> Result<Client> {
    Client::try_default().await.map_err(|error| {
        let place = std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".into());
        let why = root_cause(&error);
        anyhow!("no cluster to apply to: {place}: {why}; point KUBECONFIG at a kubeconfig file, or run inside a pod")
    })
}

/// The kinds that `names` ask for, or all.
fn select(names: &[String]) -> Result<Vec<&'static Entry>> {
    if names.is_empty() {
        return Ok(capstan_api::kinds().collect());
    }
    let find = |name: &String| {
        capstan_api::kinds().find(|kind| kind.is_called(name)).ok_or_else(|| {
            let known: Vec<_> = capstan_api::kinds().map(|kind| kind.kind).collect();
            anyhow!("unknown kind {name:?}: choose one of {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

fn print(crds: &[CustomResourceDefinition], format: Format) -> Result<()> {
    let text = match format {
        Format::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
            serde_json::to_string_pretty(&list)? + "\n"
        }
        Format::Yaml => {
            let mut text = String::new();
            for crd in crds {
                text += "---\n";
                text += &serde_saphyr::to_string(crd).context("cannot write YAML")?;
            }
            text
        }
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // `capstan crds | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Applies one definition and waits until the server serves it.
async fn apply(client: &Client, crd: &CustomResourceDefinition, timeout: Duration) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    // Forced, because an earlier install by another operator's chart owns the same fields.
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(crd)).await.map_err(|error| explain(error, &name))?;
    let served = await_condition(api, &name, conditions::is_crd_established());
    match tokio::time::timeout(timeout, served).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(anyhow!(error)).with_context(|| format!("cannot watch {name}")),
        Err(_) => bail!(
            "{name} was applied but is not served after {} s: see its conditions with `kubectl describe crd {name}`",
            timeout.as_secs()
        ),
    }
}

/// One line that says what to do.
fn explain(error: kube::Error, name: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            anyhow!("the cluster does not know who you are ({}): log in again or check KUBECONFIG", status.message)
        }
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "no permission to install {name}: {}; ask for the verbs get, list, watch and patch on \
             customresourcedefinitions.apiextensions.k8s.io",
            status.message
        ),
        kube::Error::Api(status) => anyhow!("the API server refused {name}: {}", status.message),
        other => anyhow!("cannot reach the API server to install {name}: {}; check KUBECONFIG", root_cause(&other)),
    }
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
