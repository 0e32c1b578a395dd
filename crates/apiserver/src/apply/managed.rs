//! Server-side apply, and the record of who set which field (`metadata.managedFields`).

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::error::{Result, Status};
use crate::schema::Schema;

/// The versions in which one kind of object exists. Entries of other versions than these are dropped from managed
/// fields, as a real server does.
pub trait Versions {
    /// What objects look like in `api_version` (`apps/v1`), or nothing when that version is not served.
    fn schema(&self, api_version: &str) -> Option<Arc<Schema>>;

    /// `object` in `api_version`. The default is what a CRD without conversion webhook does.
    fn convert(&self, object: &Value, api_version: &str) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        object
    }
}

/// What a subresource may not set: such fields are never recorded as owned by its writers.
#[derive(Clone, Debug, Default)]
pub struct Reset(());

impl Reset {
    /// The rules for one resource of `group`; `subresource` is empty for the main resource, `has_status` says whether
    /// the resource has a status subresource.
    pub fn of(group: &str, plural: &str, subresource: &str, has_status: bool) -> Self {
        let _ = (group, plural, subresource, has_status);
        Self(())
    }
}

/// Who writes, to what and when.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The versions of the object.
    pub versions: &'a dyn Versions,
    /// Version of the request, as in `apps/v1`. All objects passed along are in this version.
    pub api_version: &'a str,
    /// Kind of the request.
    pub kind: &'a str,
    /// Name of the field manager; see [`default_manager`].
    pub manager: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// What this endpoint may not set.
    pub reset: &'a Reset,
    /// The time.
    pub now: Timestamp,
}

/// Whether an apply takes fields from other managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Conflicts are errors.
    No,
    /// Conflicting fields change hands.
    Yes,
}

/// The object after `config` was applied to `live` (nothing on create), with managed fields; still to be defaulted and
/// validated. When the apply changes nothing it equals `live`, and nothing is to be written.
pub fn apply(live: Option<&Value>, config: &Value, write: &Write<'_>, force: Force) -> Result<Value> {
    let _ = (live, config, write, force);
    Err(Status::internal("server-side apply is not served yet"))
}

/// `new`, which is about to replace `live` (nothing on create), with its managed fields brought up to date.
pub fn update(live: Option<&Value>, new: Value, write: &Write<'_>) -> Value {
    let _ = (live, write);
    new
}

/// Whether `new` differs from `old` in nothing but `resourceVersion` and the times of managed fields: then `old` stays as it is.
pub fn unchanged(old: &Value, new: &Value) -> bool {
    old == new
}

/// The field manager of a request that names none: the user agent up to the first `/`.
pub fn default_manager(user_agent: &str) -> &str {
    user_agent.split('/').next().unwrap_or_default()
}
