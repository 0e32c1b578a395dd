//! Fault injection of `capstan up`: into nodes before they join, into the cluster once the operator runs.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use capstan_api::crd::Entry;
use capstan_gpu_sim::faults::Fault;
use capstan_trial::manifests::{self, Manifest};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::progress::View;

/// Chart values with common mistakes.
const VALUES: &str = "image:\n  tag: 1.8\nimagePullSecret:\n  - ngc-secret\nagent:\n  layout: both\n";
/// Kind and field that an outdated CRD lacks.
const OUTDATED: (&str, &str) = ("NIMCache", "proxy");

/// The requested faults.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    /// Validates the faults and their nodes.
    pub(super) fn new(faults: &[Fault], nodes: u16) -> Result<Self> {
        for fault in faults {
            let named = fault.node.as_deref();
            if let Some(node) = named.filter(|node| !(0..nodes).any(|index| **node == format!("gpu-{index}"))) {
                bail!("there is no node {node}: there are gpu-0 to gpu-{}, see --nodes", nodes - 1);
            }
        }
        Ok(Self(faults.to_vec()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    fn has(&self, class: &str) -> bool {
        self.0.iter().any(|fault| fault.class.name == class)
    }

    /// Whether the operator must not install CRDs: it would upgrade the outdated one.
    pub(super) fn skips_crds(&self) -> bool {
        !self.has("crd-outdated")
    }

    /// Prepares faults that must exist before the operator starts.
    pub(super) async fn before(&self, client: &Client) -> Result<()> {
        if self.has("crd-outdated") {
            for entry in capstan_inspect::doctor::reconciled_kinds() {
                let mut definition = entry.definition();
                if entry.kind == OUTDATED.0 {
                    remove_field(&mut definition, OUTDATED.1);
                }
                install(client, definition).await?;
            }
        }
        let foreign = ["SriovNetworkNodePolicy", "SriovNetworkNodeState", "NodeFeature"];
        let needed = |entry: &&Entry| {
            foreign.contains(&entry.kind)
                && self.0.iter().flat_map(Fault::objects).any(|object| object["kind"] == entry.kind)
        };
        for entry in capstan_api::kinds().filter(needed) {
            install(client, entry.definition()).await?;
        }
        Ok(())
    }

    /// Injects the remaining faults, and reports them.
    pub(super) async fn inject(&self, client: &Client, view: View, kubeconfig: &std::path::Path) -> Result<()> {
        for fault in &self.0 {
            for body in fault.objects() {
                put(client, body).await?;
            }
            if let Some(status) = fault.node_status() {
                let nodes: Api<Node> = Api::all(client.clone());
                let all = nodes.list(&kube::api::ListParams::default()).await.context("cannot list the nodes")?;
                let concerned = all.items.iter().map(ResourceExt::name_any);
                for name in concerned.filter(|name| fault.node.as_ref().is_none_or(|mine| mine == name)) {
                    let patch = Patch::Strategic(json!({"status": status}));
                    let done = nodes.patch_status(&name, &PatchParams::default(), &patch).await;
                    done.with_context(|| format!("cannot change the status of node {name}"))?;
                }
            }
            let hint = if fault.class.name == "helm-values" {
                let file = values_file(kubeconfig);
                std::fs::write(&file, VALUES).with_context(|| format!("cannot write {}", file.display()))?;
                format!("; see `capstan doctor --values {}`", file.display())
            } else {
                String::new()
            };
            view.say("fault", &format!("fault {}: {}{hint}", fault.class.name, fault.about()));
        }
        Ok(())
    }

    /// Removes files outside of the cluster.
    pub(super) fn clean(&self, kubeconfig: &std::path::Path) {
        if self.has("helm-values") {
            let _ = std::fs::remove_file(values_file(kubeconfig));
        }
    }
}

fn values_file(kubeconfig: &std::path::Path) -> PathBuf {
    kubeconfig.with_extension("values.yaml")
}

/// Removes a field of the spec from a CRD schema.
fn remove_field(definition: &mut CustomResourceDefinition, field: &str) {
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let spec = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("spec"));
        if let Some(fields) = spec.and_then(|spec| spec.properties.as_mut()) {
            fields.remove(field);
        }
    }
}

pub(super) async fn install(client: &Client, definition: CustomResourceDefinition) -> Result<()> {
    let name = definition.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("kubectl").force();
    api.patch(&name, &params, &Patch::Apply(&definition)).await.with_context(|| format!("cannot install {name}"))?;
    let served = await_condition(api, &name, conditions::is_crd_established()).await;
    served.map(drop).map_err(|error| anyhow!("{name} is not served: {error}"))
}

/// Applies an object, then its status.
async fn put(client: &Client, body: Value) -> Result<()> {
    let api_version = body["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, body["kind"].as_str().unwrap_or_default());
    let status = body["status"].clone();
    let manifest = Manifest { kind, body };
    manifests::apply(client, &manifest).await?;
    if status.is_null() {
        return Ok(());
    }
    let (resource, _) = kube::discovery::pinned_kind(client, &manifest.kind).await.context("cannot find the kind")?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), manifest.namespace(), &resource);
    let patch = Patch::Merge(json!({"status": status}));
    let done = api.patch_status(manifest.name(), &PatchParams::default(), &patch).await;
    done.map(drop).with_context(|| format!("cannot write the status of {}", manifest.name()))
}
