//! Compiled definitions of Kubernetes itself, each compiled when it is first looked at and kept for good.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use super::{Schema, compile};

static COMPILED: LazyLock<BTreeMap<&'static str, OnceLock<Schema>>> =
    LazyLock::new(|| capstan_schema::definitions().keys().map(|name| (name.as_str(), OnceLock::new())).collect());

static UNKNOWN: LazyLock<Schema> = LazyLock::new(Schema::default);

/// The compiled definition of that name (`io.k8s.api.core.v1.Pod`).
pub fn definition(name: &str) -> Option<&'static Schema> {
    let cell = COMPILED.get(name)?;
    let source = capstan_schema::definition(name)?;
    Some(cell.get_or_init(|| compile::definition(source)))
}

/// The same; a name that does not exist stands for anything.
pub(super) fn named(name: &str) -> &'static Schema {
    definition(name).unwrap_or(&UNKNOWN)
}
