//! Self-managed webhook certificates: their content and renewal schedule. Pure, except for key generation.
//!
//! CA rotation: a new CA is first added to the `caBundle`, beside the old one; only after it has propagated to all API
//! servers does it sign the serving certificate. So no request fails.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Validity of the CA and of the serving certificate.
const CA_DAYS: i64 = 730;
const SERVING_DAYS: i64 = 90;

/// Time for a new CA bundle to reach every API server.
const PROPAGATION: SignedDuration = SignedDuration::from_mins(10);

/// CA and serving certificate, stored in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Trusted CA certificates, newest first, PEM.
    authorities: Vec<String>,
    /// Key of the newest CA, PEM.
    authority_key: String,
    /// The serving certificate, PEM.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
    facts: Facts,
}

/// Metadata of the certificates, so that none has to be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    /// One per CA certificate, in the same order.
    authorities: Vec<Authority>,
    /// Name of the CA that signed the serving certificate.
    signed_by: String,
    not_after: Timestamp,
    /// DNS names of the serving certificate.
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authority {
    name: String,
    made: Timestamp,
    not_after: Timestamp,
}

impl Bundle {
    /// A new CA and a serving certificate for `names`.
    pub fn new(names: &[String], now: Timestamp) -> Result<Self, Error> {
        let (authority, certificate, authority_key) = new_authority(now)?;
        let mut bundle = Self {
            authorities: vec![certificate],
            authority_key,
            certificate: String::new(),
            key: String::new(),
            facts: Facts {
                signed_by: authority.name.clone(),
                authorities: vec![authority],
                not_after: now,
                names: names.to_vec(),
            },
        };
        bundle.issue(names, now)?;
        Ok(bundle)
    }

    /// The next rotation step, if one is due. `published` says that all our CAs are in the `caBundle`.
    pub fn renewed(&self, names: &[String], published: bool, now: Timestamp) -> Result<Option<Self>, Error> {
        let Facts { authorities, signed_by, not_after, .. } = &self.facts;
        let newest = &authorities[0];
        let mut next = self.clone();
        let third = |days: i64| SignedDuration::from_hours(days * 24 / 3);
        if newest.not_after <= now || *not_after <= now {
            // Expired: too late for an overlap, after a long time without a leader.
            return Self::new(names, now).map(Some);
        }
        if newest.not_after.duration_since(now) < third(CA_DAYS) {
            let (authority, certificate, key) = new_authority(now)?;
            next.authorities.insert(0, certificate);
            next.authority_key = key;
            next.facts.authorities.insert(0, authority);
            return Ok(Some(next));
        }
        let propagated = authorities.len() == 1 || (published && now.duration_since(newest.made) >= PROPAGATION);
        let renew = *signed_by != newest.name
            || not_after.duration_since(now) < third(SERVING_DAYS)
            || self.facts.names != names;
        if renew && propagated {
            next.issue(names, now)?;
            return Ok(Some(next));
        }
        // A CA that is expired and unused.
        if let Some(index) = authorities.iter().position(|old| old.not_after <= now && old.name != *signed_by) {
            next.authorities.remove(index);
            next.facts.authorities.remove(index);
            return Ok(Some(next));
        }
        Ok(None)
    }

    /// The CA bundle for the API server, PEM.
    pub fn trusted(&self) -> String {
        self.authorities.concat()
    }

    /// Signs a new serving certificate with the newest CA.
    fn issue(&mut self, names: &[String], now: Timestamp) -> Result<(), Error> {
        let newest = &self.facts.authorities[0];
        let authority_key = KeyPair::from_pem(&self.authority_key).map_err(error)?;
        let issuer = Issuer::new(authority_params(&newest.name)?, authority_key);
        let key = KeyPair::generate().map_err(error)?;
        let mut params = CertificateParams::new(names.to_vec()).map_err(error)?;
        let name = names.first().map_or("capstan", String::as_str);
        // A common name has at most 64 characters; the SANs are what counts.
        params.distinguished_name.push(DnType::CommonName, name.chars().take(64).collect::<String>());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let not_after = set_validity(&mut params, now, SERVING_DAYS)?.min(newest.not_after);
        let certificate = params.signed_by(&key, &issuer).map_err(error)?;
        self.facts.signed_by.clone_from(&newest.name);
        self.facts.not_after = not_after;
        self.facts.names = names.to_vec();
        self.certificate = certificate.pem();
        self.key = key.serialize_pem();
        Ok(())
    }

