//! Statistics of a store.

use super::Store;

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects.
    pub objects: usize,
    /// Bytes of their JSON.
    pub bytes: usize,
    /// Events in the logs.
    pub events: usize,
    /// Watchers.
    pub watchers: usize,
    /// Tables.
    pub tables: usize,
    /// Owners with dependents.
    pub owners: usize,
}

impl Store {
    /// Statistics of the store.
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let whole = Counts { tables: state.ids.len(), owners: state.dependents.len(), ..Counts::default() };
        state.tables.iter().fold(whole, |sum, table| Counts {
            objects: sum.objects + table.objects.len(),
            bytes: sum.bytes + table.objects.values().map(|object| object.len()).sum::<usize>(),
            events: sum.events + table.log.len(),
            watchers: sum.watchers + table.watchers.len(),
            ..sum
        })
    }
}
