//! Merging typed values, and removing fields from them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map as Fields, Value};

use super::path::Element;
use super::set::{Node, Set};
use super::shape::{Form, List, Map, Shape};

/// `live` with the fields of `config` merged in. Removes nothing.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    Ok(overlay(shape, Some(live), Some(config))?.unwrap_or_default())
}

/// `None` if both are absent, or if a merged container ends up empty.
fn overlay(shape: Shape<'_>, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, String> {
    let either = || Ok(config.or(live).cloned());
    match shape.atom().deduce(config.or(live)).form() {
        Form::Scalar(_) => either(),
        Form::List(list) => {
            let (lives, configs) = (items(live), items(config));
            // Null and empty stay distinct unless there is something to merge.
            if list.is_atomic() || (lives.is_empty() && configs.is_empty()) {
                return either();
            }
            let items = overlay_items(&list, lives, configs)?;
            Ok((!items.is_empty()).then_some(Value::Array(items)))
        }
        Form::Map(map) => {
            let empty = Fields::new();
            let (lives, configs) = (fields(live).unwrap_or(&empty), fields(config).unwrap_or(&empty));
            if map.atomic || (lives.is_empty() && configs.is_empty()) {
                return either();
            }
            let fields = overlay_fields(&map, lives, configs)?;
            Ok((!fields.is_empty()).then_some(Value::Object(fields)))
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: Option<&Value>) -> Option<&Fields<String, Value>> {
    value.and_then(Value::as_object)
}

fn overlay_fields(
    map: &Map<'_>,
    live: &Fields<String, Value>,
    config: &Fields<String, Value>,
) -> Result<Fields<String, Value>, String> {
    let mut out = Fields::new();
    let names: BTreeSet<&String> = live.keys().chain(config.keys()).collect();
    for name in names {
        let merged = overlay(map.child_or_deduced(name), live.get(name), config.get(name))
            .map_err(|fault| format!(".{name}{fault}"))?;
        if let Some(value) = merged {
            out.insert(name.clone(), value);
        }
    }
    Ok(out)
}

/// Items of both lists: shared items in the order of `config`, items only in `live` keep their position relative to
/// them.
fn overlay_items(list: &List<'_>, live: &[Value], config: &[Value]) -> Result<Vec<Value>, String> {
    let lives = elements(list, live)?;
    let configs = elements(list, config)?;
    let live_of = index(&lives, live);
    let config_of = index(&configs, config);
    let join = |element: &Element| -> Result<Option<Value>, String> {
        let live = live_of.get(element).map(|item| item.unwrap_or(&Value::Null));
        let config = config_of.get(element).copied().flatten();
        overlay(list.items, live, config).map_err(|fault| format!("{element}{fault}"))
    };

    let mut shared = configs.iter().filter(|element| live_of.contains_key(element));
    let mut next = shared.next();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(lives.len().max(configs.len()));
    let (mut l, mut c) = (0, 0);
    while l < lives.len() || c < configs.len() {
        if l < lives.len() && c < configs.len() {
            let element = &lives[l];
            if *element == configs[c] {
                done.insert(element);
                out.extend(join(element)?);
                (l, c) = (l + 1, c + 1);
                next = shared.next();
                continue;
            }
            if config_of.contains_key(element) && next.is_some_and(|next| next != element) {
                // In both lists: emitted when `config` reaches it.
                l += 1;
                continue;
            }
        }
        if l < lives.len() {
            let element = &lives[l];
            if !config_of.contains_key(element) {
                out.extend(overlay(list.items, Some(&live[l]), None)?);
                l += 1;
                continue;
            }
            if done.contains(element) {
                l += 1;
            }
        }
        if c < configs.len() {
            let element = &configs[c];
            done.insert(element);
            out.extend(join(element)?);
            c += 1;
            if next == Some(element) {
                next = shared.next();
            }
        }
    }
    Ok(out)
}

fn elements(list: &List<'_>, items: &[Value]) -> Result<Vec<Element>, String> {
    let element = |(i, item)| list.element(item).map_err(|message| format!(": element {i}: {message}"));
    items.iter().enumerate().map(element).collect()
}

/// Items by element; `None` for duplicates, as any choice among them would be arbitrary.
fn index<'v>(elements: &[Element], items: &'v [Value]) -> BTreeMap<Element, Option<&'v Value>> {
    let mut out: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for (element, item) in elements.iter().zip(items) {
        out.entry(element.clone()).and_modify(|seen| *seen = None).or_insert(Some(item));
    }
    out
}

