//! Traversal of typed values: field sets, validation, comparison.

use std::collections::BTreeMap;

use serde_json::Value;

use super::gofmt;
use super::path::{Element, Path, same};
use super::set::{Node, Set};
use super::shape::{Form, List, Map, Shape};

/// Validation errors, with paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(Vec<(String, String)>);

impl Faults {
    fn one(message: String) -> Self {
        Self(vec![(String::new(), message)])
    }

    fn below(mut self, prefix: &str) -> Self {
        self.0.iter_mut().for_each(|(path, _)| path.insert_str(0, prefix));
        self
    }

    fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// `Ok` when there are none.
    pub(crate) fn result(self) -> Result<(), String> {
        let line = |(path, message): &(String, String)| match path.is_empty() {
            true => message.clone(),
            false => format!("{path}: {message}"),
        };
        match self.0.as_slice() {
            [] => Ok(()),
            [one] => Err(line(one)),
            many => Err(many.iter().fold("errors:".to_owned(), |text, fault| format!("{text}\n  {}", line(fault)))),
        }
    }
}

/// Checks that `value` fits `shape`, and that list keys are unique.
pub(crate) fn validate(shape: Shape<'_>, value: &Value) -> Faults {
    match shape.atom().deduce(Some(value)).form() {
        Form::Scalar(scalar) => scalar.check(Some(value)).err().map(Faults::one).unwrap_or_default(),
        Form::List(list) => match value {
            Value::Null => Faults::default(),
            Value::Array(items) => validate_items(&list, items),
            other => Faults::one(format!("expected list, got &{{{}}}", gofmt::plain(other))),
        },
        Form::Map(map) => match value {
            Value::Null => Faults::default(),
            Value::Object(fields) => validate_fields(&map, fields),
            other => Faults::one(format!("expected map, got &{{{}}}", gofmt::plain(other))),
        },
    }
}

fn validate_items(list: &List<'_>, items: &[Value]) -> Faults {
    let mut faults = Faults::default();
    let mut seen = std::collections::BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match list.element(item) {
            _ if list.is_atomic() => Element::Index(i as i64),
            Ok(element) => element,
            Err(message) => {
                faults.add(Faults::one(format!("element {i}: {message}")));
                return faults;
            }
        };
        if !list.is_atomic() && !seen.insert(element.clone()) {
            faults.add(Faults::one(format!("duplicate entries for key {element}")));
        }
        let below = validate(list.items, item);
        faults.add(below.below(&element.to_string()));
    }
    faults
}

fn validate_fields(map: &Map<'_>, fields: &serde_json::Map<String, Value>) -> Faults {
    let mut faults = Faults::default();
    for (name, value) in fields {
        let below = match map.child(name) {
            Some(shape) => validate(shape, value),
            None => Faults::one("field not declared in schema".into()),
        };
        let undeclared = map.child(name).is_none();
        faults.add(below.below(&format!(".{name}")));
        if undeclared {
            return faults;
        }
    }
    faults
}

/// The field set of `value`.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Value) -> Set {
    below(shape, value).children
}

/// The node of a value: a leaf, or its fields and items.
fn below(shape: Shape<'_>, value: &Value) -> Node {
    let leaf = Node { member: true, children: Set::default() };
    match shape.atom().deduce(Some(value)).form() {
        Form::Scalar(_) => leaf,
        Form::List(list) if list.is_atomic() => leaf,
        Form::Map(map) if map.atomic => leaf,
        Form::List(list) => match value {
            Value::Array(items) => Node { member: false, children: items_of(&list, items) },
            _ => Node::default(),
        },
        Form::Map(map) => match value {
            Value::Object(fields) => Node { member: false, children: members_of(&map, fields) },
            _ => Node::default(),
        },
    }
}

fn items_of(list: &List<'_>, items: &[Value]) -> Set {
    let mut set = Set::default();
    let mut counts: BTreeMap<Element, usize> = BTreeMap::new();
    let elements: Vec<Option<Element>> = items.iter().map(|item| list.element(item).ok()).collect();
    for element in elements.iter().flatten() {
        *counts.entry(element.clone()).or_default() += 1;
    }
    for (item, element) in items.iter().zip(elements) {
        let Some(element) = element else { continue };
        // Only the existence of duplicates is owned: their fields are ambiguous.
        let children = match counts.get(&element) {
            Some(1) => below(list.items, item).children,
            _ => Set::default(),
        };
        set.put(element, Node { member: true, children });
    }
    set
}

