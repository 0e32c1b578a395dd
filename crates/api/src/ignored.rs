//! Fields that are accepted and stored, but not implemented yet.
//!
//! One table: the source of the `IgnoredFields` condition and of the reference docs. A row names a field and covers
//! everything below it. To implement a field, remove its row or narrow it.

use serde_json::Value;

/// An accepted field without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Kind.
    pub kind: &'static str,
    /// Path from the root of the object, as in `spec.driver.rdma`; list items have no index.
    pub path: &'static str,
    /// Why, where that is for good; empty while nobody has made it work yet.
    pub reason: &'static str,
}

/// The table.
pub const IGNORED: &[Ignored] = &[
    row("NIMService", "spec.expose.service.name"),
    row("NIMService", "spec.podAffinity"),
    row("NIMCache", "spec.storage.hostPath"),
    because("NemoCustomizer", "spec.expose.service.name", SERVICE_NAME),
    because("NemoCustomizer", "spec.expose.router.eppConfig", ENDPOINT_PICKER),
    because("NemoCustomizer", "spec.trainingConfig.modelPVC.subPath", MODEL_DIRECTORY),
    because("NemoDatastore", "spec.expose.service.name", SERVICE_NAME),
    because("NemoDatastore", "spec.expose.router.eppConfig", ENDPOINT_PICKER),
    because("NemoDatastore", "spec.userID", "the image of the Data Store chooses its user, who owns its files"),
    because("NemoEntitystore", "spec.expose.service.name", SERVICE_NAME),
    because("NemoEntitystore", "spec.expose.router.eppConfig", ENDPOINT_PICKER),
    because("NemoEvaluator", "spec.expose.service.name", SERVICE_NAME),
    because("NemoEvaluator", "spec.expose.router.eppConfig", ENDPOINT_PICKER),
    because("NemoGuardrail", "spec.expose.service.name", SERVICE_NAME),
    because("NemoGuardrail", "spec.expose.router.eppConfig", ENDPOINT_PICKER),
    row("ClusterPolicy", "spec.operator.defaultRuntime"),
    row("ClusterPolicy", "spec.operator.initContainer"),
    row("ClusterPolicy", "spec.operator.labels"),
    row("ClusterPolicy", "spec.operator.annotations"),
    row("ClusterPolicy", "spec.operator.metrics.serviceMonitor.enabled"),
    row("ClusterPolicy", "spec.driver.useOpenKernelModules"),
    row("ClusterPolicy", "spec.toolkit.args"),
    row("ClusterPolicy", "spec.dcgm.hostPort"),
    row("ClusterPolicy", "spec.psp"),
    row("ClusterPolicy", "spec.gds.args"),
    row("ClusterPolicy", "spec.gdrcopy.args"),
    row("ClusterPolicy", "spec.kataManager"),
    row("ClusterPolicy", "spec.cdi.default"),
    row("NVIDIADriver", "spec.useOpenKernelModules"),
    row("NVIDIADriver", "spec.nodeAffinity"),
    row("NVIDIADriver", "spec.gds.args"),
    row("NVIDIADriver", "spec.gdrcopy.args"),
    row("GPUCluster", "spec.dcgm.hostPort"),
    row("ComputeDomain", "spec"),
    row("ComputeDomainClique", "daemons"),
    row("NicClusterPolicy", "spec"),
    row("NicNodePolicy", "spec"),
    row("MacvlanNetwork", "spec"),
    row("HostDeviceNetwork", "spec"),
    row("IPoIBNetwork", "spec"),
    row("SriovNetworkNodePolicy", "spec"),
    row("SriovNetworkNodeState", "spec"),
    row("SriovNetwork", "spec"),
    row("SriovIBNetwork", "spec"),
    row("OVSNetwork", "spec"),
    row("SriovOperatorConfig", "spec"),
    row("SriovNetworkPoolConfig", "spec"),
    row("NodeFeature", "spec"),
    row("NodeFeatureRule", "spec"),
    row("NodeFeatureGroup", "spec"),
    row("DeviceConfig", "spec"),
];

const SERVICE_NAME: &str = "the Service has the name of the object, by which other services find it";
const ENDPOINT_PICKER: &str = "endpoint pickers choose among replicas of models, which NeMo services are not";
const MODEL_DIRECTORY: &str =
    "download jobs of the Customizer write to the root of the claim, where training jobs read";

const fn row(kind: &'static str, path: &'static str) -> Ignored {
    because(kind, path, "")
}

const fn because(kind: &'static str, path: &'static str, reason: &'static str) -> Ignored {
    Ignored { kind, path, reason }
}

/// Whether the field at `path` of `kind` has no effect yet.
pub fn is_ignored(kind: &str, path: &str) -> bool {
    IGNORED.iter().any(|row| row.kind == kind && covers(row.path, path))
}

/// The rows that `object` sets: the content of its `IgnoredFields` condition. Empty values do not count.
pub fn used<'a>(kind: &'a str, object: &'a Value) -> impl Iterator<Item = &'static str> + 'a {
    IGNORED.iter().filter(move |row| row.kind == kind && is_set(object, row.path)).map(|row| row.path)
}

fn covers(row: &str, path: &str) -> bool {
    path.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a value is set at `path`; lists are searched item by item.
pub fn is_set(value: &Value, path: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| is_set(item, path)),
        Value::Object(fields) if path.is_empty() => !fields.is_empty(),
        Value::Object(fields) => {
            let (name, rest) = path.split_once('.').unwrap_or((path, ""));
            fields.get(name).is_some_and(|field| is_set(field, rest))
        }
        Value::Null => false,
        _ => path.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_row_names_a_field_that_exists() {
        for row in IGNORED {
            let kind = crate::kinds().find(|kind| kind.kind == row.kind);
            let mut schema = kind.unwrap_or_else(|| panic!("{} is no kind of ours", row.kind)).described();
            for name in row.path.split('.') {
                while let Some(inner) = schema.get("items").or(schema.get("additionalProperties")) {
                    schema = inner.clone();
                }
                schema = schema["properties"][name].clone();
                assert!(schema.is_object(), "{}: no field {}", row.kind, row.path);
            }
        }
    }

    #[test]
    fn a_row_covers_what_lies_below_it_and_nothing_beside_it() {
        assert!(covers("spec.driver", "spec.driver"));
        assert!(covers("spec.driver", "spec.driver.rdma.enabled"));
        assert!(!covers("spec.driver", "spec.driverManager"));
    }

    #[test]
    fn a_field_counts_as_used_when_something_is_written_there() {
        let object = json!({"spec": {"driver": {}, "plugins": [{"config": null}, {"config": {"name": "x"}}]}});
        assert!(!is_set(&object, "spec.driver"));
        assert!(!is_set(&object, "spec.absent"));
        assert!(is_set(&object, "spec.plugins.config"));
    }
}
