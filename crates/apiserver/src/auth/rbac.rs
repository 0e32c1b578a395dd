//! Role-based access control.

use super::{Attributes, MASTERS, UserInfo};

/// What an authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go ahead; the text says which rule allows it.
    Allow(String),
    /// No rule allows it; the text may say more.
    Deny(String),
}

/// The authorizer: Roles and ClusterRoles through their bindings.
#[derive(Debug, Default)]
pub struct Rbac {}

impl Rbac {
    /// Whether `user` may do it.
    pub fn authorize(&self, user: &UserInfo, _request: &Attributes) -> Decision {
        if user.is_in(MASTERS) { Decision::Allow(String::new()) } else { Decision::Deny(String::new()) }
    }
}
