//! An index of a table: objects by the value of one field.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::Key;

/// Objects by field value. One set for all values: most values occur in one object or in thousands, and a set each
/// would take more memory than its content.
#[derive(Default)]
pub(super) struct Index(BTreeSet<(Arc<str>, Key)>);

impl Index {
    /// The objects with this value.
    pub(super) fn keys(&self, value: &Arc<str>) -> impl Iterator<Item = &Key> {
        let from = self.0.range(&Self::first(value)..);
        from.take_while(move |(known, _)| *known == *value).map(|(_, key)| key)
    }

    /// The lower bound of the objects with this value.
    fn first(value: &Arc<str>) -> (Arc<str>, Key) {
        static EMPTY: LazyLock<Key> = LazyLock::new(|| Key::new("", ""));
        (value.clone(), EMPTY.clone())
    }

    /// Updates the value of an object.
    pub(super) fn update(&mut self, key: &Key, before: Option<&str>, after: Option<&str>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(before.into(), key.clone()));
        }
        if let Some(after) = after {
            let first = Self::first(&after.into());
            let known = self.0.range(&first..).next().filter(|(known, _)| *known == first.0);
            let value = known.map_or_else(|| first.0.clone(), |(known, _)| known.clone());
            self.0.insert((value, key.clone()));
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
