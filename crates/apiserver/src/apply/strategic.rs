//! Strategic merge patch: a merge patch with merge keys for lists, and directives.
//!
//! `$patch: replace` and `$patch: delete` in maps and list items, `$retainKeys`, `$setElementOrder/<field>` and
//! `$deleteFromPrimitiveList/<field>`. Schemas declare merge strategies and merge keys.

use serde_json::{Map, Value};

use super::gofmt;
use super::json_patch::unprocessable;
use super::patch::without_nulls;
use super::strategic_list::{self as list, Order};
use crate::error::{Result, Status};
use crate::schema::Schema;

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

pub(super) type Fields = Map<String, Value>;

/// Error of a patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Malformed directive: 400.
    Form(&'static str),
    /// Content that cannot be merged: 422, without a message.
    Content,
    /// Anything else: 500.
    Other(String),
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Form(message) => Self::bad_request(message),
            Fault::Content => unprocessable(),
            Fault::Other(message) => Self::new(500, "", message),
        }
    }
}

pub(super) type Merged<T> = std::result::Result<T, Fault>;

/// `live` with `patch` applied.
pub(crate) fn apply(live: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let fields = |value: &Value| value.as_object().cloned().ok_or(Fault::Form("invalid JSON document"));
    Ok(Value::Object(merge_map(fields(live)?, fields(patch)?, Some(schema))?))
}

/// A field of a struct or map.
struct Field<'s> {
    schema: Option<&'s Schema>,
}

impl<'s> Field<'s> {
    fn of(parent: Option<&'s Schema>, name: &str) -> Self {
        Self { schema: parent.and_then(|schema| schema.child(name)) }
    }

    fn merges(&self) -> bool {
        self.schema.is_some_and(|schema| schema.patch.merge)
    }

    fn replaces(&self) -> bool {
        self.schema.is_some_and(|schema| schema.patch.replace)
    }

    fn merge_key(&self) -> &'s str {
        self.schema.and_then(|schema| schema.patch.merge_key.as_deref()).unwrap_or_default()
    }

    fn items(&self) -> Option<&'s Schema> {
        self.schema.and_then(Schema::items)
    }
}

/// `live` with `patch` merged into it.
pub(super) fn merge_map(mut live: Fields, mut patch: Fields, schema: Option<&Schema>) -> Merged<Fields> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Fields::new()),
            _ => Err(bad_directive(directive, &patch)),
        };
    }
    retain_keys(&mut live, &mut patch)?;
    set_orders(&mut live, &mut patch, schema)?;
    for (key, value) in patch {
        let (name, deletes) = match key.strip_prefix(DELETE_FROM) {
            None => (key.as_str(), false),
            Some(rest) => {
                let fault = Fault::Form("invalid patch format of primitive list");
                (rest.strip_prefix('/').ok_or(fault)?, true)
            }
        };
        if value.is_null() {
            live.remove(name);
            continue;
        }
        let Some(current) = live.get_mut(name) else {
            if !deletes {
                put(&mut live, name, value);
            }
            continue;
        };
        let field = Field::of(schema, name);
        match (current, value) {
            (Value::Object(current), Value::Object(value)) if field.replaces() => *current = value,
            (Value::Object(current), Value::Object(value)) => {
                *current = merge_map(std::mem::take(current), value, field.schema)?;
            }
            (Value::Array(current), Value::Array(value)) => {
                *current = merge_list(std::mem::take(current), value, &field, deletes)?;
            }
            (current, value) if !deletes || same_type(current, &value) => put(&mut live, name, value),
            _ => {}
        }
    }
    Ok(live)
}

fn same_type(left: &Value, right: &Value) -> bool {
    gofmt::type_name(left) == gofmt::type_name(right)
}

/// Sets `value` without nulls and directives.
fn put(live: &mut Fields, name: &str, value: Value) {
    match without_directives(without_nulls(&value)) {
        Some(value) => live.insert(name.to_owned(), value),
        None => live.remove(name),
    };
}

/// `value` without everything that has a `$patch` directive.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(PATCH) => None,
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

