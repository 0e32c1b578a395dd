//! Schema skew: fields that the CRD in the cluster and this build do not share.

use std::collections::BTreeSet;

use capstan_semantics::field;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// How the CRD in the cluster differs from ours, as paths such as `spec.driver.rdma`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Our fields that the cluster would prune.
    pub missing: Vec<String>,
    /// Fields of the cluster that this build does not know.
    pub unknown: Vec<String>,
}

impl Skew {
    /// Whether there is no skew.
    pub fn is_none(&self) -> bool {
        self.missing.is_empty() && self.unknown.is_empty()
    }

    /// A message with the effect and the fix.
    pub fn message(&self, crd: &str) -> Option<String> {
        let some = |fields: &[String]| {
            let more = if fields.len() > 3 { format!(" and {} more", fields.len() - 3) } else { String::new() };
            format!("{}{more}", fields[..fields.len().min(3)].join(", "))
        };
        match (self.missing.is_empty(), self.unknown.is_empty()) {
            (true, true) => None,
            (false, _) => Some(format!(
                "the CRD {crd} in the cluster is older than this build and drops {}: run `capstan crds --apply`",
                some(&self.missing)
            )),
            (true, false) => Some(format!(
                "the CRD {crd} in the cluster is newer than this build, which ignores {}: upgrade Capstan",
                some(&self.unknown)
            )),
        }
    }
}

/// Compares the CRD of the cluster with ours, version by version of ours.
pub fn skew(ours: &CustomResourceDefinition, live: &CustomResourceDefinition) -> Skew {
    let (ours, live) = (fields(ours), fields(live));
    let top = |these: &BTreeSet<String>, those: &BTreeSet<String>| {
        let mut paths: Vec<String> = Vec::new();
        // Report a parent instead of its children.
        for path in these.difference(those) {
            if !paths.last().is_some_and(|last| path.starts_with(&format!("{last}."))) {
                paths.push(path.clone());
            }
        }
        paths
    };
    Skew { missing: top(&ours, &live), unknown: top(&live, &ours) }
}

fn fields(crd: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for version in crd.spec.versions.iter().filter(|version| version.storage) {
        if let Some(schema) = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()) {
            collect(schema, "", &mut paths);
        }
    }
    paths
}

fn collect(schema: &JSONSchemaProps, path: &str, paths: &mut BTreeSet<String>) {
    for (name, field) in schema.properties.iter().flatten() {
        let here = field::child(path, name);
        collect(field, &here, paths);
        paths.insert(here);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        collect(items, path, paths);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        collect(values, path, paths);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> CustomResourceDefinition {
        crate::kinds().find(|kind| kind.kind == "NIMCache").unwrap().definition()
    }

    fn without(mut crd: CustomResourceDefinition, field: &str) -> CustomResourceDefinition {
        let schema = crd.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.properties.as_mut().unwrap().get_mut("spec").unwrap().properties.as_mut().unwrap().remove(field);
        crd
    }

    #[test]
    fn equal_definitions_have_no_skew() {
        assert!(skew(&ours(), &ours()).is_none());
        assert_eq!(Skew::default().message("x"), None);
    }

    #[test]
    fn an_older_cluster_drops_fields() {
        let skew = skew(&ours(), &without(ours(), "proxy"));
        assert_eq!((skew.missing.as_slice(), skew.unknown.as_slice()), (&["spec.proxy".to_owned()][..], &[][..]));
        let message = skew.message("nimcaches.apps.nvidia.com").unwrap();
        assert_eq!(
            message,
            "the CRD nimcaches.apps.nvidia.com in the cluster is older than this build and drops spec.proxy: \
             run `capstan crds --apply`"
        );
    }

    #[test]
    fn a_newer_cluster_has_fields_that_we_ignore() {
        let skew = skew(&without(ours(), "proxy"), &ours());
        assert_eq!(skew.unknown, ["spec.proxy"]);
        assert!(skew.message("x").unwrap().ends_with("which ignores spec.proxy: upgrade Capstan"));
    }
}
