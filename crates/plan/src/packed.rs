//! Compact storage of numerous objects: equal values are interned, and objects are readable without decoding.
//!
//! As a `serde_json` value a node takes six times as much: each has its own copy of every name and string. As text it
//! would be as small, but would have to be decoded whenever all nodes are iterated.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

/// Read access to a JSON value, however it is stored.
pub trait Tree: Sized {
    /// The field of that name; null if there is none.
    fn at(&self, name: &str) -> &Self;
    /// The items of a list; empty if it is no list.
    fn items(&self) -> &[Self];
    /// The string, if it is one.
    fn text(&self) -> Option<&str>;
    /// The number, if it is an unsigned integer.
    fn count(&self) -> Option<u64>;
    /// Whether it is `true`.
    fn is_true(&self) -> bool;
    /// The entries of a map such as labels; empty if it is no object.
    fn entries(&self) -> Entries<'_>;
    /// The same as a value.
    fn value(&self) -> Cow<'_, Value>;

    /// Whether it is this string.
    fn says(&self, text: &str) -> bool {
        self.text() == Some(text)
    }
}

impl Tree for Value {
    fn at(&self, name: &str) -> &Self {
        &self[name]
    }

    fn items(&self) -> &[Self] {
        self.as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn count(&self) -> Option<u64> {
        self.as_u64()
    }

    fn is_true(&self) -> bool {
        *self == Value::Bool(true)
    }

    fn entries(&self) -> Entries<'_> {
        self.as_object().map_or(Entries::None, Entries::Json)
    }

    fn value(&self) -> Cow<'_, Value> {
        Cow::Borrowed(self)
    }
}

/// A JSON value with interned parts. Clones are cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Packed {
    /// Null.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Arc<str>),
    /// A list.
    List(Arc<[Packed]>),
    /// An object.
    Fields(Arc<Fields>),
}

/// The fields of an object. Objects with the same names share them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Fields {
    /// Sorted.
    names: Arc<[Arc<str>]>,
    values: Box<[Packed]>,
}

impl Fields {
    fn get(&self, name: &str) -> Option<&Packed> {
        let index = self.names.binary_search_by(|interned| (**interned).cmp(name)).ok()?;
        self.values.get(index)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Packed)> {
        self.names.iter().map(|name| &**name).zip(&self.values)
    }
}

static NULL: Packed = Packed::Null;

impl Tree for Packed {
    fn at(&self, name: &str) -> &Self {
        match self {
            Self::Fields(fields) => fields.get(name).unwrap_or(&NULL),
            _ => &NULL,
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn count(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }

    fn entries(&self) -> Entries<'_> {
        match self {
            Self::Fields(fields) => Entries::Packed(fields),
            _ => Entries::None,
        }
    }

    fn value(&self) -> Cow<'_, Value> {
        Cow::Owned(self.to_value())
    }
}

impl Packed {
    /// The original value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(yes) => (*yes).into(),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String((**text).into()),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Fields(fields) => fields.iter().map(|(name, value)| (name.to_owned(), value.to_value())).collect(),
        }
    }
}

/// Labels or annotations of a live object.
#[derive(Clone, Copy, Debug, Default)]
pub enum Entries<'a> {
    /// There are none.
    #[default]
    None,
    /// Of a typed object.
    Map(&'a BTreeMap<String, String>),
    /// Of a value.
    Json(&'a Map<String, Value>),
    /// Of a packed object.
    Packed(&'a Fields),
}

impl<'a> Entries<'a> {
    /// The entries of `metadata.labels` or `metadata.annotations`.
    pub fn of<T: Tree>(value: &'a T) -> Self {
        value.entries()
    }

    /// The value of a key.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Self::None => None,
            Self::Map(map) => map.get(key).map(String::as_str),
            Self::Json(map) => map.get(key)?.text(),
            Self::Packed(fields) => fields.get(key)?.text(),
        }
    }

    /// Whether the key has this value.
    pub fn is(self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }

    /// Whether there is nothing at all.
    pub fn is_empty(self) -> bool {
        match self {
            Self::None => true,
            Self::Map(map) => map.is_empty(),
            Self::Json(map) => map.is_empty(),
            Self::Packed(fields) => fields.names.is_empty(),
        }
    }

    /// Calls `see` for each key with a string value.
    pub fn each(self, mut see: impl FnMut(&'a str, &'a str)) {
        match self {
            Self::None => {}
            Self::Map(map) => map.iter().for_each(|(key, value)| see(key, value)),
            Self::Json(map) => {
                let texts = map.iter().filter_map(|(key, value)| Some((key.as_str(), value.text()?)));
                texts.for_each(|(key, value)| see(key, value));
            }
            Self::Packed(fields) => {
                let texts = fields.iter().filter_map(|(key, value)| Some((key, value.text()?)));
                texts.for_each(|(key, value)| see(key, value));
            }
        }
    }
}

