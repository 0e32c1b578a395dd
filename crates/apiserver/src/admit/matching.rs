//! Request matching of webhooks and policies: rules, namespace selectors, object selectors.

use std::sync::Arc;

use serde_json::{Value, json};

use super::json::Read;
use crate::error::{Result, Status};
use crate::ops::{Operation, Request};
use crate::registry::{Resource, group_version};
use crate::store::{LabelSelector, TableKey};

/// Attributes of a request that rules match.
#[derive(Clone, Debug)]
pub(super) struct Attributes {
    pub(super) resource: Arc<Resource>,
    pub(super) subresource: String,
    /// Group, version and kind of the object in the request.
    pub(super) kind: (String, String, String),
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) operation: &'static str,
}

impl Attributes {
    /// The attributes of a request; `object` is `None` for a deletion.
    pub(super) fn of(request: &Request, object: Option<&Value>) -> Self {
        let target = &request.target;
        let resource = target.resource.clone();
        let meta = object.map_or(&Value::Null, |object| &object["metadata"]);
        let name = target.name.clone().unwrap_or_else(|| meta.text("name").to_owned());
        // A Namespace is in its own namespace for this purpose.
        let is_namespace = resource.group.is_empty() && &*resource.plural == "namespaces";
        let namespace = if is_namespace { name.clone() } else { target.namespace.clone().unwrap_or_default() };
        let operation = match request.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        let subresource = target.subresource.clone().unwrap_or_default();
        let kind = kind_of(&resource, &subresource);
        Self { resource, subresource, kind, namespace, name, operation }
    }

    /// The same in another version of the resource.
    pub(super) fn in_version(&self, resource: &Arc<Resource>) -> Self {
        let kind = kind_of(resource, &self.subresource);
        Self { resource: resource.clone(), kind, ..self.clone() }
    }

    fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && &*self.resource.plural == "namespaces"
    }
}

fn kind_of(resource: &Resource, subresource: &str) -> (String, String, String) {
    let own = || (resource.group.to_string(), resource.version.to_string(), resource.kind.to_string());
    match resource.subresource(subresource).map(|sub| (sub.kind, sub.group_version)) {
        Some((Some(kind), Some((group, version)))) => (group.into(), version.into(), kind.into()),
        Some((Some(kind), None)) => (resource.group.to_string(), resource.version.to_string(), kind.into()),
        _ => own(),
    }
}

/// A rule: operations on resources.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    value.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Rule {
    /// Parses a rule.
    pub(super) fn new(rule: &Value) -> Self {
        Self {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: texts(rule, "resources"),
            names: texts(rule, "resourceNames"),
            scope: rule.text("scope").to_owned(),
        }
    }

    /// Whether it matches a request.
    pub(super) fn matches(&self, attributes: &Attributes) -> bool {
        let one_of = |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
        let cluster = attributes.is_namespace() || attributes.namespace.is_empty();
        let scope = match self.scope.as_str() {
            "Namespaced" => !cluster,
            "Cluster" => cluster,
            _ => true,
        };
        let resource = self.resources.iter().any(|item| {
            let (resource, sub) = item.split_once('/').unwrap_or((item, ""));
            (resource == "*" || resource == &*attributes.resource.plural)
                && (sub == "*" || sub == attributes.subresource)
        });
        scope
            && resource
            && one_of(&self.operations, attributes.operation)
            && one_of(&self.groups, &attributes.resource.group)
            && one_of(&self.versions, &attributes.resource.version)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }
}

/// All match criteria of a webhook or policy.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Matcher {
    /// Parses rules (`rules` of a webhook, `resourceRules` of a policy) and selectors.
    pub(super) fn new(source: &Value) -> Self {
        let rules = |key: &str| source.list(key).iter().map(Rule::new).collect::<Vec<_>>();
        let selector = |key: &str| LabelSelector::from_json(&source[key]).unwrap_or_default();
        Self {
            rules: [rules("rules"), rules("resourceRules")].concat(),
            excluded: rules("excludeResourceRules"),
            equivalent: source.text("matchPolicy") != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The attributes that match a rule: of the request itself, or of an equivalent version; `None` if no rule matches.
    pub(super) fn chosen(
        &self,
        request: &Request,
        attributes: &Attributes,
        object: Option<&Value>,
    ) -> Result<Option<Attributes>> {
        if !self.selects_object(request, object) {
            return Ok(None);
        }
        let Some(chosen) = self.ruled(request, attributes) else { return Ok(None) };
        Ok(self.selects_namespace(request, attributes, object)?.then_some(chosen))
    }

    fn ruled(&self, request: &Request, attributes: &Attributes) -> Option<Attributes> {
        let applies = |attributes: &Attributes| {
            self.rules.iter().any(|rule| rule.matches(attributes))
                && !self.excluded.iter().any(|rule| rule.matches(attributes))
        };
        if applies(attributes) {
            return Some(attributes.clone());
        }
        if !self.equivalent {
            return None;
        }
        let (own, snapshot) = (&attributes.resource, request.server.registry().snapshot());
        let mut others = snapshot.versions(&own.group, &own.plural).filter(|other| other.version != own.version);
        others.find_map(|other| {
            let other = attributes.in_version(other);
            applies(&other).then_some(other)
        })
    }

    fn selects_object(&self, request: &Request, object: Option<&Value>) -> bool {
        self.objects.is_empty()
            || object.is_some_and(|object| self.objects.matches_json(object))
            || request.old.as_deref().is_some_and(|old| self.objects.matches_json(old))
    }

    fn selects_namespace(&self, request: &Request, attributes: &Attributes, object: Option<&Value>) -> Result<bool> {
        if self.namespaces.is_empty() || (attributes.namespace.is_empty() && !attributes.is_namespace()) {
            return Ok(true);
        }
        if let Some(object) = object.filter(|_| attributes.is_namespace() && attributes.subresource.is_empty()) {
            return Ok(self.namespaces.matches_json(object));
        }
        match namespace_object(request, &attributes.namespace) {
            Some(namespace) => Ok(self.namespaces.matches_json(&namespace)),
            None => {
                let name = &attributes.namespace;
                let details = json!({"name": name, "kind": "namespaces"});
                Err(Status::new(404, "NotFound", format!("namespaces {name:?} not found")).with_details(details))
            }
        }
    }
}

/// The live namespace object.
pub(super) fn namespace_object(request: &Request, name: &str) -> Option<Value> {
    request.server.store().get(&TableKey::new("", "namespaces"), "", name).map(|namespace| namespace.value())
}

/// Converts an object to the version that a rule matched.
pub(super) fn converted(object: &Value, attributes: &Attributes, chosen: &Attributes) -> Value {
    if attributes.resource.version == chosen.resource.version || !attributes.subresource.is_empty() {
        return object.clone();
    }
    crate::ops::convert(object, &chosen.resource.api_version())
}

/// Converts an object back from the version that a rule matched.
pub(super) fn converted_back(object: Value, attributes: &Attributes, chosen: &Attributes) -> Value {
    if attributes.resource.version == chosen.resource.version || !attributes.subresource.is_empty() {
        return object;
    }
    let (group, version) = (&attributes.resource.group, &attributes.resource.version);
    debug_assert_eq!(group_version(&attributes.resource.api_version()), (&**group, &**version));
    crate::ops::convert(&object, &attributes.resource.api_version())
}
