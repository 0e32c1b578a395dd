//! What a plan wants to know that neither the API nor the clock tells.
//!
//! A plan asks by naming the question in its answer. Somebody asks it between two decisions, and what came back is a fact
//! of the next one. Until then the plan goes on without.

use crate::Ref;

/// A question. It is asked for as long as plans name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// Which model an endpoint serves. Asked again now and then, because an endpoint may fall silent.
    Model {
        /// Scheme, host and port.
        url: String,
        /// What serves there: another one may serve another model.
        revision: String,
    },
    /// A new private key, for a Secret that is not there yet.
    PrivateKey {
        /// The Secret.
        secret: Ref,
    },
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Name of the model, which may be empty; or why the endpoint does not say, after several tries.
    Model(Result<String, String>),
    /// The key, as PEM.
    PrivateKey(String),
}
