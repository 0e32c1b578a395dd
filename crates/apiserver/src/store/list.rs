//! Lists: one snapshot, page by page.

use std::sync::Arc;

use super::{Object, Selection};

/// The moment that a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// Now.
    #[default]
    Now,
    /// Now, and no earlier than this revision.
    NotOlderThan(u64),
    /// Exactly at this revision.
    Exactly(u64),
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which objects.
    pub selection: Selection,
    /// When.
    pub at: At,
    /// Most objects in the answer; 0 for all.
    pub limit: usize,
    /// Token of the previous page, or empty.
    pub continue_token: String,
}

/// An answer to a [`Query`].
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The objects, in the order of their keys.
    pub items: Vec<Arc<Object>>,
    /// Revision of the snapshot: where a watch goes on.
    pub revision: u64,
    /// Token for the next page, if there is one.
    pub continue_token: Option<String>,
    /// How many objects are left after this page, where the server tells.
    pub remaining: Option<u64>,
}
