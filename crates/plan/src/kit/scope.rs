//! What the objects of one custom resource share: namespace, owner, and the user's common settings.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::MANAGED_BY;
use crate::Object;

/// The scope of a plan. Product-independent.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Namespace of all namespaced objects.
    pub namespace: String,
    /// Value of `app.kubernetes.io/managed-by`, by which caches select our objects.
    pub manager: &'static str,
    /// The custom resource that controls the objects.
    pub owner: Option<OwnerReference>,
    /// Common settings of all workloads.
    pub defaults: Defaults,
    /// Tolerations that every pod needs, unless one of its own covers them.
    pub required_tolerations: Vec<Toleration>,
}

/// Common settings of the workloads of a custom resource.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Labels of workloads and their pods; labels of selectors are not overridden.
    pub labels: BTreeMap<String, String>,
    /// Annotations of workloads and of their pods.
    pub annotations: BTreeMap<String, String>,
    /// Replaces the tolerations of templates, unless empty.
    pub tolerations: Vec<Toleration>,
    /// Replaces the priority class of templates.
    pub priority_class: Option<String>,
    /// Security context of pods.
    pub pod_security_context: Option<PodSecurityContext>,
}

impl Scope {
    /// Metadata of an object in the namespace.
    pub fn meta(&self, name: &str) -> ObjectMeta {
        ObjectMeta { namespace: Some(self.namespace.clone()), ..self.cluster_meta(name) }
    }

    /// Metadata of a cluster-scoped object.
    pub fn cluster_meta(&self, name: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            labels: Some(BTreeMap::from([(MANAGED_BY.into(), self.manager.into())])),
            ..ObjectMeta::default()
        }
    }

    /// `object` with the owner as controller.
    pub fn child(&self, object: Object) -> Object {
        match &self.owner {
            Some(owner) => object.owned_by(owner),
            None => object,
        }
    }
}

/// Whether one of `tolerations` covers `wanted`.
pub fn is_tolerated(wanted: &Toleration, tolerations: &[Toleration]) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    tolerations.iter().any(|one| {
        let (key, effect) = (text(&one.key), text(&one.effect));
        one.operator.as_deref() == Some("Exists")
            && (key.is_empty() || key == text(&wanted.key))
            && (effect.is_empty() || effect == text(&wanted.effect))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_covers_a_narrower_one() {
        let toleration = |value| serde_json::from_value::<Toleration>(value).unwrap();
        let wanted = toleration(json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"}));
        for (there, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "key": "a"}), true),
            (json!({"operator": "Exists", "key": "a", "effect": "NoExecute"}), false),
            (json!({"operator": "Equal", "key": "a", "value": "b"}), false),
        ] {
            assert_eq!(is_tolerated(&wanted, &[toleration(there.clone())]), expected, "{there}");
        }
    }
}
