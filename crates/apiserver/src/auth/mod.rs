//! Authentication and authorization.
//!
//! [`Authenticator`] turns a bearer token into a [`UserInfo`]; [`Rbac`] decides whether that user may do what
//! [`Attributes`] describe. Both use in-memory state, so that a request costs no store access for them.

mod access;
mod aggregate;
mod attributes;
mod authenticator;
mod bootstrap;
mod creation;
mod escalation;
mod jwt;
mod rbac;
mod rules;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use access::Auth;
pub use aggregate::aggregate;
pub use attributes::Attributes;
pub use authenticator::{Authenticator, Bound, Grant, ISSUER, Identity};
pub(crate) use bootstrap::install;
pub use creation::Creation;
pub use escalation::Escalation;
pub use rbac::{Decision, Policy, Rbac};
pub use rules::Rule;

/// The group with all permissions, whatever the roles.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of all unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of an unauthenticated user.
pub const ANONYMOUS: &str = "system:anonymous";

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// Name: `kubernetes-admin`, `system:serviceaccount:NAMESPACE:NAME` …
    #[serde(rename = "username", default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Extra attributes from the authenticator, such as the pod that a token is bound to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// An authenticated user.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The administrator: a member of [`MASTERS`].
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["kubeadm:cluster-admins", MASTERS])
    }

    /// An unauthenticated user.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let group = format!("system:serviceaccounts:{namespace}");
        let mut user =
            Self::new(format!("system:serviceaccount:{namespace}:{name}"), &["system:serviceaccounts", &group]);
        user.uid = uid.to_owned();
        user
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }
}
