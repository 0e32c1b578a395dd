//! Printers of RBAC, PodDisruptionBudgets, PriorityClasses, flow control and certificates.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{NONE, labels, list, number, text, text_or};
use super::{AGE, CREATED, Cells, Column, NAME, Printer, age, created, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            (&[NAME, CREATED], |object, _| vec![name(object), created(object)])
        }
        ("rbac.authorization.k8s.io", "RoleBinding") => (ROLE_BINDING, binding),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => (CLUSTER_ROLE_BINDING, binding),
        ("policy", "PodDisruptionBudget") => (BUDGET, budget),
        ("scheduling.k8s.io", "PriorityClass") => (PRIORITY_CLASS, |object, now| {
            let default = object["globalDefault"].as_bool().unwrap_or(false);
            let policy = text(object, "/preemptionPolicy");
            vec![name(object), number(object, "/value").into(), default.into(), age(object, now), policy.into()]
        }),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => (FLOW_SCHEMA, flow_schema),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => (PRIORITY_LEVEL, priority_level),
        ("certificates.k8s.io", "CertificateSigningRequest") => (SIGNING_REQUEST, signing_request),
        ("certificates.k8s.io", "PodCertificateRequest") => (POD_CERTIFICATE, pod_certificate),
        ("certificates.k8s.io", "ClusterTrustBundle") => {
            (TRUST_BUNDLE, |object, _| vec![name(object), text_or(object, "/spec/signerName", NONE).into()])
        }
        _ => return None,
    };
    Some(Printer { columns, cells })
}

const ROLE_BINDING: &[Column] = &[
    NAME,
    Column::own(
        "Role",
        "string",
        "roleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the \
         RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    Column::own("Users", "string", "Users in the roleBinding").wide(),
    Column::own("Groups", "string", "Groups in the roleBinding").wide(),
    Column::own("ServiceAccounts", "string", "ServiceAccounts in the roleBinding").wide(),
];

const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    Column::own(
        "Role",
        "string",
        "roleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the \
         Authorizer must return an error.",
    ),
    AGE,
    Column::own("Users", "string", "Users in the clusterRoleBinding").wide(),
    Column::own("Groups", "string", "Groups in the clusterRoleBinding").wide(),
    Column::own("ServiceAccounts", "string", "ServiceAccounts in the clusterRoleBinding").wide(),
];

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let named = list(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
        let names: Vec<String> = named
            .map(|subject| match text(subject, "/namespace") {
                namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(subject, "/name")),
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    vec![name(object), role.into(), age(object, now), subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

const BUDGET: &[Column] = &[
    NAME,
    Column::own("Min Available", "string", "The minimum number of pods that must be available."),
    Column::own("Max Unavailable", "string", "The maximum number of pods that may be unavailable."),
    Column::own("Allowed Disruptions", "integer", "Calculated number of pods that may be disrupted at this time."),
    AGE,
];

fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let amount = |field: &str| match &object["spec"][field] {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => "N/A".to_owned(),
    };
    vec![
        name(object),
        amount("minAvailable").into(),
        amount("maxUnavailable").into(),
        number(object, "/status/disruptionsAllowed").into(),
        age(object, now),
    ]
}

const PRIORITY_CLASS: &[Column] = &[
    NAME,
    Column::of("Value", "integer", "scheduling.v1.PriorityClass", "value"),
    Column::of("Global-Default", "boolean", "scheduling.v1.PriorityClass", "globalDefault"),
    AGE,
    Column::of("PreemptionPolicy", "string", "scheduling.v1.PriorityClass", "preemptionPolicy"),
];

const FLOW_SCHEMA: &[Column] = &[
    NAME,
    Column::of("PriorityLevel", "string", "flowcontrol.v1.PriorityLevelConfigurationReference", "name"),
    Column::of("MatchingPrecedence", "string", "flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence"),
    Column::of("DistinguisherMethod", "string", "flowcontrol.v1.FlowSchemaSpec", "distinguisherMethod"),
    AGE,
    Column::own("MissingPL", "string", "references a broken or non-existent PriorityLevelConfiguration"),
];

fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Dangling");
    let dangling = dangling.map_or("?", |condition| text_or(condition, "/status", "?"));
    vec![
        name(object),
        text(object, "/spec/priorityLevelConfiguration/name").into(),
        number(object, "/spec/matchingPrecedence").into(),
        text_or(object, "/spec/distinguisherMethod/type", NONE).into(),
        age(object, now),
        dangling.into(),
    ]
}

const PRIORITY_LEVEL: &[Column] = &[
    NAME,
    Column::of("Type", "string", "flowcontrol.v1.PriorityLevelConfigurationSpec", "type"),
    Column::of(
        "NominalConcurrencyShares",
        "string",
        "flowcontrol.v1.LimitedPriorityLevelConfiguration",
        "nominalConcurrencyShares",
    ),
    Column::of("Queues", "string", "flowcontrol.v1.QueuingConfiguration", "queues"),
    Column::of("HandSize", "string", "flowcontrol.v1.QueuingConfiguration", "handSize"),
    Column::of("QueueLengthLimit", "string", "flowcontrol.v1.QueuingConfiguration", "queueLengthLimit"),
    AGE,
];

fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let number_or_none = |pointer: &str| match object.pointer(pointer).and_then(Value::as_i64) {
        Some(number) => Value::from(number),
        None => NONE.into(),
    };
    let queues = "/spec/limited/limitResponse/queuing";
    vec![
        name(object),
        text(object, "/spec/type").into(),
        number_or_none("/spec/limited/nominalConcurrencyShares"),
        number_or_none(&format!("{queues}/queues")),
        number_or_none(&format!("{queues}/handSize")),
        number_or_none(&format!("{queues}/queueLengthLimit")),
        age(object, now),
    ]
}

const SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    Column::of("SignerName", "string", "certificates.v1.CertificateSigningRequestSpec", "signerName"),
    Column::of("Requestor", "string", "certificates.v1.CertificateSigningRequestSpec", "request"),
    Column::of("RequestedDuration", "string", "certificates.v1.CertificateSigningRequestSpec", "expirationSeconds"),
    Column::of("Condition", "string", "certificates.v1.CertificateSigningRequestStatus", "conditions"),
];

fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let wanted = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let told = |kind: &str| list(object, "/status/conditions").iter().any(|condition| condition["type"] == kind);
    let mut condition = vec![match (told("Denied"), told("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }];
    if told("Failed") {
        condition.push("Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        condition.push("Issued");
    }
    vec![
        name(object),
        age(object, now),
        text_or(object, "/spec/signerName", NONE).into(),
        text(object, "/spec/username").into(),
        wanted.map_or(NONE.to_owned(), super::format::duration).into(),
        condition.join(",").into(),
    ]
}

const POD_CERTIFICATE: &[Column] = &[
    NAME,
    Column::of("PodName", "string", "certificates.v1.PodCertificateRequestSpec", "podName"),
    Column::of("ServiceAccountName", "string", "certificates.v1.PodCertificateRequestSpec", "serviceAccountName"),
    Column::of("NodeName", "string", "certificates.v1.PodCertificateRequestSpec", "nodeName"),
    Column::of("SignerName", "string", "certificates.v1.PodCertificateRequestSpec", "signerName"),
    Column::own("State", "string", "Is the request Pending, Issued, Denied, or Failed?"),
    Column::of(
        "UnverifiedUserAnnotations",
        "string",
        "certificates.v1.PodCertificateRequestSpec",
        "unverifiedUserAnnotations",
    ),
];

fn pod_certificate(object: &Value, _now: Timestamp) -> Vec<Value> {
    let mut told = list(object, "/status/conditions").iter().map(|condition| text(condition, "/type"));
    let state = told.rfind(|kind| matches!(*kind, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
    let spec = |field: &str| Value::from(text(object, &format!("/spec/{field}")));
    vec![
        name(object),
        spec("podName"),
        spec("serviceAccountName"),
        spec("nodeName"),
        spec("signerName"),
        state.into(),
        labels(object.pointer("/spec/unverifiedUserAnnotations")).into(),
    ]
}

const TRUST_BUNDLE: &[Column] =
    &[NAME, Column::of("SignerName", "string", "certificates.v1.ClusterTrustBundleSpec", "signerName")];
