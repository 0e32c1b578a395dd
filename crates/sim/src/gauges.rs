//! Gauges of the items that each component holds in memory, for leak tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Gauge = Box<dyn Fn() -> usize + Send + Sync>;

/// Gauges by name. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Gauges(Arc<Mutex<BTreeMap<String, Gauge>>>);

impl Gauges {
    /// Adds a gauge; equal names are numbered. `count` must hold no part of the cluster that holds the gauges.
    pub(crate) fn add(&self, name: impl Into<String>, count: impl Fn() -> usize + Send + Sync + 'static) {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.into();
        let mut names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name} {number}")));
        let free = names.find(|name| !gauges.contains_key(name)).expect("suffixes are unbounded");
        gauges.insert(free, Box::new(count));
    }

    /// Current values.
    pub(crate) fn read(&self) -> BTreeMap<String, usize> {
        let gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.iter().map(|(name, count)| (name.clone(), count())).collect()
    }
}
