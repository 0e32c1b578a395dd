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
use crate::admit::policy::{Asker, CONDITIONS_BUDGET, access, failure};
use crate::error::Result;
use crate::ops::Request;
use crate::schema::cel::{Program, Run};
use crate::store::{Object, Selection, TableKey};

/// Which configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Url(String),
    Service(ServiceReference, String),
}

/// One webhook.
#[derive(Debug)]
pub(super) struct Hook {
    /// Name of the configuration and position in it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) location: Location,
    /// PEM.
    ca: Vec<u8>,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    pub(super) timeout: Duration,
    pub(super) fails_open: bool,
    /// Whether it may be called for a dry run.
    pub(super) free_of_effects: bool,
    pub(super) reinvocable: bool,
    /// The first review version that both sides know.
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
            free_of_effects: ["None", "NoneOnDryRun"].contains(&source.text("sideEffects")),
            reinvocable: source.text("reinvocationPolicy") == "IfNeeded",
            review: known.next(),
            matcher: Matcher::new(source),
            conditions: conditions.map(|condition| Program::new(condition.text("expression"))).collect(),
        }
    }

    /// TLS that trusts the webhook's authority.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(|| trust::config(&self.ca)).clone()
    }

    /// The request as the webhook wants to see it; nothing if it does not.
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
    /// What match conditions failed with; nothing if one does not hold.
    fn hold(&self, request: &Request, invocation: &Invocation, object: Option<&Value>) -> Option<Vec<String>> {
        let asker = Asker::new(request);
        let version = |object: &Value| converted(object, &invocation.own, &invocation.chosen);
        let mut run = Run::new(CONDITIONS_BUDGET);
        run.set("object", &object.map_or(Value::Null, version));
        run.set("oldObject", &request.old.as_deref().map_or(Value::Null, version));
        run.set("request", &super::review::request(request, invocation, ""));
        run.authorize(&asker, access(&invocation.own));
        let mut errors = Vec::new();
        for condition in &self.conditions {
            match run.truth(condition) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(why) => errors.push(failure(condition, &why)),
            }
        }
        Some(errors)
    }
}

/// A request as a webhook sees it.
#[derive(Clone, Debug)]
pub(in crate::admit) struct Invocation {
    /// As it was made.
    pub(in crate::admit) own: Attributes,
    /// As the rule wants it.
    pub(in crate::admit) chosen: Attributes,
}

/// The webhooks of each configuration, and the revision that they were read from.
type Parsed = HashMap<Arc<str>, (u64, Vec<Arc<Hook>>)>;

/// All webhooks of one kind of configuration.
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

    /// Whether there are any.
    pub(super) fn any(&self, request: &Request) -> bool {
        !self.configurations(request).is_empty()
    }

    /// All of them, ordered by the names of configurations.
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
