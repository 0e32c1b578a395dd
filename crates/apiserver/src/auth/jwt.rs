//! JSON web tokens signed with ES256, and the JWKS to verify them.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

/// Signs and verifies tokens.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    /// `kid`: the key ID in the token header.
    id: String,
    /// The key as PKCS #8.
    secret: Vec<u8>,
}

impl Signer {
    /// A signer with a new key.
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .expect("the system has a random number generator");
        Self::restore(document.as_ref()).expect("a generated key is valid")
    }

    /// The signer with this key ([`Signer::secret`]); `None` if it is not a key.
    pub(crate) fn restore(secret: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, secret, &random).ok()?;
        let id = encode(digest(&SHA256, key.public_key().as_ref()).as_ref());
        Some(Self { key, random, id, secret: secret.to_vec() })
    }

    /// The private key, to restore the signer.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Signs a token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let head = json!({"alg": "ES256", "kid": self.id});
        let text = format!("{}.{}", encode(head.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let signature = self.key.sign(&self.random, text.as_bytes()).expect("the system has a random number generator");
        format!("{text}.{}", encode(signature.as_ref()))
    }

    /// The claims of a valid token.
    pub(crate) fn verify(&self, token: &str) -> Option<Value> {
        let (text, signature) = token.rsplit_once('.')?;
        let (head, claims) = text.split_once('.')?;
        let head: Value = serde_json::from_slice(&decode(head)?).ok()?;
        if head["alg"] != "ES256" {
            return None;
        }
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        public.verify(text.as_bytes(), &decode(signature)?).ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }

    /// The public key as a JSON web key set (JWKS).
    pub(crate) fn key_set(&self) -> Value {
        // Uncompressed point: 0x04, then both coordinates.
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": encode(x), "y": encode(y),
        }]})
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("id", &self.id).finish_non_exhaustive()
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_after_a_restart() {
        let before = Signer::new();
        let claims = json!({"sub": "x"});
        let after = Signer::restore(before.secret()).unwrap();
        assert_eq!(after.verify(&before.sign(&claims)), Some(claims));
        assert!(Signer::restore(b"nothing").is_none());
    }

    #[test]
    fn only_own_and_unchanged_tokens_are_accepted() {
        let (mine, other) = (Signer::new(), Signer::new());
        let claims = json!({"sub": "x"});
        let token = mine.sign(&claims);
        assert_eq!(mine.verify(&token), Some(claims));
        assert_eq!(other.verify(&token), None);
        let forged = token.replacen(&encode(br#"{"sub":"x"}"#), &encode(br#"{"sub":"y"}"#), 1);
        assert_ne!(forged, token);
        assert_eq!(mine.verify(&forged), None);
        for garbage in ["", ".", "a.b", "a.b.c", "...."] {
            assert_eq!(mine.verify(garbage), None, "{garbage}");
        }
    }
}
