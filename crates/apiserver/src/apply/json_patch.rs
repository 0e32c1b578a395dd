//! JSON patch (RFC 6902) as kube-apiserver's library implements it: `replace` may set an absent field, negative indexes
//! count from the end, and anything before the first slash of a path is ignored.

use serde_json::{Value, json};

use super::patch::json_type;
use crate::error::{Result, Status};

/// Maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;

/// `document` with all operations of `patch` applied.
pub(crate) fn apply(document: &Value, patch: &Value) -> Result<Value> {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        let message = format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}");
        return Err(Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {message}")));
    }
    operations.iter().try_for_each(check)?;
    let mut document = document.clone();
    for operation in operations {
        run(&mut document, operation).ok_or_else(unprocessable)?;
    }
    Ok(document)
}

/// Checks the member types of an operation.
fn check(operation: &Value) -> Result<()> {
    let fault = |value: &Value, place: &str| {
        let found = json_type(value);
        Err(Status::bad_request(format!("error decoding patch: json: cannot unmarshal {found} into Go {place}")))
    };
    if !operation.is_object() && !operation.is_null() {
        return fault(operation, "value of type handlers.jsonPatchOp");
    }
    for key in ["op", "path", "from"] {
        let value = operation.get(key).unwrap_or(&Value::Null);
        if !value.is_string() && !value.is_null() {
            return fault(value, &format!("struct field jsonPatchOp.{key} of type string"));
        }
    }
    Ok(())
}

/// Unknown members of operations.
pub(crate) fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    let fields = operations.flat_map(|(index, operation)| {
        let names = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        names.map(move |name| (index, name)).collect::<Vec<_>>()
    });
    fields
        .filter(|(_, name)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|(index, name)| format!("json patch unknown field \"[{index}].{name}\""))
        .collect()
}

/// kube-apiserver does not report which operation failed, nor why.
pub(crate) fn unprocessable() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::new(422, "Invalid", message).with_details(json!({}))
}

fn run(document: &mut Value, operation: &Value) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let value = operation.get("value").unwrap_or(&Value::Null);
    let path = text("path")?;
    match text("op")? {
        "add" => {
            let (parent, key) = find(document, path)?;
            add(parent, &key, value.clone())
        }
        "remove" => {
            let (parent, key) = find(document, path)?;
            remove(parent, &key).map(drop)
        }
        "replace" => replace(document, path, value),
        "move" => {
            let (parent, key) = find(document, text("from")?)?;
            let value = remove(parent, &key)?;
            let (parent, key) = find(document, path)?;
            add(parent, &key, value)
        }
        "copy" => {
            let (parent, key) = find(document, text("from")?)?;
            let value = get(parent, &key)?.clone();
            let (parent, key) = find(document, path)?;
            add(parent, &key, value)
        }
        "test" if path.is_empty() => (document == value).then_some(()),
        "test" => {
            let (parent, key) = find(document, path)?;
            (get(parent, &key)? == value).then_some(())
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: &Value) -> Option<()> {
    if path.is_empty() {
        *document = Some(value).filter(|value| value.is_object() || value.is_array())?.clone();
        return Some(());
    }
    let (parent, key) = find(document, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value.clone());
        }
        Value::Array(items) => {
            let index = position(&key, items.len())?;
            items[index] = value.clone();
        }
        _ => return None,
    }
    Some(())
}

/// The container of the value at `path`, and its key there.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let decode = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let mut at = document;
    for part in parents.split('/').skip(1) {
        let part = decode(part);
        at = match at {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let index = position(&part, items.len())?;
                &mut items[index]
            }
            _ => return None,
        };
    }
    matches!(at, Value::Object(_) | Value::Array(_)).then(|| (at, decode(last)))
}

