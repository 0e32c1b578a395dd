//! Access to one server: its tokens, its policy, and the check that stands before every request.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::{FutureExt, StreamExt};

use super::{Attributes, Authenticator, Decision, Identity, MASTERS, Policy, Rbac, UserInfo};
use crate::clock::Clock;
use crate::error::Result;
use crate::ops::Server;
use crate::store::{Query, Selection, Start, Store, TableKey, Watch};

const GROUP: &str = "rbac.authorization.k8s.io";
const TABLES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

/// Who may do what on one server.
#[derive(Debug, Default)]
pub struct Auth {
    /// The tokens.
    pub authenticator: Authenticator,
    /// The policy.
    pub rbac: Rbac,
    home: OnceLock<(Store, Clock)>,
    /// What tells that the policy is no longer what the store says; nothing before the first look.
    changes: Mutex<Vec<Watch>>,
}

impl Auth {
    /// Access that knows no tokens and no server yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Access with tokens from before.
    pub fn with(authenticator: Authenticator) -> Arc<Self> {
        Arc::new(Self { authenticator, ..Self::default() })
    }

    /// Takes roles and bindings, and the objects that tokens are tied to, from this server.
    pub fn attach(&self, server: &Server) {
        let _ = self.home.set((server.store().clone(), server.clock()));
    }

    /// The identity behind a bearer token that is for one of `audiences` (empty: the API itself).
    pub fn identify(&self, token: &str, audiences: &[String]) -> Option<Identity> {
        let (store, clock) = self.home.get()?;
        self.authenticator.authenticate(token, audiences, clock.now(), alive(store))
    }

    /// For whom a token of a service account is, if it is good.
    pub fn audiences(&self, token: &str) -> Option<Vec<String>> {
        let (store, clock) = self.home.get()?;
        self.authenticator.audiences(token, clock.now(), alive(store))
    }

    /// What the authorizer says about a request.
    pub fn decide(&self, user: &UserInfo, request: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allow(String::new());
        }
        self.refresh();
        self.rbac.authorize(user, request)
    }

    /// Lets a request pass, or answers it with 403.
    pub fn authorize(&self, user: &UserInfo, request: &Attributes) -> Result<()> {
        match self.decide(user, request) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(why) => Err(request.forbidden(user, &why)),
        }
    }

    /// The policy as the store has it now.
    pub fn policy(&self) -> Arc<Policy> {
        self.refresh();
        self.rbac.policy()
    }

    /// Reads the policy again if a role or a binding changed since the last time.
    fn refresh(&self) {
        let Some((store, _)) = self.home.get() else { return };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stale = changes.len() < TABLES.len();
        for watch in changes.iter_mut() {
            // An end is as good as an event: the watch fell behind.
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
        // Watch first, then read: what happens in between is seen twice, never missed.
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

/// Tells whether the object of a kind with this namespace, name and UID exists.
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
