//! Private keys for workloads.

use rcgen::KeyPair;

use crate::error::Error;

/// A new private key as PEM, in a form that OpenSSH reads.
pub fn private_key() -> Result<String, Error> {
    let key = KeyPair::generate().map_err(|error| Error::Certificate(error.to_string()))?;
    Ok(key.serialize_pem())
}
