//! RBAC escalation check on writes of roles and bindings, and their validation.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::rbac::{RoleRef, rules_in};
use super::{Attributes, Auth, MASTERS, Rule};
use crate::error::{Result, Status};
use crate::ops::{Admission, Operation, Options, Request};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Admission plugin: rejects roles and bindings that grant more than the writer's own permissions.
#[derive(Clone, Debug)]
pub struct Escalation {
    auth: Arc<Auth>,
}

impl Escalation {
    /// The plugin, with this authorizer.
    pub fn new(auth: Arc<Auth>) -> Self {
        Self { auth }
    }

    fn check(&self, request: &Request, object: &Value) -> Result<()> {
        if request.caller.user.is_in(MASTERS) {
            return Ok(());
        }
        let old = request.old.as_deref();
        let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
        if &*request.target.resource.kind == "ClusterRole" || &*request.target.resource.kind == "Role" {
            if same("rules") && same("aggregationRule") {
                return Ok(());
            }
            return self.check_role(request, object);
        }
        if same("roleRef") && same("subjects") {
            return Ok(());
        }
        self.check_binding(request, object)
    }

    fn check_role(&self, request: &Request, object: &Value) -> Result<()> {
        // The name in the path is checked, and a POST has none.
        let posted = matches!(request.options, Options::Create(_));
        let name = request.target.name.as_deref().filter(|_| !posted).unwrap_or_default();
        if self.holds(request, "escalate", &request.target.resource.plural, name) {
            return Ok(());
        }
        let (user, namespace) = (&request.caller.user, namespace_of(request));
        let policy = self.auth.policy();
        if object.get("aggregationRule").is_some_and(|rule| !rule.is_null())
            && policy.confirm_no_escalation(user, "", &everything()).is_err()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(self.forbid(request, object, why));
        }
        policy
            .confirm_no_escalation(user, namespace, &rules_in(object))
            .map_err(|why| self.forbid(request, object, &why))
    }

    fn check_binding(&self, request: &Request, object: &Value) -> Result<()> {
        let role = RoleRef::deserialize(&object["roleRef"]).unwrap_or_default();
        let plural = if role.kind == "Role" { "roles" } else { "clusterroles" };
        if self.holds(request, "bind", plural, &role.name) {
            return Ok(());
        }
        let (user, namespace) = (&request.caller.user, namespace_of(request));
        let policy = self.auth.policy();
        // The role does not exist, but kube-apiserver names the resource of the request.
        let missing = |_| Status::not_found(&request.target.resource, &role.name);
        let rules = policy.rules_of(namespace, &role).map_err(missing)?;
        policy.confirm_no_escalation(user, namespace, &rules).map_err(|why| self.forbid(request, object, &why))
    }

    /// Whether the writer has the verb `escalate` or `bind` on the role, which lifts the check.
    fn holds(&self, request: &Request, verb: &str, plural: &str, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.into(),
            is_resource: true,
            group: GROUP.into(),
            version: "*".into(),
            resource: plural.into(),
            namespace: namespace_of(request).into(),
            name: name.into(),
            ..Attributes::default()
        };
        self.auth.decide(&request.caller.user, &attributes).allowed()
    }

    fn forbid(&self, request: &Request, object: &Value, why: &str) -> Status {
        Status::forbidden(&request.target.resource, name_of(request, object), why)
    }
}

fn namespace_of(request: &Request) -> &str {
    request.target.namespace.as_deref().unwrap_or_default()
}

fn name_of<'a>(request: &'a Request, object: &'a Value) -> &'a str {
    object["metadata"]["name"].as_str().or(request.target.name.as_deref()).unwrap_or_default()
}

/// The rules of `cluster-admin`.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

impl Admission for Escalation {
    fn handles(&self, request: &Request) -> bool {
        &*request.target.resource.group == GROUP
            && matches!(request.operation, Operation::Create | Operation::Update)
            && request.target.subresource.is_none()
    }

    fn validate<'a>(&'a self, request: &'a Request, object: Option<&'a Value>) -> BoxFuture<'a, Result<()>> {
        let checked = object.map_or(Ok(()), |object| {
            self.check(request, object)?;
            let resource = &request.target.resource;
            let causes = super::validate::check(&resource.kind, object, request.old.as_deref());
            let name = name_of(request, object);
            if causes.is_empty() { Ok(()) } else { Err(Status::invalid(&resource.kind, GROUP, name, causes)) }
        });
        Box::pin(std::future::ready(checked))
    }
}
