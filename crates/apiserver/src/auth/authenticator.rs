//! Bearer tokens: fixed ones, and those of service accounts, which are JWTs that we sign.

use std::collections::HashMap;
use std::sync::RwLock;

use super::UserInfo;

/// Turns bearer tokens into users.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: RwLock<HashMap<String, UserInfo>>,
}

impl Authenticator {
    /// An authenticator that knows no token yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `token` stand for `user` from now on.
    pub fn add_token(&self, token: impl Into<String>, user: UserInfo) {
        self.tokens.write().expect("no panic while held").insert(token.into(), user);
    }

    /// The user behind a token, or `None` if there is nobody.
    pub fn user_of(&self, token: &str) -> Option<UserInfo> {
        self.tokens.read().expect("no panic while held").get(token).cloned()
    }
}
