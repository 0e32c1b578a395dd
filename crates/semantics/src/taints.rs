//! Node taints and pod tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration matches a taint. Without a key it matches every taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    fn text(value: &Option<String>) -> &str {
        value.as_deref().unwrap_or_default()
    }
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    let (wanted, value) = (text(&toleration.value), text(&taint.value));
    match text(&toleration.operator) {
        "" | "Equal" => wanted == value,
        "Exists" => true,
        operator @ ("Gt" | "Lt") => match (value.parse::<i64>(), wanted.parse::<i64>()) {
            (Ok(value), Ok(bound)) => (operator == "Gt" && value > bound) || (operator == "Lt" && value < bound),
            _ => false,
        },
        _ => false,
    }
}

/// Whether any of the tolerations matches a taint.
pub fn tolerated(taint: &Taint, tolerations: Option<&[Toleration]>) -> bool {
    tolerations.unwrap_or_default().iter().any(|toleration| tolerates(toleration, taint))
}

/// The first untolerated taint with effect `NoSchedule` or `NoExecute`.
pub fn untolerated<'a>(taints: Option<&'a Vec<Taint>>, tolerations: Option<&Vec<Toleration>>) -> Option<&'a Taint> {
    let hard = taints.into_iter().flatten().filter(|t| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.into_iter().find(|taint| !tolerations.into_iter().flatten().any(|t| tolerates(t, taint)))
}

/// Number of untolerated `PreferNoSchedule` taints.
pub fn count_intolerable_prefer_no_schedule(taints: Option<&Vec<Taint>>, tolerations: Option<&Vec<Toleration>>) -> i64 {
    let soft = taints.into_iter().flatten().filter(|t| t.effect == "PreferNoSchedule");
    let relevant = |t: &&Toleration| t.effect.as_deref().is_none_or(|e| e.is_empty() || e == "PreferNoSchedule");
    let tolerated = |taint: &Taint| tolerations.into_iter().flatten().filter(relevant).any(|t| tolerates(t, taint));
    soft.filter(|taint| !tolerated(taint)).count() as i64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn tolerations_tolerate() {
        let taint: Taint = read(json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}));
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists"}), true),
            (json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "gpu", "value": "yes"}), true),
            (json!({"key": "gpu", "value": "no"}), false),
            (json!({"key": "cpu", "operator": "Exists"}), false),
            (json!({"key": "gpu", "value": "yes", "effect": "NoSchedule", "operator": "Equal"}), true),
        ];
        for (toleration, tolerated) in cases {
            assert_eq!(tolerates(&read(toleration.clone()), &taint), tolerated, "{toleration}");
        }
    }
}
