//! Label selectors of pods, as text: `app=job,tier in (a, b),!old`.

use capstan_semantics::LabelSelector;

use crate::gpu::nodes::Entries;

/// A label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(LabelSelector);

impl Selector {
    /// Parses a selector; an empty one selects everything.
    pub fn parse(text: &str) -> Result<Self, String> {
        let selector = LabelSelector::parse(text);
        selector.map(Self).map_err(|_| format!("{text:?} is no term of a label selector"))
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Entries<'_>) -> bool {
        self.0.matches(|key| labels.get(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_kubernetes_reads_them() {
        let labels = [("app", "job"), ("tier", "a")].map(|(key, value)| (key.into(), value.into())).into();
        let labels = Entries::Map(&labels);
        let cases = [
            ("", true),
            ("app=job", true),
            ("app==job,tier!=b", true),
            ("app in (web, job)", true),
            ("app notin (web,job)", false),
            ("!gone,app", true),
            ("example.com/x!=true", true),
            ("tier", true),
            ("!tier", false),
            ("app=", false),
        ];
        for (text, expected) in cases {
            assert_eq!(Selector::parse(text).unwrap().matches(labels), expected, "{text}");
        }
        for bad in ["app in job", "a b", "=x", "a=(b)"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
