//! Identity of StatefulSet pods: the ordinal determines name, host name and claims.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};

use super::super::common::{name_of, set_in};
use super::super::pods::{from_template, spec};
use super::super::revision::REVISION_HASH;
use super::volumes::claim_name;
use crate::Pod;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a pod, if its name matches the set.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = name_of(pod).rsplit_once('-')?;
    let digits = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    if parent == name_of(set) && digits { ordinal.parse().ok() } else { None }
}

/// The pod of an ordinal.
pub(super) fn pod_for(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = from_template(template, set);
    pod.metadata.generate_name = Some(format!("{}-", name_of(set)));
    pod.metadata.name = Some(format!("{}-{ordinal}", name_of(set)));
    let name = pod.metadata.name.clone();
    let subdomain = set.spec.service_name.clone().filter(|name| !name.is_empty());
    let spec = pod.spec_mut();
    spec.hostname = name;
    spec.subdomain = subdomain;
    set_in(&mut pod.metadata.labels, REVISION_HASH, revision);
    set_identity(set, ordinal, &mut pod);
    pod
}

/// Sets the labels and volumes of a pod's ordinal.
pub(super) fn set_identity(set: &StatefulSet, ordinal: i32, pod: &mut Pod) {
    let name = format!("{}-{ordinal}", name_of(set));
    set_in(&mut pod.metadata.labels, POD_NAME, name);
    set_in(&mut pod.metadata.labels, POD_INDEX, ordinal.to_string());
    let templates = set.spec.volume_claim_templates.as_deref().unwrap_or_default();
    if templates.is_empty() {
        return;
    }
    let claimed: Vec<Volume> = templates.iter().map(|template| claimed(set, name_of(template), ordinal)).collect();
    let volumes = pod.spec_mut().volumes.get_or_insert_default();
    volumes.retain(|volume| claimed.iter().all(|mine| mine.name != volume.name));
    volumes.splice(0..0, claimed);
}

fn claimed(set: &StatefulSet, template: &str, ordinal: i32) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim_name(set, template, ordinal), read_only: None };
    Volume { name: template.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() }
}

/// Whether a pod has the labels and volumes of its ordinal.
pub(super) fn matches_identity(set: &StatefulSet, ordinal: i32, pod: &Pod) -> bool {
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    // Volumes are defaulted by the server, so only the claim names are compared.
    let volumes = spec(pod).volumes.as_deref().unwrap_or_default();
    let has_claim = |template: &str| {
        let name = claim_name(set, template, ordinal);
        volumes.iter().any(|volume| {
            let claim = volume.persistent_volume_claim.as_ref();
            volume.name == template && claim.is_some_and(|claim| claim.claim_name == name)
        })
    };
    label(POD_NAME) == Some(name_of(pod))
        && label(POD_INDEX) == Some(ordinal.to_string().as_str())
        && set.spec.volume_claim_templates.iter().flatten().all(|template| has_claim(name_of(template)))
}
