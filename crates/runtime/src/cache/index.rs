//! Which objects of a table say a text: found without a look at the others.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::Key;

/// Which objects say a text. One set for all texts: most are said by one object or by thousands, and a set each would take
/// more memory than what is in it.
#[derive(Default)]
pub(super) struct Index(BTreeSet<(Arc<str>, Key)>);

impl Index {
    /// The objects that say that.
    pub(super) fn keys(&self, text: &Arc<str>) -> impl Iterator<Item = &Key> {
        let from = self.0.range(&Self::first(text)..);
        from.take_while(move |(known, _)| *known == *text).map(|(_, key)| key)
    }

    /// What stands before all objects that say that.
    fn first(text: &Arc<str>) -> (Arc<str>, Key) {
        static NOTHING: LazyLock<Key> = LazyLock::new(|| Key::new("", ""));
        (text.clone(), NOTHING.clone())
    }

    /// Notes that an object says something else.
    pub(super) fn change(&mut self, key: &Key, before: Option<&str>, after: Option<&str>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.0.remove(&(before.into(), key.clone()));
        }
        if let Some(after) = after {
            let first = Self::first(&after.into());
            let known = self.0.range(&first..).next().filter(|(known, _)| *known == first.0);
            let text = known.map_or_else(|| first.0.clone(), |(known, _)| known.clone());
            self.0.insert((text, key.clone()));
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
