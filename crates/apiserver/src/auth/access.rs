//! Authentication and authorization of one server, checked before every request.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::{FutureExt, StreamExt};

use super::{Attributes, Authenticator, Decision, Identity, MASTERS, Policy, Rbac, UserInfo};
use crate::clock::Clock;
use crate::error::Result;
use crate::ops::Server;
use crate::store::{Query, Selection, Start, Store, TableKey, Watch};

const GROUP: &str = "rbac.authorization.k8s.io";
const TABLES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Authenticator and authorizer of one server.
#[derive(Debug, Default)]
pub struct Auth {
    /// The authenticator of bearer tokens.
    pub authenticator: Authenticator,
    /// The RBAC authorizer.
    pub rbac: Rbac,
    home: OnceLock<(Store, Clock)>,
    /// Watches that invalidate the policy; empty before the first refresh.
    changes: Mutex<Vec<Watch>>,
}

impl Auth {
    /// Without tokens and not yet attached to a server.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// With an existing authenticator.
    pub fn with(authenticator: Authenticator) -> Arc<Self> {
        Arc::new(Self { authenticator, ..Self::default() })
    }

    /// Reads roles, bindings, and the objects that tokens are bound to, from this server.
    pub fn attach(&self, server: &Server) {
        let _ = self.home.set((server.store().clone(), server.clock()));
    }

    /// Authenticates a bearer token for one of `audiences` (empty: the API server).
    pub fn identify(&self, token: &str, audiences: &[String]) -> Option<Identity> {
        let (store, clock) = self.home.get()?;
        self.authenticator.authenticate(token, audiences, clock.now(), alive(store))
    }

    /// The audiences of a valid service account token.
    pub fn audiences(&self, token: &str) -> Option<Vec<String>> {
        let (store, clock) = self.home.get()?;
        self.authenticator.audiences(token, clock.now(), alive(store))
    }

    /// Authorizes a request.
    pub fn decide(&self, user: &UserInfo, request: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allow(String::new());
        }
        self.refresh();
        self.rbac.authorize(user, request)
    }

    /// Authorizes a request; fails with 403 if denied.
    pub fn authorize(&self, user: &UserInfo, request: &Attributes) -> Result<()> {
        match self.decide(user, request) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(why) => Err(request.forbidden(user, &why)),
        }
    }

    /// The current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.refresh();
        self.rbac.policy()
    }

    /// Rebuilds the policy if a role or binding changed since the last call.
    fn refresh(&self) {
        let Some((store, _)) = self.home.get() else { return };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stale = changes.len() < TABLES.len();
        for watch in changes.iter_mut() {
            // An ended watch counts as a change: it lagged too far behind.
            while let Some(event) = watch.next().now_or_never() {
                stale = true;
                if event.is_none() {
                    break;
                }
            }
        }
        if !stale {
            return;
        }
        // Watch before listing: events in between are seen twice, never missed.
        let watch = |plural: &&str| store.watch(&TableKey::new(GROUP, plural), Selection::default(), Start::Now);
        match TABLES.iter().map(watch).collect::<Result<Vec<_>>>() {
            Ok(watches) => *changes = watches,
            Err(_) => changes.clear(),
        }
        let mut policy = Policy::default();
        for plural in TABLES {
            let listing = store.list(&TableKey::new(GROUP, plural), &Query::default());
            for object in listing.map(|listing| listing.items).unwrap_or_default() {
                if plural.ends_with("bindings") {
                    policy.add_binding(&object.to_json());
                } else {
                    policy.add_role(&object.to_json());
                }
            }
        }
        self.rbac.replace(policy);
    }
}

/// Whether an object of this kind, namespace, name and UID exists.
fn alive(store: &Store) -> impl Fn(&str, &str, &str, &str) -> bool + '_ {
    |kind, namespace, name, uid| {
        let plural = match kind {
            "ServiceAccount" => "serviceaccounts",
            "Pod" => "pods",
            "Secret" => "secrets",
            _ => "nodes",
        };
        let object = store.get(&TableKey::new("", plural), namespace, name);
        object.is_some_and(|object| &*object.uid == uid)
    }
}
