//! Resources of an init container that runs before several containers: the maximum of theirs.

use std::collections::BTreeMap;

use capstan_api::gpu::component::Resources;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

type Amounts = BTreeMap<String, Quantity>;

/// The maximum per resource over `all`; a limit is at least the request.
pub(super) fn largest<'a>(all: impl Iterator<Item = &'a Resources>) -> Option<ResourceRequirements> {
    let (mut limits, mut requests) = (Amounts::new(), Amounts::new());
    for one in all {
        one.limits.iter().flatten().for_each(|(name, amount)| raise(&mut limits, name, amount));
        one.requests.iter().flatten().for_each(|(name, amount)| raise(&mut requests, name, amount));
    }
    for (name, amount) in &requests {
        if limits.contains_key(name) {
            raise(&mut limits, name, amount);
        }
    }
    let some = |amounts: Amounts| (!amounts.is_empty()).then_some(amounts);
    let (limits, requests) = (some(limits), some(requests));
    (limits.is_some() || requests.is_some()).then(|| ResourceRequirements {
        limits,
        requests,
        ..ResourceRequirements::default()
    })
}

fn raise(amounts: &mut Amounts, name: &str, amount: &Quantity) {
    if amounts.get(name).is_none_or(|there| number(there) < number(amount)) {
        amounts.insert(name.into(), amount.clone());
    }
}

/// A quantity as a number; 0 if it is invalid, which the server reports.
fn number(quantity: &Quantity) -> f64 {
    const UNITS: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let text = quantity.0.trim();
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (digits, factor) = unit.unwrap_or((text, 1.0));
    digits.parse::<f64>().map_or(0.0, |digits| digits * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(limits: &[(&str, &str)], requests: &[(&str, &str)]) -> Resources {
        let amounts = |list: &[(&str, &str)]| {
            let amounts = list.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).into())));
            (!list.is_empty()).then(|| amounts.collect())
        };
        Resources { limits: amounts(limits), requests: amounts(requests) }
    }

    #[test]
    fn the_most_of_each_counts_and_a_limit_covers_the_request() {
        let one = asks(&[("memory", "512Mi"), ("cpu", "1")], &[("cpu", "500m")]);
        let other = asks(&[("memory", "1Gi")], &[("cpu", "2"), ("memory", "100M")]);
        let largest = largest([&one, &other].into_iter()).unwrap();
        let text = |amounts: &Option<Amounts>, name: &str| amounts.as_ref().unwrap()[name].0.clone();
        assert_eq!((text(&largest.limits, "memory"), text(&largest.limits, "cpu")), ("1Gi".into(), "2".into()));
        assert_eq!((text(&largest.requests, "memory"), text(&largest.requests, "cpu")), ("100M".into(), "2".into()));
    }

    #[test]
    fn nothing_asked_is_nothing_set() {
        assert!(largest([].into_iter()).is_none());
        assert!(largest([&Resources::default()].into_iter()).is_none());
    }
}
