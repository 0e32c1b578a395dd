//! What a request says besides its body, and what it is answered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::error::Status;
use crate::registry::Resource;
use crate::store::Object;

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The user.
    pub user: UserInfo,
    /// `User-Agent`: names the field manager when the request does not.
    pub user_agent: String,
}

impl Caller {
    /// A part of the control plane, which may do everything.
    pub fn system(component: &str) -> Self {
        let user = UserInfo::new(format!("system:{component}"), &[crate::auth::MASTERS]);
        Self { user, user_agent: component.to_owned() }
    }
}

/// What a request is about.
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
    /// An object that was never text, or whose text is of no interest.
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

/// What to do about fields that the server does not know or that are there twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// Warn.
    #[default]
    Warn,
    /// Refuse.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Do everything except the write.
    pub dry_run: bool,
    /// Name of the field manager, or empty for the user agent's.
    pub field_manager: String,
    /// What to do about unknown fields.
    pub field_validation: FieldValidation,
    /// Server-side apply takes fields from other managers.
    pub force: bool,
}

/// How a patch is meant.
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
    /// How it is meant.
    pub kind: PatchKind,
    /// The body, JSON also for an apply.
    pub body: Payload,
}

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They lose their owner and stay.
    Orphan,
    /// They go after the owner.
    Background,
    /// They go before the owner.
    Foreground,
}

/// What must hold for a deletion to happen.
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
    /// Seconds that the object has to end; the kind's own default if not said.
    pub grace: Option<i64>,
    /// What becomes of dependents.
    pub propagation: Option<Propagation>,
    /// What must hold.
    pub preconditions: Preconditions,
    /// Do everything except the write.
    pub dry_run: bool,
}

/// Options of get.
#[derive(Clone, Debug, Default)]
pub struct GetOptions {
    /// `resourceVersion`: an answer no older than this.
    pub resource_version: String,
}

/// Options of list, watch and deletecollection, as they are in the query.
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

/// The answer to a create, update or patch.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object, in the version of the request.
    pub object: Arc<Object>,
    /// Whether it is new: 201 instead of 200.
    pub created: bool,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// The answer to a delete.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The last state of the object.
    pub object: Arc<Object>,
    /// Whether it is gone; otherwise it waits for its grace period or for finalizers.
    pub gone: bool,
    /// Whether the answer is the object; otherwise it is a Status of success.
    pub show_object: bool,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

/// What a watch sends.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object came into view.
    Added(Arc<Object>),
    /// An object changed.
    Modified(Arc<Object>),
    /// An object went out of view.
    Deleted(Arc<Object>),
    /// Everything up to this revision was sent.
    Bookmark {
        /// The revision.
        revision: u64,
        /// Whether this ends the initial events, which the bookmark says in an annotation.
        initial: bool,
    },
    /// The watch ends with an error.
    Error(Status),
}

/// The events of a watch. Its end is the end of the watch.
pub type WatchStream = BoxStream<'static, WatchEvent>;
