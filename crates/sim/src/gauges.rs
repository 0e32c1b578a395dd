//! How much each part of the cluster holds in memory, so that a test can see that it holds no more than at the start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Gauge = Box<dyn Fn() -> usize + Send + Sync>;

/// Counts by name. Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Gauges(Arc<Mutex<BTreeMap<String, Gauge>>>);

impl Gauges {
    /// Counts something under a name; several of one name are numbered. `count` must hold no part of the cluster that
    /// holds the gauges.
    pub(crate) fn add(&self, name: impl Into<String>, count: impl Fn() -> usize + Send + Sync + 'static) {
        let mut gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.into();
        let mut names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name} {number}")));
        let free = names.find(|name| !gauges.contains_key(name)).expect("there are endless numbers");
        gauges.insert(free, Box::new(count));
    }

    /// What there is now.
    pub(crate) fn read(&self) -> BTreeMap<String, usize> {
        let gauges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.iter().map(|(name, count)| (name.clone(), count())).collect()
    }
}
