//! Conditions and messages that every status shares.

use capstan_api::ignored;
use capstan_plan::Facts;
use capstan_plan::conditions::{self, Wanted};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

/// Sets or clears the conditions IgnoredFields and SchemaSkew.
pub(crate) fn set_common<S: Serialize>(
    list: &mut Vec<Condition>,
    kind: &str,
    spec: &S,
    facts: &Facts,
    generation: Option<i64>,
) {
    let ignored = ignored_fields(kind, spec);
    for (type_, message) in [("IgnoredFields", ignored), ("SchemaSkew", facts.skew.clone())] {
        match message {
            Some(message) => {
                let wanted = Wanted { type_, status: true, reason: type_, message: &message };
                conditions::set(list, wanted, generation, facts.now);
            }
            None => conditions::clear(list, type_),
        }
    }
}

/// The fields that are set and have no effect.
fn ignored_fields<S: Serialize>(kind: &str, spec: &S) -> Option<String> {
    let object = serde_json::json!({"spec": spec});
    let fields: Vec<_> = ignored::used(kind, &object).collect();
    (!fields.is_empty()).then(|| format!("these fields are set but have no effect: {}", fields.join(", ")))
}

/// `3 of 5 nodes`; above `many` in steps of ten per cent, so that the status is not written for each node.
pub(crate) fn progress(done: i64, all: i64, many: i64) -> String {
    if all <= many || done == all {
        return format!("{done} of {all} nodes");
    }
    format!("{} % of {all} nodes", done * 10 / all * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_are_counted_in_steps() {
        assert_eq!(progress(3, 5, 20), "3 of 5 nodes");
        assert_eq!(progress(1234, 5000, 20), "20 % of 5000 nodes");
        assert_eq!(progress(4999, 5000, 20), "90 % of 5000 nodes");
        assert_eq!(progress(5000, 5000, 20), "5000 of 5000 nodes");
    }
}