/// Interns values that objects share.
#[derive(Default)]
pub struct Packer {
    texts: HashSet<Arc<str>>,
    names: HashSet<Arc<[Arc<str>]>>,
    fields: HashSet<Arc<Fields>>,
    /// Number of interned values beyond which those used by a single object are dropped.
    limit: usize,
}

/// Minimum of that limit.
const MIN_LIMIT: usize = 1024;

/// Reference counts above this mean sharing: one reference is ours; a single object has up to two, as nodes have their
/// name twice.
const UNSHARED: usize = 3;

/// Objects this close to the root contain a version or a timestamp: no two are equal.
const UNIQUE_DEPTH: usize = 2;

impl Packer {
    /// Packs an object.
    pub fn pack(&mut self, value: &Value) -> Packed {
        if self.interned() > self.limit.max(MIN_LIMIT) {
            self.prune();
            self.limit = MIN_LIMIT + 2 * self.interned();
        }
        self.at(value, 0)
    }

    fn interned(&self) -> usize {
        self.texts.len() + self.names.len() + self.fields.len()
    }

    /// Drops values that are unused or used by a single object: most of them.
    fn prune(&mut self) {
        self.fields.retain(|one| Arc::strong_count(one) > UNSHARED);
        self.names.retain(|one| Arc::strong_count(one) > UNSHARED);
        self.texts.retain(|one| Arc::strong_count(one) > UNSHARED);
    }

    fn at(&mut self, value: &Value, depth: usize) -> Packed {
        match value {
            Value::Null => Packed::Null,
            Value::Bool(yes) => Packed::Bool(*yes),
            Value::Number(number) => Packed::Number(number.clone()),
            Value::String(text) => Packed::Text(self.text(text)),
            Value::Array(items) => Packed::List(items.iter().map(|item| self.at(item, depth + 1)).collect()),
            Value::Object(all) => {
                let mut all: Vec<(&String, &Value)> = all.iter().collect();
                all.sort_unstable_by_key(|(name, _)| *name);
                let names: Vec<Arc<str>> = all.iter().map(|(name, _)| self.text(name)).collect();
                let names = shared(&mut self.names, names.into());
                let values = all.into_iter().map(|(_, value)| self.at(value, depth + 1)).collect();
                let fields = Arc::new(Fields { names, values });
                Packed::Fields(if depth < UNIQUE_DEPTH { fields } else { shared(&mut self.fields, fields) })
            }
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        match self.texts.get(text) {
            Some(interned) => interned.clone(),
            None => shared(&mut self.texts, text.into()),
        }
    }
}

/// The interned equal value, or this one from now on.
fn shared<T: Eq + Hash + ?Sized>(interned: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    match interned.get(&new) {
        Some(interned) => interned.clone(),
        None => {
            interned.insert(new.clone());
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn node(number: usize) -> Value {
        json!({
            "metadata": {"name": format!("n{number}"), "resourceVersion": number.to_string(),
                "labels": {"kind": "gpu", "name": format!("n{number}")}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        })
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(Value::from),
            "[a-c]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-e]{1,2}", inner, 0..5).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_what_was_there(values in prop::collection::vec(any_value(), 1..8)) {
            let mut packer = Packer::default();
            let packed: Vec<Packed> = values.iter().map(|value| packer.pack(value)).collect();
            packer.prune();
            for (value, packed) in values.iter().zip(&packed) {
                prop_assert_eq!(value, &packed.to_value());
                prop_assert_eq!(&packer.pack(value), packed);
                for name in ["a", "b", "aa"] {
                    prop_assert_eq!(value.at(name).clone(), packed.at(name).to_value());
                    prop_assert_eq!(value.entries().get(name), packed.entries().get(name));
                }
                prop_assert_eq!((value.text(), value.count()), (packed.text(), packed.count()));
                prop_assert_eq!((value.is_true(), value.items().len()), (packed.is_true(), packed.items().len()));
            }
        }
    }

    #[test]
    fn what_objects_say_alike_is_held_once() {
        let mut packer = Packer::default();
        let [a, b] = [1, 2].map(|number| packer.pack(&node(number)));
        let kind = |node: &Packed| node.at("metadata").at("labels").at("kind").text().map(str::as_ptr);
        assert_eq!(kind(&a), kind(&b));
        let taint = |node: &Packed| match &node.at("spec").at("taints").items()[0] {
            Packed::Fields(fields) => Arc::as_ptr(fields),
            _ => panic!("a taint has fields"),
        };
        assert_eq!(taint(&a), taint(&b));
    }

    #[test]
    fn what_only_one_says_is_not_remembered() {
        let mut packer = Packer::default();
        let kept: Vec<Packed> = (0..5000).map(|number| packer.pack(&node(number))).collect();
        assert!(packer.interned() < 2 * MIN_LIMIT, "{} things are known of {} nodes", packer.interned(), kept.len());
        drop(kept);
        packer.prune();
        assert_eq!(packer.interned(), 0);
    }
}
