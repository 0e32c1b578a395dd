//! StorageObjectInUseProtection and PersistentVolumeClaimResize.

use serde_json::{Value, json};

use super::{Plugin, creates, find, forbidden, is};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::{Operation, Request};
use capstan_semantics::Quantity;

/// Adds the protection finalizers of claims and volumes. Requires the protection controllers.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageProtection;

impl Plugin for StorageProtection {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "", "persistentvolumeclaims") || creates(request, "", "persistentvolumes")
    }

    fn mutate(&self, request: &Request, object: &mut Value) -> Result<()> {
        let claim = is(request, "", "persistentvolumeclaims");
        let finalizer = if claim { "kubernetes.io/pvc-protection" } else { "kubernetes.io/pv-protection" };
        let Some(meta) = object.inner("metadata") else { return Ok(()) };
        meta.fill("finalizers", json!([]));
        if let Some(Value::Array(finalizers)) = meta.get_mut("finalizers")
            && !finalizers.iter().any(|one| one == finalizer)
        {
            finalizers.push(finalizer.into());
        }
        Ok(())
    }
}

/// Rejects expansion of claims whose StorageClass does not allow it.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeResize;

impl Plugin for VolumeResize {
    fn handles(&self, request: &Request) -> bool {
        request.operation == Operation::Update && is(request, "", "persistentvolumeclaims")
    }

    fn validate(&self, request: &Request, claim: Option<&Value>) -> Result<()> {
        let (Some(claim), Some(old)) = (claim, &request.old) else { return Ok(()) };
        let size = |claim: &Value| Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"]).ok();
        if size(claim) <= size(old) || old["status"].text("phase") != "Bound" {
            return Ok(());
        }
        let class = find(request, "storage.k8s.io", "storageclasses", "", old["spec"].text("storageClassName"));
        if class.is_some_and(|class| class.value().flag("allowVolumeExpansion")) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        Err(forbidden(request, claim, why))
    }
}
