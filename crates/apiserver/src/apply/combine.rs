//! Changing typed values: laying one over another, taking fields out of one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map as Fields, Value};

use super::path::Element;
use super::set::{Node, Set};
use super::shape::{Form, List, Map, Shape};

/// `live` with everything that `config` mentions laid over it. Nothing is removed.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    Ok(overlay(shape, Some(live), Some(config))?.unwrap_or_default())
}

/// Nothing comes out where nothing goes in, and where containers end up without items.
fn overlay(shape: Shape<'_>, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, String> {
    let either = || Ok(config.or(live).cloned());
    match shape.atom().deduce(config.or(live)).form() {
        Form::Scalar(_) => either(),
        Form::List(list) => {
            let (lives, configs) = (items(live), items(config));
            // Null and empty are kept apart as long as nothing merges.
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

/// Items of both lists: those that both have come in the order of `config`, those that only `live` has stay where they
/// were among them.
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
                // It is in both, but its turn is later.
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

/// Items by element; nothing for those that occur twice, as one of them would win by accident.
fn index<'v>(elements: &[Element], items: &'v [Value]) -> BTreeMap<Element, Option<&'v Value>> {
    let mut out: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for (element, item) in elements.iter().zip(items) {
        out.entry(element.clone()).and_modify(|seen| *seen = None).or_insert(Some(item));
    }
    out
}

/// `value` without the fields and items in `set`. A container that loses everything becomes null, as on a real server:
/// whether null may stay is for the schema to say.
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

/// What is left of a part: all of it, nothing, or some.
fn part(node: Option<&Node>, value: &Value, some: impl Fn(&Set) -> Value) -> Option<Value> {
    match node {
        None => Some(value.clone()),
        Some(Node { member: true, .. }) => None,
        Some(Node { children, .. }) => Some(some(children)),
    }
}

/// `set` with every struct field on the way to a member made a member too. Keys of maps are not added.
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

/// `set` as the schema now is: who owned a part of what has become one value, owns that value. Nothing when `set` fits.
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
