//! CRDs in the cluster that are older than this build: the API server silently drops fields that they lack.

use capstan_api::crd::Entry;
use capstan_api::skew::skew;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize;

use crate::doctor::finding::{Finding, Scope};
use crate::doctor::index::Index;

/// Kinds that the operator reconciles. CRDs of other operators may have other versions.
pub fn reconciled_kinds() -> impl Iterator<Item = &'static Entry> {
    capstan_api::nim::KINDS.iter().chain(capstan_api::gpu::KINDS)
}

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let group = "apiextensions.k8s.io";
    let mut all = Vec::new();
    for entry in reconciled_kinds() {
        let name = format!("{}.{}", entry.plural, entry.group);
        let Some(live) = index.snapshot.find(group, "CustomResourceDefinition", "", &name) else { continue };
        let Ok(live) = CustomResourceDefinition::deserialize(live) else { continue };
        let difference = skew(&entry.definition(), &live);
        let Some(message) = difference.message(&name).filter(|_| !difference.missing.is_empty()) else { continue };
        let object = format!("CustomResourceDefinition {name}");
        let mut finding = Finding::new(object.clone(), message, Scope::Objects).object(object.clone());
        for one in index.snapshot.of(entry.group, entry.kind) {
            finding = finding.object(crate::doctor::index::reference(one));
        }
        let fields = difference.missing.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        all.push(finding.evidence(format!("{object} does not know {fields}")).fix("capstan crds --apply"));
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn definition() -> serde_json::Value {
        let entry = super::reconciled_kinds().find(|entry| entry.kind == "NIMCache").unwrap();
        let mut value = serde_json::to_value(entry.definition()).unwrap();
        value["apiVersion"] = "apiextensions.k8s.io/v1".into();
        value["kind"] = "CustomResourceDefinition".into();
        value
    }

    #[test]
    fn a_schema_that_drops_fields() {
        let mut old = definition();
        let spec = &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec.as_object_mut().unwrap().remove("proxy");
        let report = assert_only(&Cluster::healthy().add(old), "crd-outdated");
        assert!(report.causes[0].title.contains("older than this build and drops spec.proxy"), "{report:?}");
        assert_healthy(&Cluster::healthy().add(definition()));
    }
}
