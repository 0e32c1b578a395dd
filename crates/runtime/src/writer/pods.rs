//! Evictions and deletions of pods, and creation of requests to other operators.

use capstan_plan::Ref;
use http::Request;
use kube::api::{DeleteParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{FIELD_MANAGER, Writer, request};
use crate::error::{Class, Error};
use crate::kinds::Kind;

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The pod is terminating or gone.
    Yes,
    /// The server rejects the eviction, for this reason (usually a PodDisruptionBudget).
    Refused(String),
}

impl Writer {
    /// Evicts a pod, with its uid as precondition: a recreated pod of the same name is not affected.
    pub async fn evict(&self, pod: &Ref, uid: &str) -> Result<Evicted, Error> {
        let kind = self.cache.kind(&pod.gvk)?;
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let path = format!("{}/{}/eviction?fieldManager={FIELD_MANAGER}", kind.path(&pod.namespace), pod.name);
        let request = Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(kube::core::request::Error::BuildRequest);
        match self.write("evict", kind, pod, request).await {
            Ok(_) => Ok(Evicted::Yes),
            Err(error) => match error.class() {
                Class::NotFound | Class::Conflict => Ok(Evicted::Yes),
                _ => error.status().map(|status| Evicted::Refused(refusal(status))).ok_or(error),
            },
        }
    }

    /// Deletes an object of the row `kind`, with its uid as precondition.
    pub async fn remove(&self, kind: &'static Kind, reference: &Ref, uid: &str) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        let params = DeleteParams::background().preconditions(preconditions);
        let request = kube::core::Request::new(kind.path(&reference.namespace)).delete(&reference.name, &params);
        let identity = json!({"metadata": {"namespace": reference.namespace, "name": reference.name, "uid": uid}});
        match self.write("delete", kind, reference, request).await {
            // With a grace period or finalizers the response is the terminating object.
            Ok(response) if request::is_object(&response) => self.cache.record_write(kind, response),
            Ok(_) => self.cache.record_deletion(kind, &identity),
            Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict) => {
                self.cache.record_deletion(kind, &identity);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Creates an object; fails if it exists.
    pub async fn create(&self, reference: &Ref, body: &Value) -> Result<(), Error> {
        let kind = self.cache.kind(&reference.gvk)?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let path = kube::core::Request::new(kind.path(&reference.namespace));
        let request = path.create(&params, body.to_string().into_bytes());
        let response = self.write("create", kind, reference, request).await?;
        self.cache.record_write(kind, response);
        Ok(())
    }
}

/// The rejection, with the PodDisruptionBudget if the server names it.
fn refusal(status: &kube::core::Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budget = causes.into_iter().find(|cause| cause.reason == "DisruptionBudget");
    budget.map_or_else(|| status.message.clone(), |cause| cause.message.clone())
}
