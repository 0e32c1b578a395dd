//! Runtime cost of calls, in the same units as kube-apiserver, whose limits use them.

use super::value::{Key, Val};

/// Cost of traversing a string, per character.
const TRAVERSAL: f64 = 0.1;
/// Cost of a regular expression, per character of the pattern.
const REGEX: f64 = 0.25;

/// Cost of creating a list.
pub(super) const LIST: u64 = 10;
/// Cost of creating a struct.
pub(super) const STRUCT: u64 = 40;
/// Cost of creating a map.
pub(super) const MAP: u64 = 30;

/// The size for cost purposes: of strings, lists and maps; 1 for everything else.
pub(super) fn size(value: &Val<'_>) -> u64 {
    value.size().map_or(1, |size| size as u64)
}

fn part(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Cost of a call with these arguments, of which the first may be the target.
pub(super) fn call(function: &str, args: &[Val<'_>], result: Option<&Val<'_>>) -> u64 {
    let size_of = |at: usize| args.get(at).map_or(1, size);
    let regex = |text: u64, pattern: u64| part(text + 1, TRAVERSAL) * part(pattern, REGEX);
    match function {
        // High enough that the budget allows only two per expression.
        "check" if matches!(args.first(), Some(Val::Access(_))) => 350_000,
        "fieldSelector" | "labelSelector" => {
            LIST + part(size_of(1), TRAVERSAL) + part(size_of(1), 0.5) * (LIST + STRUCT)
        }
        "startsWith" | "endsWith" => part(size_of(1), TRAVERSAL),
        "bytes" | "format" | "strings.quote" => part(size_of(0), TRAVERSAL),
        "string" if matches!(args.first(), Some(Val::Bytes(_))) => part(size_of(0), TRAVERSAL),
        "@in" if matches!(args.get(1), Some(Val::List(_) | Val::Items(..))) => size_of(1),
        "_<_" | "_<=_" | "_>_" | "_>=_" if comparable_by_size(args) => part(size_of(0).min(size_of(1)), TRAVERSAL),
        "_==_" if matches!(args.first(), Some(Val::Foreign(_))) => 1,
        "_==_" | "_!=_" => part(size_of(0).min(size_of(1)), TRAVERSAL),
        "_+_" if comparable_by_size(args) => part(size_of(0) + size_of(1), TRAVERSAL),
        "matches" => regex(size_of(0), size_of(1)),
        "contains" => part(size_of(0), TRAVERSAL) * part(size_of(1), TRAVERSAL),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
            args.first().map_or(0, traversal)
        }
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => part(size_of(0), TRAVERSAL),
        "ip" if matches!(args.first(), Some(Val::Foreign(_))) => 1,
        "ip" => part(size_of(0), TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => part(size_of(0) * 2, TRAVERSAL),
        "join" => part(result.map_or(1, size) * 2, TRAVERSAL),
        "find" | "findAll" => regex(size_of(0), size_of(1)),
        "containsIP" | "containsCIDR" => contains_address(function, args),
        "validate" => regex(size_of(1), 30),
        "or" | "orValue" => 0,
        "sets.contains" | "sets.intersects" => size_of(0) * size_of(1) + 1,
        "sets.equivalent" => size_of(0) * size_of(1) * 2 + 1,
        "slice" | "reverse" | "lists.range" => LIST + 1 + result.map_or(0, size),
        "flatten" => {
            let depth = if let Some(Val::Int(depth)) = args.get(1) { depth.unsigned_abs() } else { 1 };
            LIST + 1 + depth.saturating_mul(size_of(0))
        }
        "sort" | "distinct" => args.first().map_or(1, self_compare),
        _ => 1,
    }
}

/// Cost of comparing all pairs of items in a list.
pub(super) fn self_compare(list: &Val<'_>) -> u64 {
    let items = list.items().unwrap_or_default();
    let text = matches!(items.first(), Some(Ok(Val::Text(_) | Val::Bytes(_))));
    let factor = if text { 2.0 + TRAVERSAL } else { 2.0 };
    ((items.len() * items.len()) as f64 * factor) as u64 + 1 + LIST
}

fn comparable_by_size(args: &[Val<'_>]) -> bool {
    matches!(args.first(), Some(Val::Text(_) | Val::Bytes(_)))
}

/// Addresses are compared up to the prefix length; strings are parsed first.
fn contains_address(function: &str, args: &[Val<'_>]) -> u64 {
    const ADDRESS: u64 = 4;
    let parse = match args.get(1) {
        Some(text @ Val::Text(_)) => part(size(text), TRAVERSAL),
        _ => 0,
    };
    let mask = if function == "containsCIDR" { part(ADDRESS, TRAVERSAL) + 1 } else { 0 };
    part(ADDRESS + ADDRESS, TRAVERSAL) + mask + parse
}

/// Cost of traversing a value.
fn traversal(value: &Val<'_>) -> u64 {
    match value {
        Val::Text(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Val::List(_) | Val::Items(..) => value.items().unwrap_or_default().iter().flatten().map(traversal).sum(),
        Val::Map(_) | Val::Object(..) => {
            let entry = |key: &Key| {
                let name = if let Key::Text(text) = key { (text.len() as f64 * TRAVERSAL) as u64 } else { 1 };
                name + value.get(key).and_then(Result::ok).map_or(0, |value| traversal(&value))
            };
            value.keys().unwrap_or_default().iter().map(entry).sum()
        }
        _ => 1,
    }
}
