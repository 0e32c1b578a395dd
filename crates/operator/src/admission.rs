//! The admission webhook: the same checks as in the plan, before an object is stored.

use capstan_api::nim::NimService;
use capstan_operands::inference::nim_service;
use capstan_runtime::webhook::{Operation, Review, Routes, Verdict};

/// Paths as the configurations of the NIM Operator have them.
pub(crate) fn routes() -> Routes {
    Routes::default().with("/validate-apps-nvidia-com-v1alpha1-nimservice", nim_service_review)
}

fn nim_service_review(review: &Review) -> Verdict {
    let unchanged = review.operation == Operation::Update && review.object["spec"] == review.old_object["spec"];
    let going = !review.object["metadata"]["deletionTimestamp"].is_null();
    // A finalizer must be removable from what would not be accepted today.
    if review.operation == Operation::Delete || unchanged || going {
        return Verdict::default();
    }
    match serde_json::from_value::<NimService>(review.object.clone()) {
        Ok(service) => {
            let (errors, warnings) = nim_service::check(&service);
            Verdict { errors, warnings }
        }
        Err(error) => Verdict { errors: vec![error.to_string()], warnings: Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review(operation: &str, spec: Value, old: Value) -> Verdict {
        let object = |spec| {
            json!({
                "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMService",
                "metadata": {"name": "llama", "namespace": "nim"}, "spec": spec,
            })
        };
        let review = json!({
            "uid": "1", "operation": operation, "name": "llama", "namespace": "nim",
            "object": object(spec), "oldObject": object(old),
        });
        let review: Review = serde_json::from_value(review).unwrap();
        nim_service_review(&review)
    }

    fn image() -> Value {
        json!({"repository": "r", "tag": "t"})
    }

    #[test]
    fn a_mistake_is_refused_with_its_fix() {
        let verdict = review("CREATE", json!({"image": image()}), Value::Null);
        assert_eq!(
            verdict.errors,
            ["spec.storage names no place for the model: set nimCache, pvc, emptyDir or hostPath"]
        );
    }

    #[test]
    fn what_is_not_supported_yet_is_a_warning() {
        let spec = json!({"image": image(), "storage": {"nimCache": {"name": "c"}}, "authSecret": "s"});
        let verdict = review("CREATE", spec, Value::Null);
        assert!(verdict.errors.is_empty());
        assert!(verdict.warnings[0].starts_with("spec.storage.nimCache is not supported yet"));
    }

    #[test]
    fn an_unchanged_spec_passes_whatever_it_says() {
        let verdict = review("UPDATE", json!({"image": image()}), json!({"image": image()}));
        assert!(verdict.errors.is_empty());
    }
}
