//! Policies and bindings, parsed once per version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::admit::json::Read;
use crate::admit::matching::Matcher;
use crate::ops::Request;
use crate::schema::cel::{Env, Program, ResultType};
use crate::store::{LabelSelector, Object, Selection, TableKey};

const GROUP: &str = "admissionregistration.k8s.io";

/// A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) matcher: Matcher,
    pub(super) conditions: Vec<Program>,
    pub(super) variables: Vec<(String, Program)>,
    pub(super) validations: Vec<Validation>,
    pub(super) changes: Vec<Change>,
    /// Whether it is reinvoked if later plugins change the object (`reinvocationPolicy: IfNeeded`).
    pub(super) reinvocable: bool,
    /// Whether a policy that fails to evaluate is ignored (`failurePolicy: Ignore`).
    pub(super) fails_open: bool,
    /// `paramKind`: API version and kind.
    pub(super) parameter_kind: Option<(String, String)>,
}

/// A mutation.
pub(super) enum Change {
    /// Merges an apply configuration.
    Apply(Program),
    /// Applies a JSON patch.
    Patch(Program),
}

fn change(source: &Value) -> Change {
    match source.text("patchType") {
        "JSONPatch" => Change::Patch(Program::new(source["jsonPatch"].text("expression"))),
        _ => Change::Apply(Program::new(source["applyConfiguration"].text("expression"))),
    }
}

/// A validation expression.
pub(super) struct Validation {
    pub(super) expression: Program,
    pub(super) message: String,
    pub(super) message_expression: Option<Program>,
    pub(super) reason: &'static str,
}

/// A binding of either kind of policy.
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) matcher: Matcher,
    pub(super) denies: bool,
    pub(super) warns: bool,
    pub(super) parameter: Option<Parameter>,
}

/// `paramRef` of a binding.
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<LabelSelector>,
    /// Whether absent parameters are allowed (`parameterNotFoundAction: Allow`).
    pub(super) optional: bool,
}

/// Parsed form of a stored object.
pub(super) trait Parsed {
    fn parse(name: &str, object: &Value) -> Self;
}

impl Parsed for Policy {
    fn parse(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let kind = &spec["paramKind"];
        let program = |one: &Value| Program::new(one.text("expression"));
        Self {
            name: name.to_owned(),
            matcher: Matcher::new(&spec["matchConstraints"]),
            conditions: spec.list("matchConditions").iter().map(program).collect(),
            variables: spec.list("variables").iter().map(|one| (one.text("name").to_owned(), program(one))).collect(),
            validations: spec.list("validations").iter().map(validation).collect(),
            changes: spec.list("mutations").iter().map(change).collect(),
            reinvocable: spec.text("reinvocationPolicy") == "IfNeeded",
            fails_open: spec.text("failurePolicy") == "Ignore",
            parameter_kind: kind
                .is_object()
                .then(|| (kind.text("apiVersion").to_owned(), kind.text("kind").to_owned())),
        }
    }
}

fn validation(source: &Value) -> Validation {
    let message = source.text("messageExpression");
    Validation {
        expression: Program::new(source.text("expression")),
        message: source.text("message").to_owned(),
        message_expression: (!message.is_empty()).then(|| Program::new(message)),
        reason: match source.text("reason") {
            "Forbidden" => "Forbidden",
            "RequestEntityTooLarge" => "RequestEntityTooLarge",
            _ => "Invalid",
        },
    }
}

impl Parsed for Binding {
    fn parse(name: &str, object: &Value) -> Self {
        let spec = &object["spec"];
        let acts = |action: &str| spec.list("validationActions").iter().any(|one| one == action);
        let mut matching = spec["matchResources"].clone();
        if matching.list("resourceRules").is_empty() {
            let all = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*", "*"]});
            matching = json!({
                "resourceRules": [all],
                "excludeResourceRules": matching["excludeResourceRules"],
                "namespaceSelector": matching["namespaceSelector"],
                "objectSelector": matching["objectSelector"],
            });
        }
        let reference = &spec["paramRef"];
        let parameter = reference.is_object().then(|| Parameter {
            name: reference.text("name").to_owned(),
            namespace: reference.text("namespace").to_owned(),
            selector: LabelSelector::from_json(&reference["selector"]).ok().filter(|_| reference.has("selector")),
            optional: reference.text("parameterNotFoundAction") == "Allow",
        });
        Self {
            name: name.to_owned(),
            policy: spec.text("policyName").to_owned(),
            matcher: Matcher::new(&matching),
            denies: acts("Deny"),
            warns: acts("Warn"),
            parameter,
        }
    }
}

