//! Strategies of the generic verbs per kind, as in kube-apiserver's registry: one table instead of a type per kind.

use serde_json::{Value, json};

use crate::registry::{Origin, Resource};
use capstan_semantics::names::{self, ValidationErrors};

/// When `metadata.generation` is incremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Never: the kind has none.
    None,
    /// When `spec` changes.
    Spec,
    /// When `spec` or the annotations change.
    SpecAndAnnotations,
    /// When anything outside of `metadata` changes.
    Everything,
    /// When anything outside of `metadata` and `status` changes.
    EverythingButStatus,
}

/// What a status update may change besides the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusMeta {
    /// Metadata too, except for the fields named.
    Writable(&'static [&'static str]),
    /// Nothing.
    Fixed,
}

/// The strategy of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strategy {
    pub(crate) generation: Generation,
    /// Name validation.
    pub(crate) name: fn(&str) -> ValidationErrors,
    /// Whether an update without `resourceVersion` is unconditional.
    pub(crate) unconditional_update: bool,
    /// Whether an update of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// Whether the response to a deletion is the object instead of a Status.
    pub(crate) shows_deleted: bool,
    /// Whether the main endpoint resets the status, as there is a status subresource.
    pub(crate) splits_status: bool,
    /// Whether a new object may have a status nevertheless.
    pub(crate) status_on_create: bool,
    pub(crate) status_meta: StatusMeta,
    /// Whether deletion has a grace period.
    pub(crate) graceful: bool,
    /// Whether foreground deletion and orphaning are supported.
    pub(crate) collected: bool,
}

impl Strategy {
    /// The strategy of a resource.
    pub(crate) fn of(resource: &Resource) -> Self {
        match resource.origin {
            Origin::Builtin => builtin(resource),
            Origin::Custom(_) => custom(resource),
        }
    }

    /// Validates a name, or a `generateName` prefix.
    pub(crate) fn check_name(&self, name: &str, prefix: bool) -> ValidationErrors {
        match name.strip_suffix('-') {
            // A suffix follows the prefix, so a trailing dash is valid.
            Some(start) if prefix && !start.is_empty() => (self.name)(&format!("{start}a")),
            _ => (self.name)(name),
        }
    }

    /// Whether a change from `old` to `new` increments the generation.
    pub(crate) fn bumps(&self, old: &Value, new: &Value) -> bool {
        let differs = |skip: &[&str]| {
            let rest = |object: &Value| {
                let members = object.as_object().cloned().unwrap_or_default();
                members.into_iter().filter(|(key, _)| !skip.contains(&key.as_str())).collect::<Vec<_>>()
            };
            rest(old) != rest(new)
        };
        match self.generation {
            Generation::None => false,
            Generation::Spec => old["spec"] != new["spec"],
            Generation::SpecAndAnnotations => {
                old["spec"] != new["spec"] || old["metadata"]["annotations"] != new["metadata"]["annotations"]
            }
            Generation::Everything => differs(&["metadata", "apiVersion", "kind"]),
            Generation::EverythingButStatus => differs(&["metadata", "status", "apiVersion", "kind"]),
        }
    }
}

fn custom(resource: &Resource) -> Strategy {
    let splits_status = resource.has("status");
    Strategy {
        generation: if splits_status { Generation::EverythingButStatus } else { Generation::Everything },
        name: names::dns_subdomain,
        unconditional_update: false,
        create_on_update: false,
        shows_deleted: false,
        splits_status,
        status_on_create: false,
        status_meta: StatusMeta::Fixed,
        graceful: false,
        collected: true,
    }
}

fn builtin(resource: &Resource) -> Strategy {
    let (group, plural) = (&*resource.storage_group, &*resource.plural);
    Strategy {
        generation: generation(group, plural),
        name: name_rule(group, plural),
        unconditional_update: unconditional(group, plural),
        create_on_update: matches!(
            (group, plural),
            ("rbac.authorization.k8s.io", _) | ("", "events" | "endpoints" | "limitranges") | (_, "leases")
        ),
        shows_deleted: shows_deleted(group, plural),
        splits_status: resource.has("status"),
        status_on_create: (group, plural) == ("", "nodes"),
        status_meta: status_meta(group, plural),
        graceful: (group, plural) == ("", "pods"),
        collected: !matches!((group, plural), ("", "events")),
    }
}

fn generation(group: &str, plural: &str) -> Generation {
    match (group, plural) {
        ("apps", "deployments") => Generation::SpecAndAnnotations,
        ("apps", "daemonsets" | "replicasets" | "statefulsets")
        | ("", "replicationcontrollers" | "pods")
        | ("batch", "jobs" | "cronjobs")
        | ("policy", "poddisruptionbudgets")
        | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
        | ("apiextensions.k8s.io", "customresourcedefinitions")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("autoscaling", "horizontalpodautoscalers")
        // A PriorityClass always has generation 1, and no spec.
        | ("scheduling.k8s.io", "priorityclasses")
        | ("resource.k8s.io", "resourceslices" | "deviceclasses" | "devicetaintrules") => Generation::Spec,
        ("admissionregistration.k8s.io", _) | ("discovery.k8s.io", "endpointslices") | ("", "podtemplates") => {
            Generation::EverythingButStatus
        }
        _ => Generation::None,
    }
}

