//! Storage: PersistentVolumeClaims, validated and built in one place, and volumes of pods.

use std::collections::BTreeMap;

use capstan_api::common::PersistentVolumeClaim as ClaimSpec;
use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, Volume,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Name of the claim: the user's, or derived from the custom resource.
pub fn claim_name(claim: &ClaimSpec, owner: &str) -> String {
    claim.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| format!("{owner}-pvc"))
}

/// The PersistentVolumeClaim with these labels.
pub fn claim(
    claim: &ClaimSpec,
    owner: &str,
    namespace: &str,
    labels: BTreeMap<String, String>,
) -> PersistentVolumeClaim {
    let mode = claim.volume_access_mode.clone().filter(|mode| !mode.is_empty());
    let size = Quantity(claim.size.clone().unwrap_or_default());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(claim, owner)),
            namespace: Some(namespace.into()),
            labels: Some(labels),
            annotations: claim.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec![mode.unwrap_or_else(|| "ReadWriteOnce".into())]),
            storage_class_name: claim.storage_class.clone().filter(|name| !name.is_empty()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}

/// A volume from a claim.
pub fn claim_volume(name: &str, claim: &str, read_only: Option<bool>) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.into(), read_only };
    Volume { name: name.into(), persistent_volume_claim: Some(source), ..Volume::default() }
}

/// An emptyDir volume with a size limit.
pub fn empty_dir(name: &str, limit: Option<&Quantity>) -> Volume {
    let source = EmptyDirVolumeSource { size_limit: limit.cloned(), ..EmptyDirVolumeSource::default() };
    Volume { name: name.into(), empty_dir: Some(source), ..Volume::default() }
}

/// An emptyDir volume in memory, with a size limit.
pub fn memory(name: &str, limit: Option<&Quantity>) -> Volume {
    let source = EmptyDirVolumeSource {
        medium: Some("Memory".into()),
        size_limit: limit.cloned(),
        ..EmptyDirVolumeSource::default()
    };
    Volume { name: name.into(), empty_dir: Some(source), ..Volume::default() }
}

/// What is wrong with a claim at `path`.
pub fn claim_faults(claim: &ClaimSpec, path: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let named = claim.name.as_ref().is_some_and(|name| !name.is_empty());
    let create = claim.create == Some(true);
    if !create && !named {
        faults.push(format!("{path} has neither create nor name: set create: true, or name a claim"));
    }
    if create && !claim.size.as_deref().is_some_and(is_size) {
        let size = claim.size.as_deref().unwrap_or_default();
        faults.push(format!("{path}.size is {size:?}: give a size such as 50Gi"));
    }
    if let Some(mode) = claim.volume_access_mode.as_deref().filter(|mode| !mode.is_empty())
        && !ACCESS_MODES.contains(&mode)
    {
        faults.push(format!("{path}.volumeAccessMode is {mode:?}: use one of {}", ACCESS_MODES.join(", ")));
    }
    faults
}

/// Whether `text` reads as a size: digits, perhaps a fraction, and a unit that Kubernetes knows.
fn is_size(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - digits.len()];
    number.parse::<f64>().is_ok_and(|number| number > 0.0)
        && ["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&digits)
}

#[cfg(test)]
mod tests {
    use super::is_size;

    #[test]
    fn sizes_are_told_from_other_words() {
        for good in ["50Gi", "1.5Ti", "1000000", "10G"] {
            assert!(is_size(good), "{good}");
        }
        for bad in ["", "Gi", "50 Gi", "50GB", "-1Gi", "0", "large"] {
            assert!(!is_size(bad), "{bad}");
        }
    }
}
