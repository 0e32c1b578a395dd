//! Admission webhooks of NIM kinds.

use capstan_api::nim::{NimBuildSpec, NimCacheSpec, NimPipelineSpec, NimService, NimServiceSpec};
use capstan_operands::nim::{nim_build, nim_cache, nim_pipeline, nim_service};
use capstan_plan::{Facts, Gvk, Live};
use capstan_runtime::Runtime;
use capstan_runtime::webhook::{Operation, Review, Verdict};
use serde_json::Value;

use super::service;
use crate::Options;
use crate::admission::{Failure, Webhook, check, passes};

/// The webhooks.
pub(super) static WEBHOOKS: &[Webhook] = &[
    Webhook::of::<NimServiceSpec>(|runtime, options, review| {
        let kserve = options.kserve_namespace.as_deref();
        nim_service_review(review, |object| service::facts(runtime, kserve, object))
    }),
    Webhook::of::<NimCacheSpec>(review_cache),
    Webhook::of::<NimPipelineSpec>(|runtime, _, review| {
        let facts = runtime.cache.view().facts(runtime.clock.now());
        check(review, |pipeline| nim_pipeline::check(pipeline, &facts))
    }),
    Webhook::of::<NimBuildSpec>(|_, _, review| check(review, nim_build::check)),
    Webhook {
        suffix: "-deletion",
        operations: &[Operation::Delete],
        failure: Failure::Ignore,
        timeout_seconds: 2,
        comment: "Warns whoever deletes a cache that services use. It never holds a deletion up.",
        ..Webhook::of::<NimCacheSpec>(review_cache)
    },
];

fn review_cache(runtime: &Runtime, _: &Options, review: &Review) -> Verdict {
    nim_cache_review(review, |namespace| runtime.cache.in_namespace(&Gvk::of::<NimService>(), namespace))
}

fn nim_cache_review(review: &Review, services: impl Fn(&str) -> Vec<Live>) -> Verdict {
    if review.operation == Operation::Delete {
        let warnings = in_use(&review.old_object, &services).into_iter().collect();
        return Verdict { errors: Vec::new(), warnings };
    }
    if review.operation == Operation::Update && !passes(review) {
        let name = review.object["metadata"]["name"].as_str().unwrap_or_default();
        let message = format!("spec cannot change after creation: delete NIMCache {name} and create it anew");
        return Verdict { errors: vec![message], warnings: Vec::new() };
    }
    check(review, nim_cache::check)
}

/// The warning on deleting a cache that services use.
fn in_use(cache: &Value, services: &impl Fn(&str) -> Vec<Live>) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&cache["metadata"]["namespace"]), text(&cache["metadata"]["name"]));
    let all = services(&namespace);
    let users = all.iter().filter(|one| one["spec"]["storage"]["nimCache"]["name"] == name.as_str());
    let users: Vec<String> = users.map(|one| text(&one["metadata"]["name"])).collect();
    (!users.is_empty()).then(|| {
        format!("NIMCache {name} is used by NIMService {}: they fail, and their new pods wait", users.join(", "))
    })
}

