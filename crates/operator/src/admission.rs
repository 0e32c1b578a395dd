//! The admission webhook: the same checks as in the plan, before an object is stored.

use capstan_api::nim::NimService;
use capstan_operands::inference::nim_service as plans;
use capstan_plan::Facts;
use capstan_runtime::Runtime;
use capstan_runtime::webhook::{Operation, Review, Routes, Verdict};
use serde_json::Value;

use crate::{Options, nim_service};

/// Paths as the configurations of the NIM Operator have them.
pub(crate) fn routes(runtime: &Runtime, options: &Options) -> Routes {
    let (runtime, kserve) = (runtime.clone(), options.kserve_namespace.clone());
    Routes::default().with("/validate-apps-nvidia-com-v1alpha1-nimservice", move |review| {
        nim_service_review(review, |service| nim_service::facts(&runtime, kserve.as_deref(), service))
    })
}

fn nim_service_review(review: &Review, facts: impl Fn(&NimService) -> Facts) -> Verdict {
    let unchanged = review.operation == Operation::Update && review.object["spec"] == review.old_object["spec"];
    let going = !review.object["metadata"]["deletionTimestamp"].is_null();
    // A finalizer must be removable from what would not be accepted today.
    if review.operation == Operation::Delete || unchanged || going {
        return Verdict::default();
    }
    let read = |object: &Value| serde_json::from_value::<NimService>(object.clone());
    match read(&review.object) {
        Ok(service) => {
            // What was stored before and cannot be read is no reason to refuse its successor.
            let old = read(&review.old_object).ok().filter(|_| review.operation == Operation::Update);
            let plans::Verdict { errors, warnings } = plans::check(&service, old.as_ref(), &facts(&service));
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
        let now = jiff::Timestamp::UNIX_EPOCH;
        let server = capstan_plan::ServerVersion::parse("v1.37.0");
        nim_service_review(&review, |_| Facts { server, ..Facts::at(now) })
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
    fn what_may_not_change_is_refused_on_update_only() {
        let storage = |size: &str| json!({"image": image(), "storage": {"pvc": {"create": true, "size": size}}, "authSecret": "s"});
        let verdict = review("UPDATE", storage("20Gi"), storage("10Gi"));
        assert_eq!(
            verdict.errors,
            ["spec.storage.pvc cannot change once it was created for the service: create a new NIMService instead"]
        );
        assert_eq!(review("CREATE", storage("20Gi"), storage("10Gi")), Verdict::default());
    }

    #[test]
    fn an_unchanged_spec_passes_whatever_it_says() {
        let verdict = review("UPDATE", json!({"image": image()}), json!({"image": image()}));
        assert!(verdict.errors.is_empty());
    }
}
