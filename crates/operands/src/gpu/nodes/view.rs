//! One node as decisions see it: borrowed from a cache, never copied.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::gpu::fleet::ContainerRuntime;

/// Labels or annotations of a live object.
#[derive(Clone, Copy, Debug, Default)]
pub enum Entries<'a> {
    /// There are none.
    #[default]
    None,
    /// Of a typed object.
    Map(&'a BTreeMap<String, String>),
    /// Of a cached one.
    Json(&'a Map<String, Value>),
}

impl<'a> Entries<'a> {
    /// What a cache holds under `metadata.labels` or `metadata.annotations`.
    pub fn of(value: &'a Value) -> Self {
        value.as_object().map_or(Self::None, Self::Json)
    }

    /// The value of a key.
    pub fn get(self, key: &str) -> Option<&'a str> {
        match self {
            Self::None => None,
            Self::Map(map) => map.get(key).map(String::as_str),
            Self::Json(map) => map.get(key).and_then(Value::as_str),
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
        }
    }
}

/// What labelling looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Entries<'a>,
    /// Its annotations.
    pub annotations: Entries<'a>,
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// What runs its containers.
    pub runtime: Option<ContainerRuntime>,
}

impl<'a> Node<'a> {
    /// A node of a cache.
    pub fn of(node: &'a Value) -> Self {
        Self {
            name: node["metadata"]["name"].as_str().unwrap_or_default(),
            labels: Entries::of(&node["metadata"]["labels"]),
            annotations: Entries::of(&node["metadata"]["annotations"]),
            unschedulable: node["spec"]["unschedulable"] == true,
            runtime: ContainerRuntime::of(node),
        }
    }
}
