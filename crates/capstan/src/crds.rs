//! `capstan crds`: prints our CustomResourceDefinitions, or installs them and waits until they are served.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use capstan_api::crd::Entry;
use capstan_operator::crds;
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

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
    /// Timeout until a CRD is served, in seconds
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
    if !args.apply {
        let crds: Vec<CustomResourceDefinition> = kinds.iter().map(|kind| kind.definition()).collect();
        return print(&crds, args.output);
    }
    let client = crate::connect(None, "crds").await?;
    for kind in kinds {
        crds::apply(&client, kind, Duration::from_secs(args.timeout)).await?;
        println!("customresourcedefinition/{} applied", kind.crd_name());
    }
    Ok(())
}

/// The kinds with these names, or all.
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
    crate::show::print(&text)
}
