//! Webhook configurations, parsed once per version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::ClientConfig;
use serde_json::Value;

use super::{ServiceReference, trust};
use crate::admit::json::Read;
use crate::admit::matching::{Attributes, Matcher, converted};
use crate::admit::plugins::forbidden;
use crate::admit::policy::{CONDITIONS_BUDGET, CallerAuthorizer, access, failure};
use crate::error::Result;
use crate::ops::Request;
use crate::schema::cel::{Program, Run};
use crate::store::{Object, Selection, TableKey};

/// Kind of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

/// Client configuration of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Url(String),
    Service(ServiceReference, String),
}

/// A webhook.
#[derive(Debug)]
pub(super) struct Hook {
    /// Name of the configuration and index in it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) location: Location,
    /// CA bundle, PEM.
    ca: Vec<u8>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    pub(super) timeout: Duration,
    pub(super) fails_open: bool,
    /// Whether it may be called in a dry run (`sideEffects: None`).
    pub(super) side_effect_free: bool,
    pub(super) reinvocable: bool,
    /// The first review version that both sides support.
    pub(super) review: Option<&'static str>,
    matcher: Matcher,
    conditions: Vec<Program>,
}

impl Hook {
    fn new(configuration: &str, index: usize, source: &Value) -> Self {
        let config = &source["clientConfig"];
        let service = &config["service"];
        let location = if service.is_object() {
            let path = service.text("path").trim_start_matches('/').to_owned();
            let port = service.number("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            let (namespace, name) = (service.text("namespace").to_owned(), service.text("name").to_owned());
            Location::Service(ServiceReference { namespace, name, port }, path)
        } else {
            Location::Url(config.text("url").to_owned())
        };
        let reviews = source.list("admissionReviewVersions").iter().filter_map(Value::as_str);
        let mut known = reviews.filter_map(|version| ["v1", "v1beta1"].into_iter().find(|known| *known == version));
        let conditions = source.list("matchConditions").iter();
        Self {
            id: format!("{configuration}/{index}"),
            name: source.text("name").to_owned(),
            location,
            ca: BASE64_STANDARD.decode(config.text("caBundle")).unwrap_or_default(),
            tls: OnceLock::new(),
            timeout: Duration::from_secs(
                source.number("timeoutSeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(10),
            ),
            fails_open: source.text("failurePolicy") == "Ignore",
            side_effect_free: ["None", "NoneOnDryRun"].contains(&source.text("sideEffects")),
            reinvocable: source.text("reinvocationPolicy") == "IfNeeded",
            review: known.next(),
            matcher: Matcher::new(source),
            conditions: conditions.map(|condition| Program::new(condition.text("expression"))).collect(),
        }
    }

    /// TLS configuration that trusts the webhook's CA bundle.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(|| trust::config(&self.ca)).clone()
    }

    /// The request in the version that the webhook matches; `None` if it does not match.
    pub(super) fn concerns(
        &self,
        request: &Request,
        attributes: &Attributes,
        object: Option<&Value>,
    ) -> Result<Option<Invocation>> {
        let Some(chosen) = self.matcher.chosen(request, attributes, object)? else { return Ok(None) };
        let invocation = Invocation { own: attributes.clone(), chosen };
        if self.conditions.is_empty() {
            return Ok(Some(invocation));
        }
        let errors = match self.hold(request, &invocation, object) {
            Some(errors) => errors,
            None => return Ok(None),
        };
        match errors.as_slice() {
            [] => Ok(Some(invocation)),
            _ if self.fails_open => Ok(None),
            [one] => Err(forbidden(request, object.unwrap_or(&Value::Null), one)),
            many => Err(forbidden(request, object.unwrap_or(&Value::Null), &format!("[{}]", many.join(", ")))),
        }
    }
}

impl Hook {
    /// Errors of the match conditions; `None` if one is false.
    fn hold(&self, request: &Request, invocation: &Invocation, object: Option<&Value>) -> Option<Vec<String>> {
        let authorizer = CallerAuthorizer::new(request);
        let version = |object: &Value| converted(object, &invocation.own, &invocation.chosen);
        let mut run = Run::new(CONDITIONS_BUDGET);
        run.set("object", &object.map_or(Value::Null, version));
        run.set("oldObject", &request.old.as_deref().map_or(Value::Null, version));
        run.set("request", &super::review::request(request, invocation, ""));
        run.authorize(&authorizer, access(&invocation.own));
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match run.evaluate_bool(condition) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(why) => errors.push(failure(condition, &why)),
            }
        }
        Some(errors)
    }
}

/// A matched request.
#[derive(Clone, Debug)]
pub(in crate::admit) struct Invocation {
    /// As received.
    pub(in crate::admit) own: Attributes,
    /// In the version that the rule matched.
    pub(in crate::admit) chosen: Attributes,
}

/// Webhooks of each configuration, with the revision that they were parsed from.
type Parsed = HashMap<Arc<str>, (u64, Vec<Arc<Hook>>)>;

/// Cache of all webhooks of one kind of configuration.
pub(super) struct Hooks {
    table: TableKey,
    parsed: Mutex<Parsed>,
}

impl Hooks {
    pub(super) fn new(kind: Kind) -> Self {
        let plural = match kind {
            Kind::Mutating => "mutatingwebhookconfigurations",
            Kind::Validating => "validatingwebhookconfigurations",
        };
        Self { table: TableKey::new("admissionregistration.k8s.io", plural), parsed: Mutex::default() }
    }

    fn configurations(&self, request: &Request) -> Vec<Arc<Object>> {
        request.server.store().select(&self.table, &Selection::default())
    }

    /// Whether there are any webhooks.
    pub(super) fn any(&self, request: &Request) -> bool {
        !self.configurations(request).is_empty()
    }

    /// All webhooks, ordered by the names of their configurations.
    pub(super) fn all(&self, request: &Request) -> Vec<Arc<Hook>> {
        let configurations = self.configurations(request);
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if parsed.len() > configurations.len() {
            parsed.retain(|uid, _| configurations.iter().any(|configuration| configuration.uid == *uid));
        }
        let mut hooks = Vec::new();
        for configuration in &configurations {
            let entry = parsed.get(&configuration.uid).filter(|(revision, _)| *revision == configuration.revision);
            let entry = match entry {
                Some((_, hooks)) => hooks.clone(),
                None => {
                    let value = configuration.value();
                    let sources = value.list("webhooks").iter().enumerate();
                    let fresh: Vec<Arc<Hook>> = sources
                        .map(|(index, source)| Arc::new(Hook::new(configuration.name(), index, source)))
                        .collect();
                    parsed.insert(configuration.uid.clone(), (configuration.revision, fresh.clone()));
                    fresh
                }
            };
            hooks.extend(entry);
        }
        hooks
    }
}
