//! The server: what all verbs share.

use std::sync::Arc;

use super::{
    Admission, Caller, DeleteOptions, Deleted, GetOptions, Kinds, ListOptions, Patch, Payload, Target, WatchStream,
    WriteOptions, Written,
};
use crate::clock::Clock;
use crate::error::{Result, Status};
use crate::store::{Listing, Object, Retention, Store};

/// What a server is made of.
#[derive(Default)]
pub struct Settings {
    /// How much history is kept.
    pub retention: Retention,
    /// Time; real time if none is given.
    pub clock: Option<Clock>,
    /// Admission plugins, in order.
    pub admission: Vec<Arc<dyn Admission>>,
    /// What is built in about kinds.
    pub kinds: Option<Arc<dyn Kinds>>,
    /// Seed of UIDs and generated names; random if none is given.
    pub seed: Option<u64>,
}

/// A Kubernetes API. Clones share one state.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    clock: Clock,
}

impl Server {
    /// A server without objects. Call it inside a tokio runtime.
    pub fn new(settings: Settings) -> Self {
        let store = Store::new(settings.retention);
        let clock = settings.clock.unwrap_or_else(Clock::real);
        Self { inner: Arc::new(Inner { store, clock }) }
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The time.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// One object, in the version of the request.
    pub async fn get(&self, caller: &Caller, target: &Target, options: &GetOptions) -> Result<Arc<Object>> {
        let _ = (caller, target, options);
        Err(later())
    }

    /// Many objects, in the version of the request.
    pub async fn list(&self, caller: &Caller, target: &Target, options: &ListOptions) -> Result<Listing> {
        let _ = (caller, target, options);
        Err(later())
    }

    /// What happens to objects, in the version of the request.
    pub async fn watch(&self, caller: &Caller, target: &Target, options: &ListOptions) -> Result<WatchStream> {
        let _ = (caller, target, options);
        Err(later())
    }

    /// Adds an object, or posts to a subresource: `eviction`, `binding`.
    pub async fn create(
        &self,
        caller: &Caller,
        target: &Target,
        body: Payload,
        options: &WriteOptions,
    ) -> Result<Written> {
        let _ = (caller, target, body, options);
        Err(later())
    }

    /// Replaces an object, its status or its scale.
    pub async fn update(
        &self,
        caller: &Caller,
        target: &Target,
        body: Payload,
        options: &WriteOptions,
    ) -> Result<Written> {
        let _ = (caller, target, body, options);
        Err(later())
    }

    /// Changes an object, its status or its scale.
    pub async fn patch(
        &self,
        caller: &Caller,
        target: &Target,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Written> {
        let _ = (caller, target, patch, options);
        Err(later())
    }

    /// Deletes an object, now or when its time is over.
    pub async fn delete(&self, caller: &Caller, target: &Target, options: &DeleteOptions) -> Result<Deleted> {
        let _ = (caller, target, options);
        Err(later())
    }

    /// Deletes all selected objects; the answer is the list of them.
    pub async fn delete_collection(
        &self,
        caller: &Caller,
        target: &Target,
        select: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Listing> {
        let _ = (caller, target, select, options);
        Err(later())
    }
}

fn later() -> Status {
    Status::internal("this verb is not served yet")
}