/// An absent field reads as null; an absent item is an error.
fn get<'a>(parent: &'a Value, key: &str) -> Option<&'a Value> {
    match parent {
        Value::Array(items) => items.get(position(key, items.len())?),
        other => Some(other.get(key).unwrap_or(&Value::Null)),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Option<()> {
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        // An item may also be appended, at index `len`.
        Value::Array(items) => items.insert(position(key, items.len() + 1)?, value),
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(parent: &mut Value, key: &str) -> Option<Value> {
    match parent {
        Value::Array(items) => Some(items.remove(position(key, items.len())?)),
        Value::Object(fields) => fields.remove(key),
        _ => None,
    }
}

/// Resolves an index among `length` items.
fn position(key: &str, length: usize) -> Option<usize> {
    let number: i64 = key.parse().ok()?;
    let index = if number < 0 { number.checked_add_unsigned(length as u64)? } else { number };
    usize::try_from(index).ok().filter(|index| *index < length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_do_what_they_say() {
        let document = json!({"a": {"b": [1, 2, 3]}, "c~/d": "x", "n": null});
        let cases = [
            (json!([]), json!({"a": {"b": [1, 2, 3]}, "c~/d": "x", "n": null})),
            (
                json!([{"op": "add", "path": "/e", "value": {}}]),
                json!({"a": {"b": [1, 2, 3]}, "c~/d": "x", "n": null, "e": {}}),
            ),
            (
                json!([{"op": "add", "path": "/a/b/-", "value": 4}, {"op": "add", "path": "/a/b/0", "value": 0}]),
                json!({"a": {"b": [0, 1, 2, 3, 4]}, "c~/d": "x", "n": null}),
            ),
            (
                json!([{"op": "add", "path": "/a/b/-1", "value": 4}]),
                json!({"a": {"b": [1, 2, 3, 4]}, "c~/d": "x", "n": null}),
            ),
            (
                json!([{"op": "remove", "path": "/c~0~1d"}, {"op": "remove", "path": "/a/b/-1"}]),
                json!({"a": {"b": [1, 2]}, "n": null}),
            ),
            (json!([{"op": "replace", "path": "/a", "value": 1}]), json!({"a": 1, "c~/d": "x", "n": null})),
            (
                json!([{"op": "replace", "path": "/new", "value": 1}]),
                json!({"a": {"b": [1, 2, 3]}, "c~/d": "x", "n": null, "new": 1}),
            ),
            (json!([{"op": "replace", "path": "", "value": {}}]), json!({})),
            (
                json!([{"op": "move", "from": "/a/b/0", "path": "/a/b/2"}]),
                json!({"a": {"b": [2, 3, 1]}, "c~/d": "x", "n": null}),
            ),
            (
                json!([{"op": "copy", "from": "/a/b", "path": "/n"}]),
                json!({"a": {"b": [1, 2, 3]}, "c~/d": "x", "n": [1, 2, 3]}),
            ),
            (
                json!([{"op": "test", "path": "/a/b/0", "value": 1}, {"op": "test", "path": "/n"}, {"op": "test", "path": "/absent", "value": null}]),
                document.clone(),
            ),
        ];
        for (patch, wanted) in cases {
            assert_eq!(apply(&document, &patch), Ok(wanted), "{patch}");
        }
    }

    #[test]
    fn operations_that_do_not_fit_are_refused_without_a_reason() {
        let document = json!({"a": {"b": [1]}, "s": "x"});
        let cases = [
            json!([{"op": "remove", "path": "/nope"}]),
            json!([{"op": "add", "path": "/nope/x", "value": 1}]),
            json!([{"op": "add", "path": "/a/b/3", "value": 1}]),
            json!([{"op": "add", "path": "/a/b/x", "value": 1}]),
            json!([{"op": "add", "path": "", "value": 1}]),
            json!([{"op": "add", "path": "/s/x", "value": 1}]),
            json!([{"op": "replace", "path": "/a/b/1", "value": 1}]),
            json!([{"op": "test", "path": "/s", "value": "y"}]),
            json!([{"op": "test", "path": "/s"}]),
            json!([{"op": "move", "from": "/nope", "path": "/x"}]),
            json!([{"op": "move", "path": "/x"}]),
            json!([{"op": "frobnicate", "path": "/x"}]),
            json!([{"path": "/x"}]),
            json!([{"op": "add", "value": 1}]),
        ];
        for patch in cases {
            assert_eq!(apply(&document, &patch), Err(unprocessable()), "{patch}");
        }
    }

    #[test]
    fn a_patch_has_its_limits() {
        let operation = json!({"op": "test", "path": "/absent"});
        let fault = apply(&json!({}), &Value::Array(vec![operation; 10_001])).expect_err("too many");
        assert_eq!((fault.code, fault.reason), (413, "RequestEntityTooLarge"));
    }
}