/// `value` without the fields and items in `set`. A container that becomes empty is null, as in kube-apiserver: the
/// schema decides whether null is kept.
pub(crate) fn remove(shape: Shape<'_>, value: &Value, set: &Set) -> Value {
    match (shape.atom().deduce(Some(value)).form(), value) {
        (Form::Scalar(_), value) => value.clone(),
        (Form::List(list), Value::Array(items)) if !items.is_empty() && !list.is_atomic() => {
            let items: Vec<Value> = items.iter().filter_map(|item| remove_item(&list, item, set)).collect();
            if items.is_empty() { Value::Null } else { Value::Array(items) }
        }
        (Form::Map(map), Value::Object(fields)) if !fields.is_empty() && !map.atomic => {
            let fields: Fields<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), remove_field(&map, name, value, set)?)))
                .collect();
            if fields.is_empty() { Value::Null } else { Value::Object(fields) }
        }
        _ => Value::Null,
    }
}

fn remove_item(list: &List<'_>, item: &Value, set: &Set) -> Option<Value> {
    let node = list.element(item).ok().and_then(|element| set.node(&element));
    part(node, item, |children| remove(list.items, item, children))
}

fn remove_field(map: &Map<'_>, name: &str, value: &Value, set: &Set) -> Option<Value> {
    let node = set.node(&Element::field(name));
    part(node, value, |children| remove(map.child_or_deduced(name), value, children))
}

/// What remains of a part: all of it, nothing, or some.
fn part(node: Option<&Node>, value: &Value, some: impl Fn(&Set) -> Value) -> Option<Value> {
    match node {
        None => Some(value.clone()),
        Some(Node { member: true, .. }) => None,
        Some(Node { children, .. }) => Some(some(children)),
    }
}

/// `set` plus every struct field on the path to a member. Keys of maps are not added.
pub(crate) fn with_named(shape: Option<Shape<'_>>, set: &Set) -> Set {
    let atom = shape.map(Shape::atom).unwrap_or_default();
    let mut out = Set::default();
    for (element, node) in set.nodes() {
        let (named, below) = match (element, atom.map, atom.list) {
            (Element::Field(name), Some(map), _) => (map.named(name).is_some(), map.child(name)),
            (Element::Key(_), _, Some(list)) => (false, Some(list.items)),
            _ => (false, None),
        };
        let member = node.member || (named && !node.children.is_empty());
        out.put(element.clone(), Node { member, children: with_named(below, &node.children) });
    }
    out
}

/// Migrates `set` after a schema change: the owner of part of what is now atomic owns all of it. `None` if `set` is up
/// to date.
pub(crate) fn reconcile(shape: Shape<'_>, set: &Set) -> Option<Set> {
    let atom = shape.atom();
    let below = |element: &Element| match (atom.map, atom.scalar, atom.list, element) {
        (Some(map), ..) if map.is_deduced() => None,
        (Some(map), _, _, Element::Field(name)) => map.child(name),
        (Some(map), ..) => map.extra,
        (None, None, Some(list), _) => Some(list.items),
        _ => None,
    };
    let mut changed = false;
    let mut out = Set::default();
    for (element, node) in set.nodes() {
        let shape = below(element).filter(|_| !node.children.is_empty());
        let new = match shape {
            Some(shape) if is_one_value(shape) => Some(Node { member: true, children: Set::default() }),
            Some(shape) => reconcile(shape, &node.children).map(|children| Node { member: node.member, children }),
            None => None,
        };
        changed |= new.is_some();
        out.put(element.clone(), new.unwrap_or_else(|| node.clone()));
    }
    changed.then_some(out)
}

fn is_one_value(shape: Shape<'_>) -> bool {
    let atom = shape.atom();
    match (atom.map, atom.scalar, atom.list) {
        (Some(map), ..) => map.atomic && !map.is_deduced(),
        (None, None, Some(list)) => list.is_atomic(),
        _ => false,
    }
}
