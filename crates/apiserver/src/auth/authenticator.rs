//! Bearer tokens: static ones, and service account tokens, which are JWTs that we sign.

use std::collections::HashMap;
use std::sync::RwLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::UserInfo;
use super::jwt::Signer;

/// Issuer of our tokens and audience of the API server, as in most clusters.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Prefix of the user's extra fields with token details.
const EXTRA: &str = "authentication.kubernetes.io";

/// The object that a service account token is bound to: the token is invalid once it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
}

/// Contents of a new service account token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub name: String,
    /// UID of the service account.
    pub uid: String,
    /// Audiences; empty for the API server.
    pub audiences: Vec<String>,
    /// `iat` and `nbf`.
    pub issued: Timestamp,
    /// `exp`.
    pub expires: Timestamp,
    /// Objects that it is bound to: a pod may come with its node.
    pub bound: Vec<Bound>,
}

/// A valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The authenticated user.
    pub user: UserInfo,
    /// The requested audiences that the token is valid for.
    pub audiences: Vec<String>,
}

/// Authenticates bearer tokens.
#[derive(Debug)]
pub struct Authenticator {
    tokens: RwLock<HashMap<String, UserInfo>>,
    signer: Signer,
}

impl Default for Authenticator {
    fn default() -> Self {
        Self { tokens: RwLock::default(), signer: Signer::new() }
    }
}

impl Authenticator {
    /// An authenticator without tokens and with a new signing key.
    pub fn new() -> Self {
        Self::default()
    }

    /// An authenticator with an existing signing key: service account tokens signed with it stay valid.
    pub fn restore(secret: &[u8]) -> Option<Self> {
        Some(Self { tokens: RwLock::default(), signer: Signer::restore(secret)? })
    }

    /// The signing key of service account tokens, for [`Authenticator::restore`].
    pub fn secret(&self) -> &[u8] {
        self.signer.secret()
    }

    /// Adds a static token for `user`.
    pub fn add_token(&self, token: impl Into<String>, user: UserInfo) {
        self.tokens.write().expect("lock is not poisoned").insert(token.into(), user);
    }

    /// Issues a random static token for `user`.
    pub fn issue(&self, user: UserInfo) -> String {
        let token = random_id();
        self.add_token(token.clone(), user);
        token
    }

    /// Revokes a static token.
    pub fn revoke(&self, token: &str) {
        self.tokens.write().expect("lock is not poisoned").remove(token);
    }

