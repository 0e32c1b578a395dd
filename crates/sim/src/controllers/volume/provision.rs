//! Dynamic provisioning: creates volumes for claims by their class.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::common::{Controller, name_of, set_in, uid_of};
use super::{PROVISIONED_BY, PROVISIONER, Provisioning, claim_spec};
use crate::events::{Severity, reference};
use crate::informer::key_of;
use crate::writer::is_already_exists;

/// Provisions a volume for a claim, or waits for an external provisioner.
pub(super) async fn provision(
    this: &Controller,
    claim: &Arc<PersistentVolumeClaim>,
    class: &StorageClass,
    provisioning: Provisioning,
) -> Result<()> {
    let provisioner = class.provisioner.as_str();
    if provisioner == "kubernetes.io/no-provisioner" {
        let message = format!("no volume plugin matched name: {provisioner}");
        this.warning(&**claim, "ProvisioningFailed", message);
        return Ok(());
    }
    let mut next = PersistentVolumeClaim::clone(claim);
    for key in PROVISIONER {
        set_in(&mut next.metadata.annotations, key, provisioner);
    }
    let claim = this.writer.update(claim, &next).await?;
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
         system administrator. If volume creation is delayed, please verify that the provisioner is running and \
         correctly registered."
    );
    this.normal(&*claim, "ExternalProvisioning", message);
    if provisioning == Provisioning::None {
        return Ok(());
    }
    let recorder = this.context.recorder_on(provisioner, provisioner);
    let message = format!("External provisioner is provisioning volume for claim \"{}\"", key_of(&claim.metadata));
    recorder.event(&*claim, Severity::Normal, "Provisioning", message);
    let volume = volume_for(&claim, class);
    match this.writer.create(&volume).await {
        Ok(volume) => {
            let message = format!("Successfully provisioned volume {}", name_of(&*volume));
            recorder.event(&*claim, Severity::Normal, "ProvisioningSucceeded", message);
            Ok(())
        }
        Err(error) if is_already_exists(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn volume_for(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let name = format!("pvc-{}", uid_of(claim));
    let spec = claim_spec(claim);
    let mut metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    set_in(&mut metadata.annotations, PROVISIONED_BY, class.provisioner.as_str());
    PersistentVolume {
        metadata,
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(reference(claim)),
            csi: Some(CSIPersistentVolumeSource {
                // Provisioner names may have a slash (`rancher.io/local-path`), CSI driver names may not.
                driver: class.provisioner.replace('/', "."),
                volume_handle: name,
                volume_attributes: class.parameters.clone(),
                ..CSIPersistentVolumeSource::default()
            }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or(Some("Delete".to_owned())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
