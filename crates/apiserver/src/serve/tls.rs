//! A self-signed certificate authority, and the serving certificate.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    key: String,
}

/// Start of the certificate after the key.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate could not be generated.
    #[error("making a certificate failed")]
    Certificate(#[from] rcgen::Error),
    /// The certificate was rejected.
    #[error("setting up TLS failed")]
    Setup(#[from] rustls::Error),
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("pem", &self.pem).finish_non_exhaustive()
    }
}

impl Authority {
    /// A new certificate authority.
    pub fn new(name: &str) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let pem = Self::params(name)?.self_signed(&key)?.pem();
        Self::with(name, key, pem)
    }

    /// The certificate authority with this key and certificate ([`Authority::secret`]), under the same name.
    pub fn restore(name: &str, secret: &str) -> Result<Self, TlsError> {
        let at = secret.find(CERTIFICATE).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        let (key, pem) = secret.split_at(at);
        Self::with(name, KeyPair::from_pem(key)?, pem.to_owned())
    }

    /// Key and certificate as PEM, to restore the authority.
    pub fn secret(&self) -> String {
        format!("{}{}", self.key, self.pem)
    }

    fn with(name: &str, key: KeyPair, pem: String) -> Result<Self, TlsError> {
        let text = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(Self::params(name)?, key), pem, key: text })
    }

    fn params(name: &str) -> Result<CertificateParams, TlsError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(params)
    }

    /// The CA certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a serving certificate for these names and addresses: certificate and key as DER.
    pub fn issue(
        &self,
        names: &[&str],
        addresses: &[IpAddr],
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TlsError> {
        let key = KeyPair::generate()?;
        let subjects = names.iter().map(|name| (*name).to_owned()).chain(addresses.iter().map(IpAddr::to_string));
        let mut params = CertificateParams::new(subjects.collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }

    /// TLS configuration of a listener with such a certificate; ALPN prefers HTTP/2.
    pub fn server_config(&self, names: &[&str], addresses: &[IpAddr]) -> Result<Arc<ServerConfig>, TlsError> {
        let (certificate, key) = self.issue(names, addresses)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn an_authority_goes_on_after_a_restart() {
        let before = Authority::new("kubernetes").unwrap();
        let after = Authority::restore("kubernetes", &before.secret()).unwrap();
        assert_eq!((after.pem(), after.secret()), (before.pem(), before.secret()));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(before.pem().as_bytes()).unwrap()).unwrap();
        let (certificate, _) = after.issue(&["localhost"], &[]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).unwrap();
        assert!(Authority::restore("kubernetes", "nothing").is_err());
    }
}