    /// Authenticates a token for one of `audiences` (empty: the API server) at `now`. `alive` tells whether an object
    /// of a kind, namespace, name and UID exists.
    pub fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
        alive: impl Fn(&str, &str, &str, &str) -> bool,
    ) -> Option<Identity> {
        let api = [ISSUER.to_owned()];
        let wanted = if audiences.is_empty() { &api } else { audiences };
        let among = |offered: &[String]| -> Vec<String> {
            wanted.iter().filter(|audience| offered.contains(audience)).cloned().collect()
        };
        let (user, offered) = match self.tokens.read().expect("lock is not poisoned").get(token) {
            Some(user) => (user.clone(), api.to_vec()),
            None => self.service_account(token, now, alive)?,
        };
        let audiences = among(&offered);
        (!audiences.is_empty()).then_some(Identity { user, audiences })
    }

    /// The audiences of a valid service account token.
    pub fn audiences(
        &self,
        token: &str,
        now: Timestamp,
        alive: impl Fn(&str, &str, &str, &str) -> bool,
    ) -> Option<Vec<String>> {
        self.service_account(token, now, alive).map(|(_, audiences)| audiences)
    }

    fn service_account(
        &self,
        token: &str,
        now: Timestamp,
        alive: impl Fn(&str, &str, &str, &str) -> bool,
    ) -> Option<(UserInfo, Vec<String>)> {
        let claims = self.signer.verify(token)?;
        let seconds = now.as_second();
        if claims["iss"] != ISSUER || seconds >= claims["exp"].as_i64()? || seconds < claims["nbf"].as_i64()? {
            return None;
        }
        let ours = &claims["kubernetes.io"];
        let namespace = ours["namespace"].as_str()?;
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let account = &ours["serviceaccount"];
        let (name, uid) = (text(account, "name"), text(account, "uid"));
        if !alive("ServiceAccount", namespace, &name, &uid) {
            return None;
        }
        let mut user = UserInfo::service_account(namespace, &name, &uid);
        user.extra.insert(format!("{EXTRA}/credential-id"), vec![format!("JTI={}", text(&claims, "jti"))]);
        for (key, kind) in [("pod", "Pod"), ("secret", "Secret"), ("node", "Node")] {
            let Some(bound) = ours.get(key) else { continue };
            let (name, uid) = (text(bound, "name"), text(bound, "uid"));
            let scope = if kind == "Node" { "" } else { namespace };
            // A pod's node is informational; a token bound only to a node is invalid once the node is deleted.
            let only_informs = kind == "Node" && ours.get("pod").is_some();
            if !only_informs && !alive(kind, scope, &name, &uid) {
                return None;
            }
            if kind != "Secret" {
                user.extra.insert(format!("{EXTRA}/{key}-name"), vec![name]);
                user.extra.insert(format!("{EXTRA}/{key}-uid"), vec![uid]);
            }
        }
        let audiences = claims["aud"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Some((user, audiences))
    }

    /// Signs a service account token.
    pub fn sign(&self, grant: &Grant) -> String {
        let audiences = if grant.audiences.is_empty() { vec![ISSUER.to_owned()] } else { grant.audiences.clone() };
        let mut ours = json!({
            "namespace": grant.namespace,
            "serviceaccount": {"name": grant.name, "uid": grant.uid},
        });
        for bound in &grant.bound {
            ours[bound.kind.to_ascii_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        self.signer.sign(&json!({
            "iss": ISSUER,
            "sub": format!("system:serviceaccount:{}:{}", grant.namespace, grant.name),
            "aud": audiences,
            "iat": grant.issued.as_second(),
            "nbf": grant.issued.as_second(),
            "exp": grant.expires.as_second(),
            "jti": random_id(),
            "kubernetes.io": ours,
        }))
    }

    /// The public keys, as served at `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        self.signer.key_set()
    }
}

/// A random UUID.
fn random_id() -> String {
    let mut bytes = [0_u8; 16];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .expect("the system has a random number generator");
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> Grant {
        let issued = Timestamp::from_second(1_000_000).unwrap();
        Grant {
            namespace: "shop".into(),
            name: "bot".into(),
            uid: "u1".into(),
            audiences: Vec::new(),
            issued,
            expires: Timestamp::from_second(1_003_600).unwrap(),
            bound: vec![Bound { kind: "Pod".into(), name: "p".into(), uid: "u2".into() }],
        }
    }

    #[test]
    fn a_service_account_token_holds_until_it_expires_or_its_pod_goes() {
        let authenticator = Authenticator::new();
        let token = authenticator.sign(&grant());
        let at = |second| Timestamp::from_second(second).unwrap();
        let identity = authenticator.authenticate(&token, &[], at(1_000_001), |_, _, _, _| true).unwrap();
        assert_eq!(identity.user.name, "system:serviceaccount:shop:bot");
        assert_eq!(identity.user.extra["authentication.kubernetes.io/pod-name"], ["p"]);
        assert!(identity.user.is_in("system:serviceaccounts:shop"));
        assert_eq!(authenticator.authenticate(&token, &[], at(1_003_600), |_, _, _, _| true), None);
        assert_eq!(authenticator.authenticate(&token, &[], at(1_000_001), |kind, _, _, _| kind != "Pod"), None);
        assert_eq!(authenticator.authenticate(&token, &["vault".into()], at(1_000_001), |_, _, _, _| true), None);
    }

    #[test]
    fn a_fixed_token_holds_until_it_is_revoked() {
        let authenticator = Authenticator::new();
        let token = authenticator.issue(UserInfo::admin());
        let user = || authenticator.authenticate(&token, &[], Timestamp::UNIX_EPOCH, |_, _, _, _| false);
        assert_eq!(user().unwrap().user, UserInfo::admin());
        authenticator.revoke(&token);
        assert_eq!(user(), None);
    }
}
