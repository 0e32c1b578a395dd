//! Claims of NeMo services that are smaller than their spec asks for.

use capstan_semantics::quantity::Quantity;
use serde_json::Value;

use super::services;
use crate::doctor::finding::{Finding, Severity};
use crate::doctor::index::{Index, reference, text};
use crate::snapshot::named;

/// Where specs name a claim.
const FIELDS: [(&str, &str); 3] = [
    ("/spec/pvc", "spec.pvc"),
    ("/spec/configStore/pvc", "spec.configStore.pvc"),
    ("/spec/trainingConfig/modelPVC", "spec.trainingConfig.modelPVC"),
];

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let found = services(index).flat_map(|service| {
        FIELDS.into_iter().filter_map(move |(pointer, field)| small(index, service, service.pointer(pointer)?, field))
    });
    found.collect()
}

fn small(index: &Index<'_>, service: &Value, wanted: &Value, field: &str) -> Option<Finding> {
    let (namespace, owner) = named(service);
    let usual = format!("{owner}-pvc");
    let name = Some(text(&wanted["name"])).filter(|name| !name.is_empty()).unwrap_or(&usual);
    let claim = index.snapshot.find("", "PersistentVolumeClaim", namespace, name)?;
    let has = Some(text(&claim["status"]["capacity"]["storage"])).filter(|size| !size.is_empty())?;
    let units = |size: &str| Quantity::parse(size).ok().map(|size| size.units());
    let asked = text(&wanted["size"]);
    if units(has)? >= units(asked)? {
        return None;
    }
    let what = format!("PersistentVolumeClaim {name} has {has}, and {field}.size is {asked}");
    let class = text(&claim["spec"]["storageClassName"]);
    let fix = format!(
        "let StorageClass {class} grow volumes (allowVolumeExpansion: true), then kubectl patch pvc {name} -n {namespace} \
         -p '{{\"spec\":{{\"resources\":{{\"requests\":{{\"storage\":\"{asked}\"}}}}}}}}'"
    );
    let finding = Finding::about(service, what).severity(Severity::Warning).object(reference(claim));
    Some(finding.evidence(format!("{}: capacity {has}", reference(claim))).fix(fix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{Cluster, assert_healthy, assert_only};

    fn cluster(capacity: &str) -> Cluster {
        let meta = |name: &str| json!({"name": name, "namespace": "nim"});
        let service = json!({
            "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoDatastore", "metadata": meta("files"),
            "spec": {"pvc": {"create": true, "size": "10Gi"}}, "status": {"state": "Ready"},
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("files-pvc"),
            "spec": {"storageClassName": "standard"}, "status": {"phase": "Bound", "capacity": {"storage": capacity}},
        });
        Cluster::healthy().add(service).add(claim)
    }

    #[test]
    fn a_claim_that_is_too_small_is_named_with_both_sizes() {
        let report = assert_only(&cluster("5Gi"), "nemo-claim-small");
        let title = &report.causes[0].title;
        assert_eq!(
            title,
            "NemoDatastore nim/files: PersistentVolumeClaim files-pvc has 5Gi, and spec.pvc.size is 10Gi"
        );
    }

    #[test]
    fn a_claim_that_is_as_large_is_healthy() {
        assert_healthy(&cluster("10240Mi"));
    }
}
