//! Rules about model servers and their caches.

mod cache;

use super::Rule;

/// Rules about model servers.
pub(crate) const RULES: &[Rule] =
    &[Rule { name: "cache-profile", explains: &[&["not-ready", "spec-refused", "pod-crashes"]], check: cache::check }];
