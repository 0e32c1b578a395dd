//! Request options and results of the verbs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::error::Status;
use crate::registry::Resource;
use crate::store::Object;

/// The client of a request.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The user.
    pub user: UserInfo,
    /// `User-Agent`: the default field manager.
    pub user_agent: String,
}

impl Caller {
    /// A control-plane component, with all permissions.
    pub fn system(component: &str) -> Self {
        let user = UserInfo::new(format!("system:{component}"), &[crate::auth::MASTERS]);
        Self { user, user_agent: component.to_owned() }
    }
}

/// The target of a request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource, in the version of the request.
    pub resource: Arc<Resource>,
    /// The namespace in the path; `None` for cluster-scoped resources and for lists over all namespaces.
    pub namespace: Option<String>,
    /// The name in the path.
    pub name: Option<String>,
    /// The subresource in the path.
    pub subresource: Option<String>,
}

impl Target {
    /// All objects of a resource, or all in a namespace.
    pub fn all(resource: Arc<Resource>, namespace: Option<&str>) -> Self {
        Self { resource, namespace: namespace.map(Into::into), name: None, subresource: None }
    }

    /// One object.
    pub fn one(resource: Arc<Resource>, namespace: Option<&str>, name: &str) -> Self {
        Self { name: Some(name.into()), ..Self::all(resource, namespace) }
    }

    /// A subresource of one object.
    #[expect(clippy::should_implement_trait, reason = "nobody subtracts from a target")]
    pub fn sub(self, subresource: &str) -> Self {
        Self { subresource: Some(subresource.into()), ..self }
    }
}

/// The body of a write.
#[derive(Clone, Debug)]
pub enum Payload {
    /// JSON text.
    Json(Bytes),
    /// An object that is already parsed.
    Object(Value),
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        Self::Object(value)
    }
}

impl From<Bytes> for Payload {
    fn from(text: Bytes) -> Self {
        Self::Json(text)
    }
}

/// Treatment of unknown and duplicate fields (`fieldValidation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Reject the request.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Validate and admit, but do not write.
    pub dry_run: bool,
    /// Name of the field manager; derived from the user agent if empty.
    pub field_manager: String,
    /// Treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Server-side apply takes over fields of other managers.
    pub force: bool,
}

/// Patch type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}

/// A patch.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Patch type.
    pub kind: PatchKind,
    /// The body; JSON for an apply, too.
    pub body: Payload,
}

/// Propagation policy: what happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Their owner references are removed.
    Orphan,
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
}

/// Preconditions of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object has this UID.
    pub uid: Option<String>,
    /// The object has this resource version.
    pub resource_version: Option<String>,
}

/// Options of delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Grace period in seconds; the kind's default if `None`.
    pub grace: Option<i64>,
    /// Propagation policy.
    pub propagation: Option<Propagation>,
    /// Preconditions.
    pub preconditions: Preconditions,
    /// Validate and admit, but do not write.
    pub dry_run: bool,
}

/// Options of get.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// `resourceVersion`: the result is at least as new.
    pub resource_version: String,
}

/// Options of list, watch and deletecollection, as in the query string.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// `labelSelector`
    pub label_selector: String,
    /// `fieldSelector`
    pub field_selector: String,
    /// `limit`, 0 for no limit.
    pub limit: usize,
    /// `continue`
    pub continue_token: String,
    /// `resourceVersion`
    pub resource_version: String,
    /// `resourceVersionMatch`
    pub resource_version_match: String,
    /// `timeoutSeconds` of a watch.
    pub timeout: Option<Duration>,
    /// `allowWatchBookmarks`
    pub allow_bookmarks: bool,
    /// `sendInitialEvents`
    pub send_initial_events: Option<bool>,
}

/// The result of a create, update or patch.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object, in the version of the request.
    pub object: Arc<Object>,
    /// Whether it was created: 201 instead of 200.
    pub created: bool,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// The result of a delete.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The last state of the object.
    pub object: Arc<Object>,
    /// Whether it was removed; otherwise it waits for its grace period or for finalizers.
    pub gone: bool,
    /// Whether the response is the object; otherwise it is a success Status.
    pub show_object: bool,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object was created, or started to match the selectors.
    Added(Arc<Object>),
    /// An object changed.
    Modified(Arc<Object>),
    /// An object was deleted, or no longer matches the selectors.
    Deleted(Arc<Object>),
    /// All events up to this revision were sent.
    Bookmark {
        /// The revision.
        revision: u64,
        /// Whether this ends the initial events: the bookmark has the annotation `k8s.io/initial-events-end`.
        initial: bool,
    },
    /// The watch failed and ends.
    Error(Status),
}

/// The event stream of a watch.
pub type WatchStream = BoxStream<'static, WatchEvent>;