    /// As data of a Secret. The first three keys are what other tools expect.
    pub fn to_data(&self) -> BTreeMap<String, Vec<u8>> {
        let facts = serde_json::to_vec(&self.facts).expect("names and times are valid JSON");
        [
            ("tls.crt", self.certificate.clone().into_bytes()),
            ("tls.key", self.key.clone().into_bytes()),
            ("ca.crt", self.trusted().into_bytes()),
            ("ca.key", self.authority_key.clone().into_bytes()),
            ("facts.json", facts),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// From data of a Secret; `None` if we did not write it.
    pub fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let text = |name: &str| data.get(name).and_then(|value| String::from_utf8(value.clone()).ok());
        let facts: Facts = serde_json::from_str(&text("facts.json")?).ok()?;
        let authorities: Vec<String> = split(&text("ca.crt")?);
        if authorities.is_empty() || authorities.len() != facts.authorities.len() {
            return None;
        }
        let authority_key = text("ca.key")?;
        Some(Self { authorities, authority_key, certificate: text("tls.crt")?, key: text("tls.key")?, facts })
    }
}

fn new_authority(now: Timestamp) -> Result<(Authority, String, String), Error> {
    // Unique per CA, so that no chain is built to the wrong one.
    let name = format!("capstan-webhook-{}-{:08x}", now.as_second(), fastrand::u32(..));
    let key = KeyPair::generate().map_err(error)?;
    let mut params = authority_params(&name)?;
    let not_after = set_validity(&mut params, now, CA_DAYS)?;
    let certificate = params.self_signed(&key).map_err(error)?;
    Ok((Authority { name, made: now, not_after }, certificate.pem(), key.serialize_pem()))
}

fn authority_params(name: &str) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(error)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

/// Sets the validity, in whole days: from yesterday, because of clock skew. Returns its end.
fn set_validity(params: &mut CertificateParams, now: Timestamp, days: i64) -> Result<Timestamp, Error> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let out_of_range = |error: jiff::Error| Error::Certificate(error.to_string());
    let (from, to) =
        (today.checked_sub(1.day()).map_err(out_of_range)?, today.checked_add(days.days()).map_err(out_of_range)?);
    let day = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(from);
    params.not_after = day(to);
    to.to_zoned(TimeZone::UTC).map(|end| end.timestamp()).map_err(out_of_range)
}

fn split(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = pem.split_inclusive(END).filter(|part| part.contains(END));
    parts.map(|part| format!("{}\n", part.trim())).collect()
}

fn error(error: rcgen::Error) -> Error {
    Error::Certificate(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["capstan-webhook.ns.svc".into()]
    }

    fn day(n: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(24 * n)
    }

    #[test]
    fn what_was_kept_is_read_again() {
        let bundle = Bundle::new(&names(), day(0)).unwrap();
        assert_eq!(Bundle::from_data(&bundle.to_data()), Some(bundle));
        assert_eq!(Bundle::from_data(&BTreeMap::new()), None);
    }

    #[test]
    fn nothing_is_renewed_before_its_time() {
        let bundle = Bundle::new(&names(), day(0)).unwrap();
        assert_eq!(bundle.renewed(&names(), true, day(59)).unwrap(), None);
        let renewed = bundle.renewed(&names(), true, day(61)).unwrap().unwrap();
        assert_ne!(renewed.certificate, bundle.certificate);
        assert_eq!(renewed.trusted(), bundle.trusted());
    }

    #[test]
    fn another_name_needs_another_certificate() {
        let bundle = Bundle::new(&names(), day(0)).unwrap();
        let other = vec!["other.ns.svc".to_owned()];
        assert!(bundle.renewed(&other, true, day(1)).unwrap().is_some());
    }

    /// A year by year walk: what is served is always signed by something that was trusted before.
    #[test]
    fn a_new_authority_is_trusted_before_it_signs() {
        let mut bundle = Bundle::new(&names(), day(0)).unwrap();
        let mut trusted = bundle.trusted();
        let mut authorities = std::collections::BTreeSet::new();
        for hour in 0..(24 * 365 * 4) {
            let now = day(0) + SignedDuration::from_hours(hour);
            if let Some(next) = bundle.renewed(&names(), true, now).unwrap() {
                let signer = next.facts.authorities.iter().position(|one| one.name == next.facts.signed_by).unwrap();
                assert!(trusted.contains(&next.authorities[signer]), "signed by what nobody trusts at hour {hour}");
                assert!(next.facts.not_after > now);
                trusted = next.trusted();
                bundle = next;
            }
            authorities.insert(bundle.facts.signed_by.clone());
            assert!(bundle.authorities.len() <= 2);
        }
        assert!(authorities.len() >= 3, "{authorities:?}");
    }

    #[test]
    fn an_unpublished_authority_signs_nothing() {
        let bundle = Bundle::new(&names(), day(0)).unwrap();
        let added = bundle.renewed(&names(), true, day(500)).unwrap_or_default();
        // The served certificate has long expired at that time, so everything is new.
        assert!(added.is_some_and(|bundle| bundle.facts.authorities.len() == 1));
        let mut old = Bundle::new(&names(), day(0)).unwrap();
        old.facts.not_after = day(600);
        let added = old.renewed(&names(), true, day(500)).unwrap().unwrap();
        assert_eq!((added.facts.authorities.len(), &added.certificate), (2, &old.certificate));
        assert_eq!(added.renewed(&names(), false, day(501)).unwrap(), None);
        let signed = added.renewed(&names(), true, day(501)).unwrap().unwrap();
        assert_ne!(signed.certificate, old.certificate);
    }
}
