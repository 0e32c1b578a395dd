//! Escaping of field names in CEL: reserved words and characters that identifiers cannot have.

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: &[(&str, &str)] = &[("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Whether CEL reserves a word.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Escapes a field name; `None` if it cannot be escaped.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || "_.-/".contains(c));
    let good = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c));
    if !starts || !good {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    'next: while let Some(c) = rest.chars().next() {
        for (plain, escaped) in ESCAPES {
            if let Some(after) = rest.strip_prefix(plain) {
                out.push_str(escaped);
                rest = after;
                continue 'next;
            }
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// Unescapes an identifier; `None` if it is no field name.
pub(super) fn unescape(name: &str) -> Option<String> {
    if let Some(word) = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"))
        && RESERVED.contains(&word)
    {
        return Some(word.to_owned());
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    'next: while let Some(c) = rest.chars().next() {
        if rest.starts_with("__") {
            for (plain, escaped) in ESCAPES {
                if let Some(after) = rest.strip_prefix(escaped) {
                    out.push_str(plain);
                    rest = after;
                    continue 'next;
                }
            }
            return None;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for (name, escaped) in [
            ("replicas", "replicas"),
            ("namespace", "__namespace__"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("_x", "_x"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
        assert_eq!(escape("a b"), None);
        assert_eq!(escape("1a"), None);
    }
}