fn name_rule(group: &str, plural: &str) -> fn(&str) -> ValidationErrors {
    match (group, plural) {
        ("", "namespaces" | "services") | ("apps", "statefulsets") => names::dns_label,
        ("rbac.authorization.k8s.io", _) | ("apiregistration.k8s.io", _) => names::path_segment,
        ("batch", "cronjobs") => cron_job_name,
        ("certificates.k8s.io", "clustertrustbundles") | ("networking.k8s.io", "ipaddresses") => names::path_segment,
        _ => names::dns_subdomain,
    }
}

/// The names of a CronJob's Jobs have a suffix of eleven characters.
fn cron_job_name(name: &str) -> ValidationErrors {
    let wrong = names::dns_subdomain(name);
    if wrong.is_empty() && name.len() > 52 { vec!["must be no more than 52 characters".into()] } else { wrong }
}

fn unconditional(group: &str, plural: &str) -> bool {
    !matches!(
        (group, plural),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io" | "admissionregistration.k8s.io", _)
            | ("coordination.k8s.io" | "node.k8s.io" | "flowcontrol.apiserver.k8s.io", _)
            | ("policy", "poddisruptionbudgets")
            | ("storage.k8s.io", "volumeattachments" | "csinodes" | "csidrivers" | "csistoragecapacities")
            | ("networking.k8s.io", "servicecidrs" | "ipaddresses")
            | ("storagemigration.k8s.io", _)
    )
}

fn shows_deleted(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("", "pods" | "serviceaccounts" | "services" | "resourcequotas" | "podtemplates")
            | ("", "persistentvolumes" | "persistentvolumeclaims")
            | ("storage.k8s.io", "storageclasses" | "volumeattachments" | "csidrivers" | "csinodes")
            | ("resource.k8s.io", _)
            | ("policy", "podsecuritypolicies")
    )
}

fn status_meta(group: &str, plural: &str) -> StatusMeta {
    match (group, plural) {
        ("apiextensions.k8s.io" | "apiregistration.k8s.io" | "admissionregistration.k8s.io", _)
        | ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io" | "storagemigration.k8s.io", _)
        | ("storage.k8s.io", "volumeattachments")
        | ("networking.k8s.io", "servicecidrs") => StatusMeta::Fixed,
        ("apps", "deployments") => StatusMeta::Writable(&["labels"]),
        ("", "pods") => StatusMeta::Writable(&["ownerReferences"]),
        _ => StatusMeta::Writable(&[]),
    }
}

/// The initial status of a new object, where the client may not set it.
pub(crate) fn first_status(resource: &Resource) -> Option<Value> {
    match (&resource.origin, &*resource.storage_group, &*resource.plural) {
        (Origin::Custom(_), _, _) => None,
        (_, "", "namespaces") => Some(json!({"phase": "Active"})),
        (_, "", "pods" | "persistentvolumes" | "persistentvolumeclaims") => Some(json!({"phase": "Pending"})),
        _ => Some(json!({})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn a_generation_grows_with_what_counts() {
        let registry = Registry::builtin();
        let strategy = |group: &str, plural: &str| Strategy::of(&registry.lookup(group, "v1", plural).unwrap());
        let old = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"x": 1}, "status": {"y": 1}});
        let changed = |path: &str| {
            let mut new = old.clone();
            *new.pointer_mut(path).unwrap() = json!("2");
            new
        };
        let (spec, status, note) = (changed("/spec/x"), changed("/status/y"), changed("/metadata/annotations/a"));
        let cases = [
            ("apps", "deployments", [true, false, true]),
            ("apps", "daemonsets", [true, false, false]),
            ("", "configmaps", [false, false, false]),
            ("admissionregistration.k8s.io", "validatingwebhookconfigurations", [true, false, false]),
        ];
        for (group, plural, expected) in cases {
            let strategy = strategy(group, plural);
            assert_eq!([&spec, &status, &note].map(|new| strategy.bumps(&old, new)), expected, "{plural}");
        }
    }

    #[test]
    fn a_prefix_may_end_in_a_dash_and_a_name_may_not() {
        let registry = Registry::builtin();
        let pods = Strategy::of(&registry.lookup("", "v1", "pods").unwrap());
        assert!(pods.check_name("web-", true).is_empty());
        assert!(!pods.check_name("web-", false).is_empty());
        assert!(!pods.check_name("-", true).is_empty());
    }
}
