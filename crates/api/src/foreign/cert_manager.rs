//! cert-manager (cert-manager.io/v1): serving certificates of webhooks outside OpenShift.

use crate::json_schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::resource::{Kind, Namespaced, NoStatus, Resource};

const GROUP: &str = "cert-manager.io";

/// Who signs certificates.
pub type Issuer = Resource<IssuerSpec>;
/// A certificate to keep in a Secret.
pub type Certificate = Resource<CertificateSpec>;

/// Who signs certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerSpec {
    /// Each certificate signs itself; an empty object.
    pub self_signed: Option<Value>,
}

impl Kind for IssuerSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Issuer";
    const PLURAL: &'static str = "issuers";
}

/// A certificate to keep in a Secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSpec {
    /// Names that it is valid for.
    pub dns_names: Option<Vec<String>>,
    /// Who signs it.
    pub issuer_ref: Option<IssuerRef>,
    /// Secret that receives certificate, key and CA.
    pub secret_name: Option<String>,
}

impl Kind for CertificateSpec {
    type Status = NoStatus;
    type Scope = Namespaced;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "Certificate";
    const PLURAL: &'static str = "certificates";
}

/// Who signs a certificate.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// `Issuer` or `ClusterIssuer`; `Issuer` when unset.
    pub kind: Option<String>,
    /// Its name.
    pub name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_survives;
    use super::*;
    use serde_json::json;

    #[test]
    fn issuer_survives() {
        assert_survives::<IssuerSpec>(&json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Issuer",
            "metadata": {"name": "nv-ipam-selfsigned-issuer", "namespace": "nvidia-network-operator"},
            "spec": {"selfSigned": {}},
        }));
    }

    #[test]
    fn certificate_survives() {
        assert_survives::<CertificateSpec>(&json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": {"name": "nv-ipam-serving-cert", "namespace": "nvidia-network-operator"},
            "spec": {
                "dnsNames": ["nv-ipam-webhook-service.nvidia-network-operator.svc"],
                "issuerRef": {"kind": "Issuer", "name": "nv-ipam-selfsigned-issuer"},
                "secretName": "nv-ipam-webhook-server-cert",
            },
        }));
    }
}