/// Removes fields from `live` that `$retainKeys` does not list.
fn retain_keys(live: &mut Fields, patch: &mut Fields) -> Merged<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let fault = || Fault::Form("invalid patch format of retainKeys");
    let keys: Vec<&str> = keys.as_array().ok_or_else(fault)?.iter().filter_map(Value::as_str).collect();
    let listed = |(name, value): (&String, &Value)| {
        value.is_null() || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER) || keys.contains(&name.as_str())
    };
    if !patch.iter().all(listed) {
        return Err(fault());
    }
    live.retain(|name, _| keys.contains(&name.as_str()));
    Ok(())
}

/// Merges and sorts the lists that have `$setElementOrder`.
fn set_orders(live: &mut Fields, patch: &mut Fields, schema: Option<&Schema>) -> Merged<()> {
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in orders {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type("[]interface {}", &other.unwrap_or_default())),
        };
        let fault = || Fault::Form("invalid patch format of setElementOrder list");
        let name = directive.strip_prefix(SET_ORDER).and_then(|rest| rest.strip_prefix('/')).ok_or_else(fault)?;
        let field = Field::of(schema, name);
        let key = field.merge_key();
        let current = take_list(live.get(name))?;
        let changes = take_list(patch.get(name))?;
        if let Some(changes) = &changes {
            list::check_order(changes, &order, key)?;
        }
        let merged = match (current.clone(), changes.clone()) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(changes)) => changes.into_iter().filter_map(without_directives).collect(),
            (Some(current), Some(changes)) => merge_list(current, changes, &field, false)?,
        };
        let current = current.unwrap_or_default();
        let changes = changes.unwrap_or_default();
        list::element_type(&current, &changes)?;
        let current =
            if field.merges() && !key.is_empty() { list::overwritten(&current, &changes, key) } else { current };
        let ordered = list::ordered(merged, &order, &Order { live: &current, key })?;
        live.insert(name.to_owned(), ordered.into());
        patch.remove(name);
    }
    Ok(())
}

fn take_list(value: Option<&Value>) -> Merged<Option<Vec<Value>>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        Some(other) => Err(bad_type("[]interface {}", other)),
    }
}

fn merge_list(live: Vec<Value>, patch: Vec<Value>, field: &Field<'_>, deletes: bool) -> Merged<Vec<Value>> {
    if !field.merges() && !deletes {
        return Ok(patch);
    }
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    let key = field.merge_key();
    let maps = list::element_type(&live, &patch)? == list::Items::Maps;
    let (live, patch, merged) = match (maps, deletes) {
        (false, true) => return Ok(live.into_iter().filter(|item| !patch.contains(item)).collect()),
        (false, false) => {
            let merged = list::without_repeats(live.iter().chain(&patch).cloned().collect());
            (live, patch, merged)
        }
        (true, _) if key.is_empty() => {
            return Err(Fault::Other("cannot merge lists without merge key for struct".into()));
        }
        (true, _) => {
            let (live, patch) = list::obey_directives(live, patch, key)?;
            let merged = merge_items(live.clone(), patch.clone(), key, field.items())?;
            (live, patch, merged)
        }
    };
    list::ordered(merged, &patch, &Order { live: &live, key })
}

/// Merges each item of `patch` into the item of `live` with the same merge key, or appends it.
fn merge_items(mut live: Vec<Value>, patch: Vec<Value>, key: &str, items: Option<&Schema>) -> Merged<Vec<Value>> {
    for item in patch {
        let Value::Object(fields) = item else { return Err(bad_type("map[string]interface {}", &item)) };
        let value = fields.get(key).ok_or_else(|| no_key(&fields, key))?;
        match list::find(&live, key, value)? {
            Some(index) => {
                let current = live[index].as_object().cloned().unwrap_or_default();
                live[index] = Value::Object(merge_map(current, fields, items)?);
            }
            None => live.push(Value::Object(fields)),
        }
    }
    Ok(live)
}

pub(super) fn no_key(fields: &Fields, key: &str) -> Fault {
    let map = gofmt::plain(&Value::Object(fields.clone()));
    Fault::Other(format!("map: {map} does not contain declared merge key: {key}"))
}

pub(super) fn bad_type(expected: &str, actual: &Value) -> Fault {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        other => gofmt::type_name(other),
    };
    Fault::Other(format!("expected a {expected}, but received a {actual}"))
}

pub(super) fn bad_directive(directive: &Value, fields: &Fields) -> Fault {
    let map = gofmt::plain(&Value::Object(fields.clone()));
    Fault::Other(format!("unknown patch type: {} in map: {map}", gofmt::plain(directive)))
}
