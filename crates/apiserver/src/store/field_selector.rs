//! Field selectors.

use super::Object;
use crate::error::{Result, Status};

/// A field selector. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses `spec.nodeName=a,status.phase!=Running`.
    pub fn parse(text: &str) -> Result<Self> {
        let terms = split(text).into_iter().filter(|term| !term.is_empty());
        let terms = terms.map(|term| parse_term(text, term)).collect::<Result<_, String>>();
        terms.map(Self).map_err(Status::bad_request)
    }

    /// Selects objects whose field `path` equals `value`.
    pub fn equal(path: &str, value: &str) -> Self {
        Self(vec![Term { path: path.to_owned(), value: value.to_owned(), equal: true }])
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The paths of its terms.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| term.path.as_str())
    }

    /// Renames paths to those of the stored version.
    pub fn rename(&mut self, name: impl Fn(&str) -> Option<&'static str>) {
        for term in &mut self.0 {
            if let Some(path) = name(&term.path) {
                term.path = path.to_owned();
            }
        }
    }

    /// Whether it selects an object.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|term| {
            let value = match term.path.as_str() {
                "metadata.name" => object.name(),
                "metadata.namespace" => object.namespace(),
                path => object.fields.get(path).unwrap_or_default(),
            };
            (value == term.value) == term.equal
        })
    }

    /// The value that it requires of a field.
    pub fn required(&self, path: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.path == path).map(|term| term.value.as_str())
    }

    /// The first equality requirement on a field other than name and namespace.
    pub(super) fn any_required(&self) -> Option<(&str, &str)> {
        let term = self.0.iter().find(|term| term.equal && !term.path.starts_with("metadata."))?;
        Some((&term.path, &term.value))
    }
}

/// Splits at unescaped commas.
fn split(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn parse_term(whole: &str, term: &str) -> Result<Term, String> {
    let operator = term.char_indices().find_map(|(at, _)| {
        let rest = &term[at..];
        ["!=", "==", "="].into_iter().find(|operator| rest.starts_with(operator)).map(|operator| (at, operator))
    });
    let (at, operator) = operator.ok_or_else(|| format!("invalid selector: '{whole}'; can't understand '{term}'"))?;
    let value = unescape(&term[at + operator.len()..])?;
    Ok(Term { path: term[..at].to_owned(), value, equal: operator != "!=" })
}

fn unescape(text: &str) -> Result<String, String> {
    let (mut out, mut escaped) = (String::with_capacity(text.len()), false);
    for c in text.chars() {
        match c {
            '\\' | ',' | '=' if escaped => {
                out.push(c);
                escaped = false;
            }
            _ if escaped => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
            '\\' => escaped = true,
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", c as u32)),
            _ => out.push(c),
        }
    }
    if escaped { Err("invalid field selector: invalid escape sequence: \\".into()) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_select() {
        let object = Object::synthetic(&json!({"metadata": {"name": "a", "namespace": "s"}}));
        let cases = [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==b", false),
            ("metadata.name!=b,metadata.namespace=s", true),
            (r"metadata.name=a\,b", false),
            ("spec.absent=", true),
        ];
        for (text, selected) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), selected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_worded_like_the_real_ones() {
        let cases = [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ];
        for (text, message) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap_err().message, message);
        }
    }
}