fn members_of(map: &Map<'_>, fields: &serde_json::Map<String, Value>) -> Set {
    let mut set = Set::default();
    for (name, value) in fields {
        let mut node = below(map.child_or_deduced(name), value);
        let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        node.member |= empty || map.named(name).is_none();
        set.put(Element::field(name), node);
    }
    set
}

/// The difference of two values. The sets are disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Fields only in the old value.
    pub removed: Set,
    /// Fields whose value changed.
    pub modified: Set,
    /// Fields only in the new value.
    pub added: Set,
}

/// Compares `old` and `new`.
pub(crate) fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Difference {
    let mut comparison = Comparison { path: Vec::new(), out: Difference::default() };
    comparison.compare(shape, Some(old), Some(new));
    comparison.out
}

struct Comparison {
    path: Path,
    out: Difference,
}

/// Whether a value was compared as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

impl Comparison {
    fn compare(&mut self, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) {
        if let (Some(old), Some(new)) = (old, new)
            && old == new
        {
            return;
        }
        let atom = shape.atom();
        let (old_atom, new_atom) = (atom.deduce(old), atom.deduce(new));
        let whole = match (old, new) {
            (_, None) => self.visit(old_atom.form(), old, new),
            (None, Some(_)) => self.visit(new_atom.form(), old, new),
            _ if old_atom.alike(&new_atom) => self.visit(new_atom.form(), old, new),
            _ => {
                self.visit(old_atom.form(), old, new);
                self.visit(new_atom.form(), old, new)
            }
        };
        if whole == Whole::No {
            match (old, new) {
                (None, _) => self.out.added.insert(&self.path),
                (_, None) => self.out.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    fn visit(&mut self, form: Form<'_>, old: Option<&Value>, new: Option<&Value>) -> Whole {
        match form {
            Form::Scalar(_) => self.leaf(old, new),
            Form::List(list) => {
                let (olds, news) = (items(old), items(new));
                if list.is_atomic() || (olds.is_empty() && news.is_empty()) {
                    return self.leaf(old, new);
                }
                self.compare_items(&list, olds, news);
                Whole::No
            }
            Form::Map(map) => {
                let (olds, news) = (fields(old), fields(new));
                if map.atomic || (olds.is_none_or(|map| map.is_empty()) && news.is_none_or(|map| map.is_empty())) {
                    return self.leaf(old, new);
                }
                self.compare_fields(&map, olds, news);
                Whole::No
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> Whole {
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.out.modified.insert(&self.path),
            _ => {}
        }
        Whole::Yes
    }

    fn compare_fields(&mut self, map: &Map<'_>, old: Option<&Fields>, new: Option<&Fields>) {
        for (name, value) in old.into_iter().flatten() {
            let other = new.and_then(|new| new.get(name));
            self.within(Element::field(name), map.child_or_deduced(name), Some(value), other);
        }
        for (name, value) in new.into_iter().flatten() {
            if !old.is_some_and(|old| old.contains_key(name)) {
                self.within(Element::field(name), map.child_or_deduced(name), None, Some(value));
            }
        }
    }

    fn compare_items(&mut self, list: &List<'_>, old: &[Value], new: &[Value]) {
        let mut groups: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(element) = list.element(item) {
                groups.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(element) = list.element(item) {
                groups.entry(element).or_default().1.push(item);
            }
        }
        for (element, (old, new)) in groups {
            match (old.len(), new.len()) {
                (0 | 1, 0 | 1) => {
                    self.within(element, list.items, old.first().copied(), new.first().copied());
                }
                // Duplicates are compared as one value; they replace the single item when they appear or disappear.
                (2.., 2..) => {
                    let equal = old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
                    if !equal {
                        self.mark(element, |out| &mut out.modified);
                    }
                }
                (2.., _) => {
                    if let Some(new) = new.first() {
                        self.within(element.clone(), list.items, None, Some(new));
                    }
                    self.mark(element, |out| &mut out.removed);
                }
                (_, 2..) => {
                    if let Some(old) = old.first() {
                        self.within(element.clone(), list.items, Some(old), None);
                    }
                    self.mark(element, |out| &mut out.added);
                }
            }
        }
    }

    fn mark(&mut self, element: Element, set: impl Fn(&mut Difference) -> &mut Set) {
        self.path.push(element);
        set(&mut self.out).insert(&self.path);
        self.path.pop();
    }

    fn within(&mut self, element: Element, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) {
        self.path.push(element);
        self.compare(shape, old, new);
        self.path.pop();
    }
}

type Fields = serde_json::Map<String, Value>;

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: Option<&Value>) -> Option<&Fields> {
    value.and_then(Value::as_object)
}