/// Parsed objects by UID, with the revision that they were parsed from.
type Known<T> = HashMap<Arc<str>, (u64, Arc<T>)>;

/// Cache of parsed objects.
pub(super) struct Cache<T>(Mutex<Known<T>>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

fn objects(request: &Request, plural: &str) -> Vec<Arc<Object>> {
    request.server.store().select(&TableKey::new(GROUP, plural), &Selection::default())
}

impl<T: Parsed> Cache<T> {
    /// Whether there are any objects.
    pub(super) fn any(&self, request: &Request, plural: &str) -> bool {
        !objects(request, plural).is_empty()
    }

    /// All objects, ordered by name.
    pub(super) fn all(&self, request: &Request, plural: &str) -> Vec<Arc<T>> {
        let objects = objects(request, plural);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > objects.len() {
            known.retain(|uid, _| objects.iter().any(|object| object.uid == *uid));
        }
        let mut all = Vec::with_capacity(objects.len());
        for object in &objects {
            let fresh = known.get(&object.uid).filter(|(revision, _)| *revision == object.revision);
            all.push(match fresh {
                Some((_, parsed)) => parsed.clone(),
                None => {
                    let parsed = Arc::new(T::parse(object.name(), &object.value()));
                    known.insert(object.uid.clone(), (object.revision, parsed.clone()));
                    parsed
                }
            });
        }
        all
    }
}

/// An invalid expression of a policy: its location and error.
pub(in crate::admit) struct InvalidExpression {
    /// Field below `spec`.
    pub(in crate::admit) list: &'static str,
    pub(in crate::admit) index: usize,
    pub(in crate::admit) field: &'static str,
    pub(in crate::admit) text: String,
    pub(in crate::admit) why: String,
}

/// Type-checks the expressions of a policy.
pub(in crate::admit) fn invalid_expressions(spec: &Value) -> Vec<InvalidExpression> {
    let params = spec["paramKind"].is_object();
    let mut env = if spec.has("mutations") { Env::mutation(params) } else { Env::request(params) };
    let mut found = Vec::new();
    check(&env, spec, ("matchConditions", "expression", ResultType::Bool), &mut found);
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let text = variable.text("expression");
        if !text.trim().is_empty() {
            if let Some(why) = env.type_error(text, ResultType::Any) {
                let text = text.to_owned();
                found.push(InvalidExpression { list: "variables", index, field: "expression", text, why });
            }
            env.declare(variable.text("name"), text);
        }
    }
    for (index, mutation) in spec.list("mutations").iter().enumerate() {
        let (key, field, wanted) = match mutation.text("patchType") {
            "ApplyConfiguration" => ("applyConfiguration", "applyConfiguration.expression", ResultType::Object),
            "JSONPatch" => ("jsonPatch", "jsonPatch.expression", ResultType::Patches),
            _ => continue,
        };
        let text = mutation[key].text("expression");
        if let Some(why) =
            Some(text).filter(|text| !text.trim().is_empty()).and_then(|text| env.type_error(text, wanted))
        {
            found.push(InvalidExpression { list: "mutations", index, field, text: text.to_owned(), why });
        }
    }
    check(&env, spec, ("validations", "expression", ResultType::Bool), &mut found);
    check(&env, spec, ("validations", "messageExpression", ResultType::Text), &mut found);
    check(&env, spec, ("auditAnnotations", "valueExpression", ResultType::TextOrNull), &mut found);
    found
}

fn check(env: &Env, spec: &Value, what: (&'static str, &'static str, ResultType), found: &mut Vec<InvalidExpression>) {
    let (list, field, wanted) = what;
    for (index, one) in spec.list(list).iter().enumerate() {
        let text = one.text(field);
        if let Some(why) =
            Some(text).filter(|text| !text.trim().is_empty()).and_then(|text| env.type_error(text, wanted))
        {
            found.push(InvalidExpression { list, index, field, text: text.to_owned(), why });
        }
    }
}
