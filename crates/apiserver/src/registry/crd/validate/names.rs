//! Validation of `spec.names`.

use serde_json::Value;

use crate::error::Cause;
use crate::field::Path;
use capstan_semantics::names::dns_1035_label;

/// Validates names; absent ones are valid here.
pub(super) fn check(names: &Value, path: &Path, causes: &mut Vec<Cause>) {
    let text = |key: &str| names[key].as_str().unwrap_or_default();
    for key in ["plural", "singular"] {
        let (name, faults) = (text(key), dns_1035_label(text(key)));
        if !name.is_empty() && !faults.is_empty() {
            causes.push(Cause::invalid(&path.child(key), &name.into(), &faults.join(",")));
        }
    }
    for key in ["kind", "listKind"] {
        let (name, faults) = (text(key), dns_1035_label(&text(key).to_lowercase()));
        if !name.is_empty() && !faults.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            causes.push(Cause::invalid(&path.child(key), &name.into(), &detail));
        }
    }
    list(names, "shortNames", path, causes);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        causes.push(Cause::invalid(&path.child("listKind"), &names["listKind"], detail));
    }
    list(names, "categories", path, causes);
}

fn list(names: &Value, key: &str, path: &Path, causes: &mut Vec<Cause>) {
    for (index, name) in names[key].as_array().into_iter().flatten().enumerate() {
        let faults = dns_1035_label(name.as_str().unwrap_or_default());
        if !faults.is_empty() {
            causes.push(Cause::invalid(&path.child(key).index(index), name, &faults.join(",")));
        }
    }
}
