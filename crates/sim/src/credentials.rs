//! Credentials of a cluster: its certificate authority, tokens and port. A cluster on disk stores them, so that an
//! older kubeconfig still works after a restart.

use std::io::ErrorKind;
use std::sync::Arc;

use capstan_apiserver::auth::{Auth, Authenticator, UserInfo};
use capstan_apiserver::serve::{Api, Authority, Listen, ListenError, Listener, TlsError};
use capstan_apiserver::store::Store;

const NAME: &str = "kubernetes";
/// Keys in the store.
const AUTHORITY: &str = "certificate-authority";
const TOKEN_KEY: &str = "service-account-key";
const TOKEN: &str = "administrator-token";
const PORT: &str = "port";

/// The credentials.
pub(crate) struct Credentials {
    pub(crate) auth: Arc<Auth>,
    pub(crate) authority: Authority,
    /// The administrator's token.
    pub(crate) token: String,
}

impl Credentials {
    /// The stored credentials, or new ones, which are then stored if the store is on disk.
    pub(crate) fn of(store: &Store) -> Result<Self, TlsError> {
        let text = |name: &str| store.blob(name).and_then(|bytes| String::from_utf8(bytes).ok());
        let authority = match text(AUTHORITY) {
            Some(secret) => Authority::restore(NAME, &secret)?,
            None => {
                let new = Authority::new(NAME)?;
                store.put_blob(AUTHORITY, new.secret().as_bytes());
                new
            }
        };
        let auth = match store.blob(TOKEN_KEY).and_then(|secret| Authenticator::restore(&secret)) {
            Some(authenticator) => Auth::with(authenticator),
            None => {
                let new = Auth::new();
                store.put_blob(TOKEN_KEY, new.authenticator.secret());
                new
            }
        };
        let token = match text(TOKEN) {
            Some(token) => {
                auth.authenticator.add_token(token.clone(), UserInfo::admin());
                token
            }
            None => {
                let new = auth.authenticator.issue(UserInfo::admin());
                store.put_blob(TOKEN, new.as_bytes());
                new
            }
        };
        Ok(Self { auth, authority, token })
    }
}

/// Binds the given address; without a port, the previous one, or any free one if that is taken.
pub(crate) async fn listen(
    api: &Api,
    listen: Listen,
    authority: &Authority,
    store: &Store,
) -> Result<Listener, ListenError> {
    let before = store.blob(PORT).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
    let again = before.filter(|_| listen.address.port() == 0).map(|port| {
        let mut again = listen.clone();
        again.address.set_port(port);
        again
    });
    let listener = match again {
        Some(again) => match api.listen_as(again, authority).await {
            Err(ListenError::Socket(error)) if error.kind() == ErrorKind::AddrInUse => {
                api.listen_as(listen, authority).await?
            }
            other => other?,
        },
        None => api.listen_as(listen, authority).await?,
    };
    store.put_blob(PORT, &listener.address().port().to_le_bytes());
    Ok(listener)
}
