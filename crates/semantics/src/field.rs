//! Field paths as Kubernetes writes them: `spec.containers[0].image`.
//!
//! [`Path`] owns its text. [`At`] borrows: it is built while a value is walked and formatted only to report an error.

use std::fmt::{self, Display};

use serde_json::Value;

/// An owned field path: `spec.containers[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The path of the object itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path from text, such as `spec.template`.
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    /// A field of a struct.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self(child(&self.0, name))
    }

    /// An item of a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(item(&self.0, index))
    }

    /// A value of a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(item(&self.0, key))
    }

    /// Whether this is the path of the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The text without the `<nil>` of the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Conversions, so that callers may pass text.
impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self::new(path)
    }
}

/// A borrowed field path: `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    part: Part<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Root,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// A path from the object itself: `spec`, or `spec.template`.
    pub const fn new(path: &'a str) -> Self {
        Self { parent: None, part: Part::Name(path) }
    }

    /// The path of the object itself.
    pub const fn root() -> Self {
        Self { parent: None, part: Part::Root }
    }

    /// A field of a struct.
    pub const fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), part: Part::Name(name) }
    }

    /// An item of a list.
    pub const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), part: Part::Index(index) }
    }

    /// A value of a map.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), part: Part::Key(key) }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Root => Ok(()),
            Part::Name(name) if self.parent.is_some_and(|parent| !matches!(parent.part, Part::Root)) => {
                write!(f, ".{name}")
            }
            Part::Name(name) => f.write_str(name),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Path of a field of an object; the path of the whole object is empty.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Path of a list item by index or key, or of a map entry whose key needs brackets.
pub fn item(path: &str, key: impl Display) -> String {
    format!("{path}[{key}]")
}

/// Segments of a simple JSON path such as `.spec.replicas`, which has no list indexes.
pub fn names(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.').split('.')
}

/// Value at a simple JSON path such as `.spec.replicas`.
pub fn get<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    names(path).try_fold(object, |value, name| value.get(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_written_and_followed() {
        assert_eq!(item(&child(&child("", "spec"), "containers"), 0), "spec.containers[0]");
        let (root, spec) = (At::root(), At::new("spec"));
        let containers = spec.child("containers");
        assert_eq!(containers.index(0).child("image").to_string(), "spec.containers[0].image");
        assert_eq!(root.child("spec").key("a.b/c").to_string(), "spec[a.b/c]");
        assert_eq!((root.to_string(), Path::root().to_string()), (String::new(), "<nil>".to_owned()));
        let object = json!({"spec": {"replicas": 3}});
        assert_eq!(get(&object, ".spec.replicas"), Some(&json!(3)));
        assert_eq!(get(&object, "spec.replicas"), Some(&json!(3)));
        assert_eq!(get(&object, "status.replicas"), None);
    }
}
