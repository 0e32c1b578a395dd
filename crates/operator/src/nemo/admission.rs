//! Reviews of NeMo kinds: what the CRDs cannot say.

use capstan_api::nemo::{
    NemoCustomizerSpec, NemoDatastoreSpec, NemoEntitystoreSpec, NemoEvaluatorSpec, NemoGuardrailSpec, NemoStatus,
};
use capstan_api::{Kind, Resource};
use capstan_operands::nemo::{self, Service};
use capstan_runtime::webhook::{Review, Verdict};

use crate::admission::{Webhook, passes};

/// The webhooks.
pub(super) static WEBHOOKS: &[Webhook] = &[
    Webhook::of::<NemoCustomizerSpec>(|_, _, request| review::<NemoCustomizerSpec>(request)),
    Webhook::of::<NemoDatastoreSpec>(|_, _, request| review::<NemoDatastoreSpec>(request)),
    Webhook::of::<NemoEntitystoreSpec>(|_, _, request| review::<NemoEntitystoreSpec>(request)),
    Webhook::of::<NemoEvaluatorSpec>(|_, _, request| review::<NemoEvaluatorSpec>(request)),
    Webhook::of::<NemoGuardrailSpec>(|_, _, request| review::<NemoGuardrailSpec>(request)),
];

fn review<S>(review: &Review) -> Verdict
where
    S: Kind<Status = NemoStatus> + Service,
{
    if passes(review) {
        return Verdict::default();
    }
    match serde_json::from_value::<Resource<S>>(review.object.clone()) {
        Ok(object) => {
            let nemo::Verdict { errors, warnings } = nemo::check(&object);
            Verdict { errors, warnings }
        }
        Err(error) => Verdict { errors: vec![error.to_string()], warnings: Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(operation: &str, spec: Value, old: Value) -> Verdict {
        let object = |spec: Value| {
            json!({
                "apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NemoGuardrail",
                "metadata": {"name": "rails", "namespace": "nemo"}, "spec": spec,
            })
        };
        let request = json!({
            "uid": "1", "operation": operation, "name": "rails", "namespace": "nemo",
            "object": object(spec), "oldObject": object(old),
        });
        review::<NemoGuardrailSpec>(&serde_json::from_value(request).unwrap())
    }

    #[test]
    fn a_mistake_is_refused_with_its_fix() {
        let image = json!({"repository": "r", "tag": "t"});
        let bad = json!({"image": image, "scale": {"enabled": true}});
        let fix = "spec.scale.hpa.maxReplicas is not set, but autoscaling is enabled: set the most replicas to run";
        assert_eq!(asked("CREATE", bad.clone(), Value::Null).errors, [fix]);
        assert_eq!(
            asked("UPDATE", bad.clone(), bad),
            Verdict::default(),
            "what is stored passes while it is unchanged"
        );
    }

    #[test]
    fn a_field_that_cannot_be_read_is_named() {
        let errors = asked("CREATE", json!({"image": {"repository": "r", "tag": 7}}), Value::Null).errors;
        assert!(errors[0].starts_with("spec") && errors[0].contains("invalid type: integer `7`"), "{errors:?}");
    }

    #[test]
    fn what_is_deprecated_is_a_warning() {
        let spec = json!({
            "image": {"repository": "r", "tag": "t"}, "podAffinity": {},
            "configStore": {"pvc": {"create": true, "size": "1Gi"}}, "replicas": 2,
        });
        let verdict = asked("CREATE", spec, Value::Null);
        assert!(verdict.errors.is_empty(), "{verdict:?}");
        assert_eq!(verdict.warnings.len(), 2, "{verdict:?}");
    }
}
