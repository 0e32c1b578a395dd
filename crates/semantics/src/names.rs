//! Validation of names, label values and annotation keys. Each check returns errors worded as by kube-apiserver.

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Validation errors; empty if the value is valid.
pub type ValidationErrors = Vec<String>;

/// RFC 1123 label: names of namespaces, ports …
pub fn dns_label(name: &str) -> ValidationErrors {
    let mut wrong = too_long(name, 63);
    if name.contains('.') && name.split('.').all(is_dns_label) {
        wrong.push("must not contain dots".into());
    } else if !is_dns_label(name) {
        wrong.push(format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
             with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{DNS_LABEL}')"
        ));
    }
    wrong
}

/// RFC 1123 subdomain: names of most objects.
pub fn dns_subdomain(name: &str) -> ValidationErrors {
    let mut wrong = too_long(name, 253);
    if !name.split('.').all(is_dns_label) {
        wrong.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{DNS_LABEL}(\\.{DNS_LABEL})*')"
        ));
    }
    wrong
}

/// RFC 1035 label: names of services.
pub fn dns_1035_label(name: &str) -> ValidationErrors {
    let mut wrong = too_long(name, 63);
    if !is_dns_label(name) || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        wrong.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
             is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .into(),
        );
    }
    wrong
}

/// A valid path segment: names of RBAC objects.
pub fn path_segment(name: &str) -> ValidationErrors {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => {
            let found = ["/", "%"].into_iter().filter(|bad| name.contains(bad));
            found.map(|bad| format!("may not contain '{bad}'")).collect()
        }
    }
}

/// Keys of labels and annotations, names of finalizers: `name` or `example.com/name`.
pub fn qualified_name(key: &str) -> ValidationErrors {
    let parts: Vec<&str> = key.split('/').collect();
    let mut wrong = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".into());
            } else {
                wrong.extend(too_big(prefix, 253).into_iter().map(|why| format!("prefix part {why}")));
                let words = dns_subdomain(prefix).into_iter().filter(|why| !why.starts_with("must be"));
                wrong.extend(words.map(|why| format!("prefix part {why}")));
            }
            name
        }
        _ => {
            wrong.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                qualified_words()
            ));
            return wrong;
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else {
        wrong.extend(too_big(name, 63).into_iter().map(|why| format!("name part {why}")));
    }
    if !is_qualified(name) {
        wrong.push(format!("name part {}", qualified_words()));
    }
    wrong
}

/// Values of labels.
pub fn label_value(value: &str) -> ValidationErrors {
    let mut wrong = too_big(value, 63);
    if !value.is_empty() && !is_qualified(value) {
        wrong.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '({QUALIFIED})?')"
        ));
    }
    wrong
}

fn qualified_words() -> String {
    format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
         (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
    )
}

fn too_long(text: &str, most: usize) -> ValidationErrors {
    if text.len() > most { vec![format!("must be no more than {most} characters")] } else { Vec::new() }
}

/// The same in newer wording, which Kubernetes uses for labels.
fn too_big(text: &str, most: usize) -> ValidationErrors {
    if text.len() > most { vec![format!("must be no more than {most} bytes")] } else { Vec::new() }
}

fn is_dns_label(label: &str) -> bool {
    framed(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), b"-")
}

fn is_qualified(name: &str) -> bool {
    framed(name, |b| b.is_ascii_alphanumeric(), b"-_.")
}

/// Whether the first and last byte pass `outer` and all others pass `outer` or are in `inner`.
fn framed(text: &str, outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    outer(*first) && outer(*last) && bytes.iter().all(|b| outer(*b) || inner.contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        type Check = fn(&str) -> ValidationErrors;
        let cases: [(Check, &[&str], &[&str]); 5] = [
            (dns_label, &["a", "a-1", "1"], &["", "A", "a.b", "-a", "a-", "a_b"]),
            (dns_subdomain, &["a", "a.b-c", "1.2"], &["", "a..b", ".a", "A.b"]),
            (dns_1035_label, &["a", "a-1"], &["1a", "", "a.b"]),
            (qualified_name, &["a", "A_b.c", "x.io/Y"], &["", "/a", "a/", "a/b/c", "-a", "X.io/a"]),
            (label_value, &["", "a", "A-b_c.1"], &["-", "a b", "é"]),
        ];
        for (check, good, bad) in cases {
            assert_eq!(good.iter().filter(|name| !check(name).is_empty()).collect::<Vec<_>>(), Vec::<&&str>::new());
            assert_eq!(bad.iter().filter(|name| check(name).is_empty()).collect::<Vec<_>>(), Vec::<&&str>::new());
        }
    }

    #[test]
    fn a_wrong_name_is_explained_in_the_words_of_the_real_server() {
        assert_eq!(
            dns_subdomain("Bad"),
            [
                r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }
}