fn nim_service_review(review: &Review, facts: impl Fn(&NimService) -> Facts) -> Verdict {
    if passes(review) {
        return Verdict::default();
    }
    let read = |object: &Value| serde_json::from_value::<NimService>(object.clone());
    match read(&review.object) {
        Ok(service) => {
            // An undecodable old object is no reason to reject the new one.
            let old = read(&review.old_object).ok().filter(|_| review.operation == Operation::Update);
            let nim_service::Verdict { errors, warnings } =
                nim_service::check(&service, old.as_ref(), &facts(&service));
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
    fn a_field_that_cannot_be_read_is_named() {
        let mut image = image();
        image["pullSecrets"] = json!(["a", 7]);
        let verdict = review("CREATE", json!({"image": image}), Value::Null);
        assert_eq!(verdict.errors, ["spec.image.pullSecrets[1]: invalid type: integer `7`, expected a string"]);
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

    #[test]
    fn a_deletion_and_what_is_being_deleted_pass_whatever_they_say() {
        let mut going: Review = serde_json::from_value(json!({
            "uid": "1", "operation": "UPDATE", "name": "llama", "namespace": "nim",
            "object": {"metadata": {"name": "llama", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"image": image()}},
            "oldObject": {"metadata": {"name": "llama"}, "spec": {"image": image(), "storage": {"emptyDir": {}}}},
        }))
        .unwrap();
        let nothing = |_: &NimService| -> Facts { panic!("nobody is asked") };
        assert_eq!(nim_service_review(&going, nothing), Verdict::default());
        going.operation = Operation::Delete;
        going.object = Value::Null;
        assert_eq!(nim_service_review(&going, nothing), Verdict::default());
        assert_eq!(nim_cache_review(&going, |_| Vec::new()), Verdict::default());
    }

    #[test]
    fn selectors_without_a_value_or_with_an_unknown_operator_are_refused() {
        let with = |selectors: Value| {
            let mut device = json!({"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"});
            device.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
            let resources = json!([{"claimCreationSpec": {"devices": [device]}}]);
            let spec =
                json!({"image": image(), "storage": {"emptyDir": {}}, "authSecret": "s", "draResources": resources});
            review("CREATE", spec, Value::Null).errors
        };
        let value = json!({"intValue": 1});
        for (selectors, expected) in [
            (
                json!({"attributeSelectors": [{"key": "a", "op": "Between", "value": value}]}),
                "unknown variant `Between`",
            ),
            (json!({"attributeSelectors": [{"key": "a", "op": "", "value": value}]}), "unknown variant ``"),
            (json!({"attributeSelectors": [{"key": "a", "op": "Equal"}]}), "exactly one of boolValue"),
            (json!({"capacitySelectors": [{"key": "m", "op": "Most", "value": "1Gi"}]}), "unknown variant `Most`"),
            (json!({"capacitySelectors": [{"key": "m", "op": "Equal"}]}), "missing field `value`"),
        ] {
            let errors = with(selectors);
            assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:?}");
        }
    }

    #[test]
    fn a_cache_cannot_change_but_for_its_labels() {
        let spec = |size: &str| {
            json!({
                "source": {"ngc": {"authSecret": "s", "modelPuller": "p"}},
                "storage": {"pvc": {"create": true, "size": size}},
            })
        };
        let asked = |operation: &str, size: &str| {
            let object = |spec| json!({"metadata": {"name": "models", "namespace": "nim"}, "spec": spec});
            let review = json!({
                "uid": "1", "operation": operation, "name": "models", "namespace": "nim",
                "object": object(spec(size)), "oldObject": object(spec("10Gi")),
            });
            nim_cache_review(&serde_json::from_value(review).unwrap(), |_| Vec::new()).errors
        };
        let refused = "spec cannot change after creation: delete NIMCache models and create it anew";
        assert_eq!(asked("UPDATE", "20Gi"), [refused]);
        assert_eq!(asked("UPDATE", "10Gi"), [""; 0]);
        assert_eq!(asked("CREATE", "20Gi"), [""; 0]);
    }

    #[test]
    fn whoever_deletes_a_cache_in_use_is_warned_and_not_held_up() {
        let user = |name: &str, cache: &str| {
            std::sync::Arc::new(json!({"metadata": {"name": name}, "spec": {"storage": {"nimCache": {"name": cache}}}}))
        };
        let review: Review = serde_json::from_value(json!({
            "uid": "1", "operation": "DELETE", "name": "models", "namespace": "nim", "object": null,
            "oldObject": {"metadata": {"name": "models", "namespace": "nim"}, "spec": {}},
        }))
        .unwrap();
        let verdict = nim_cache_review(&review, |_| vec![user("a", "models"), user("b", "models"), user("c", "other")]);
        assert!(verdict.errors.is_empty());
        assert_eq!(
            verdict.warnings,
            ["NIMCache models is used by NIMService a, b: they fail, and their new pods wait"]
        );
        assert_eq!(nim_cache_review(&review, |_| Vec::new()), Verdict::default());
    }
}
