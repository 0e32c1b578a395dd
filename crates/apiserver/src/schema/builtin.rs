//! Compiled definitions of Kubernetes' own types, each compiled on first use and cached.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use super::{Schema, compile};

type Slot = (&'static Value, OnceLock<Schema>);

static COMPILED: LazyLock<HashMap<&'static str, Slot>> = LazyLock::new(|| {
    let definitions = capstan_schema::definitions().iter();
    definitions.map(|(name, source)| (name.as_str(), (source, OnceLock::new()))).collect()
});

static UNKNOWN: LazyLock<Schema> = LazyLock::new(Schema::default);

/// The compiled definition `name` (`io.k8s.api.core.v1.Pod`).
pub fn definition(name: &str) -> Option<&'static Schema> {
    let (source, slot) = COMPILED.get(name)?;
    Some(slot.get_or_init(|| compile::definition(name, source)))
}

/// The same; an unknown name yields a schema that accepts anything.
pub(super) fn named(name: &str) -> &'static Schema {
    definition(name).unwrap_or(&UNKNOWN)
}
