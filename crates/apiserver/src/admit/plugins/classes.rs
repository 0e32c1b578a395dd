//! DefaultStorageClass and DefaultIngressClass.

use serde_json::Value;

use super::{Plugin, all, creates};
use crate::admit::json::{Fill, Read};
use crate::error::Result;
use crate::ops::Request;

const STORAGE: &str = "storageclass.kubernetes.io/is-default-class";
const STORAGE_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
const CLAIM_BETA: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS: &str = "ingressclass.kubernetes.io/is-default-class";
const INGRESS_OLD: &str = "kubernetes.io/ingress.class";

/// Sets the default StorageClass of claims without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "", "persistentvolumeclaims")
    }

    fn mutate(&self, request: &Request, claim: &mut Value) -> Result<()> {
        if claim["spec"].has("storageClassName") || claim["metadata"]["annotations"].has(CLAIM_BETA) {
            return Ok(());
        }
        let mut classes = all(request, "storage.k8s.io", "storageclasses");
        classes.retain(|class| is_default(class, STORAGE) || is_default(class, STORAGE_BETA));
        if let (Some(class), Some(spec)) = (newest(classes), claim.inner("spec")) {
            spec.put("storageClassName", class);
        }
        Ok(())
    }
}

/// Sets the default IngressClass of Ingresses without one.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn handles(&self, request: &Request) -> bool {
        creates(request, "networking.k8s.io", "ingresses")
    }

    fn mutate(&self, request: &Request, ingress: &mut Value) -> Result<()> {
        if ingress["spec"].has("ingressClassName") || ingress["metadata"]["annotations"].has(INGRESS_OLD) {
            return Ok(());
        }
        let mut classes = all(request, "networking.k8s.io", "ingressclasses");
        classes.retain(|class| is_default(class, INGRESS));
        if let (Some(class), Some(spec)) = (newest(classes), ingress.inner("spec")) {
            spec.put("ingressClassName", class);
        }
        Ok(())
    }
}

fn is_default(class: &Value, annotation: &str) -> bool {
    class["metadata"]["annotations"].text(annotation) == "true"
}

/// The newest class; of equally new ones, the first by name.
fn newest(mut classes: Vec<Value>) -> Option<String> {
    classes.sort_by(|a, b| {
        let key = |class: &Value| class["metadata"].text("creationTimestamp").to_owned();
        let name = |class: &Value| class["metadata"].text("name").to_owned();
        key(b).cmp(&key(a)).then_with(|| name(a).cmp(&name(b)))
    });
    classes.first().map(|class| class["metadata"].text("name").to_owned())
}
