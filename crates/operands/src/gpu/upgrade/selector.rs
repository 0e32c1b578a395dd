//! Label selectors as text: `app=job,tier in (a, b),!old`.

use crate::gpu::nodes::Entries;

/// A label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Reads one; an empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, String> {
        split(text)
            .into_iter()
            .map(str::trim)
            .filter(|term| !term.is_empty())
            .map(Term::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: Entries<'_>) -> bool {
        self.0.iter().all(|term| {
            let value = labels.get(&term.key);
            match &term.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            }
        })
    }
}

/// The terms: what stands between commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    })
    .collect()
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        let (key, test) = if let Some(key) = text.strip_prefix('!') {
            (key, Test::Absent)
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, Test::NotIn(one(value)))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, Test::In(one(value)))
        } else if let Some((key, list)) = text.split_once(" notin ") {
            (key, Test::NotIn(many(list)?))
        } else if let Some((key, list)) = text.split_once(" in ") {
            (key, Test::In(many(list)?))
        } else {
            (text, Test::Exists)
        };
        let values = match &test {
            Test::In(values) | Test::NotIn(values) => values.as_slice(),
            Test::Exists | Test::Absent => &[],
        };
        let key = key.trim();
        let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if key.is_empty() || !legal(&key.replacen('/', "", 1)) || !values.iter().all(|value| legal(value)) {
            return Err(format!("{text:?} is no term of a label selector"));
        }
        Ok(Self { key: key.into(), test })
    }
}

fn one(value: &str) -> Vec<String> {
    vec![value.trim().into()]
}

fn many(list: &str) -> Result<Vec<String>, String> {
    let inner = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let inner = inner.ok_or_else(|| format!("{list:?} is no list of values in parentheses"))?;
    Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
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
