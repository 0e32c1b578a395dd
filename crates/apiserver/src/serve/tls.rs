//! A certificate authority of our own, and the certificate of the listener.

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority that lives as long as the process.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate could be made.
    #[error("making a certificate failed")]
    Certificate(#[from] rcgen::Error),
    /// The certificate cannot be served.
    #[error("setting up TLS failed")]
    Setup(#[from] rustls::Error),
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Result<Self, TlsError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// The certificate, as clients need it to trust the server.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server certificate for these names and addresses: certificate and key, DER.
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

    /// TLS for a listener with that certificate, HTTP/2 first.
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
