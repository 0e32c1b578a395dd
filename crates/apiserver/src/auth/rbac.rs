//! RBAC authorizer: Roles and ClusterRoles, granted by their bindings.
//!
//! Decisions are made on a [`Policy`], an index of all roles and bindings that is rebuilt when one of them changes.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use serde::Deserialize;
use serde_json::Value;

use super::rules::{Rule, missing, quoted};
use super::{Attributes, MASTERS, UserInfo};

/// A decision of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Allowed; the text names the binding and role.
    Allow(String),
    /// No rule allows it; the text may give a reason.
    Deny(String),
}

impl Decision {
    /// Whether the request is allowed.
    pub fn allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }
}

/// The RBAC authorizer.
#[derive(Debug, Default)]
pub struct Rbac {
    policy: RwLock<Arc<Policy>>,
}

impl Rbac {
    /// Replaces the policy.
    pub fn replace(&self, policy: Policy) {
        *self.policy.write().expect("lock is not poisoned") = Arc::new(policy);
    }

    /// The current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().expect("lock is not poisoned").clone()
    }

    /// Authorizes a request of `user`.
    pub fn authorize(&self, user: &UserInfo, request: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allow(String::new());
        }
        self.policy().authorize(user, request)
    }
}

/// A snapshot of all roles and bindings.
#[derive(Debug, Default)]
pub struct Policy {
    /// Rules by namespace and name of a Role; the namespace of a ClusterRole is empty.
    roles: HashMap<(String, String), Arc<[Rule]>>,
    /// Bindings by namespace (empty if cluster-wide) and subject.
    bindings: HashMap<String, HashMap<Subject, Vec<Arc<Binding>>>>,
}

/// Subject of a binding. A service account is the user of that name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
}

/// One subject of one binding.
#[derive(Debug)]
struct Binding {
    /// `ClusterRoleBinding "x" of ClusterRole "y" to Group "z"`.
    description: String,
    /// Namespace of the role (empty for a ClusterRole) and its name.
    role: (String, String),
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct RoleObject {
    metadata: Meta,
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingObject {
    metadata: Meta,
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<SubjectObject>>,
}

/// The role reference of a binding.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RoleRef {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct SubjectObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

impl Policy {
    /// Adds a Role or ClusterRole from its JSON; malformed ones grant nothing.
    pub fn add_role(&mut self, json: &[u8]) {
        if let Ok(role) = serde_json::from_slice::<RoleObject>(json) {
            let key = (role.metadata.namespace, role.metadata.name);
            self.roles.insert(key, role.rules.unwrap_or_default().into());
        }
    }

    /// Adds a RoleBinding or ClusterRoleBinding from its JSON; malformed ones grant nothing.
    pub fn add_binding(&mut self, json: &[u8]) {
        let Ok(object) = serde_json::from_slice::<BindingObject>(json) else { return };
        let BindingObject { metadata: Meta { name, namespace }, role_ref, subjects } = object;
        let role_namespace = if role_ref.kind == "Role" { namespace.clone() } else { String::new() };
        let role = (role_namespace, role_ref.name);
        for subject in subjects.into_iter().flatten() {
            let SubjectObject { kind, name: who, namespace: theirs } = subject;
            let theirs = if theirs.is_empty() { &namespace } else { &theirs };
            let (subject, shown) = match kind.as_str() {
                "User" => (Subject::User(who.clone()), format!("User {who:?}")),
                "Group" => (Subject::Group(who.clone()), format!("Group {who:?}")),
                "ServiceAccount" if !theirs.is_empty() => (
                    Subject::User(format!("system:serviceaccount:{theirs}:{who}")),
                    format!("ServiceAccount {:?}", format!("{who}/{theirs}")),
                ),
                _ => continue,
            };
            let binding = if namespace.is_empty() {
                format!("ClusterRoleBinding {name:?}")
            } else {
                format!("RoleBinding {:?}", format!("{name}/{namespace}"))
            };
            let description = format!("{binding} of {} {:?} to {shown}", role_ref.kind, role.1);
            let binding = Arc::new(Binding { description, role: role.clone() });
            self.bindings.entry(namespace.clone()).or_default().entry(subject).or_default().push(binding);
        }
    }

    /// Calls `visit` with the rules that `user` has cluster-wide and in `namespace`, until it returns true. Returns
    /// resolution errors: bindings to roles that do not exist.
    fn visit(&self, user: &UserInfo, namespace: &str, mut visit: impl FnMut(&Binding, &[Rule]) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        let scopes: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        let mut subjects = vec![Subject::User(user.name.clone())];
        subjects.extend(user.groups.iter().cloned().map(Subject::Group));
        for bindings in scopes.iter().filter_map(|scope| self.bindings.get(*scope)) {
            for binding in subjects.iter().filter_map(|subject| bindings.get(subject)).flatten() {
                match self.roles.get(&binding.role) {
                    Some(rules) => {
                        if visit(binding, rules) {
                            return errors;
                        }
                    }
                    None => errors.push(no_such_role(&binding.role)),
                }
            }
        }
        errors
    }

    /// Authorizes a request of `user`.
    pub fn authorize(&self, user: &UserInfo, request: &Attributes) -> Decision {
        let mut allowed = None;
        let errors = self.visit(user, &request.namespace, |binding, rules| {
            if rules.iter().any(|rule| rule.allows(request)) {
                allowed = Some(format!("RBAC: allowed by {}", binding.description));
            }
            allowed.is_some()
        });
        match (allowed, errors.as_slice()) {
            (Some(why), _) => Decision::Allow(why),
            (None, []) => Decision::Deny(String::new()),
            (None, [one]) => Decision::Deny(format!("RBAC: {one}")),
            (None, many) => Decision::Deny(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    /// All rules that `user` has in `namespace` and cluster-wide, and resolution errors.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let mut all = Vec::new();
        let errors = self.visit(user, namespace, |_, rules| {
            all.extend_from_slice(rules);
            false
        });
        (all, errors)
    }

    /// The rules of the role that a binding in `namespace` references.
    pub(crate) fn rules_of(&self, namespace: &str, role: &RoleRef) -> Result<Arc<[Rule]>, String> {
        let namespace = if role.kind == "Role" { namespace } else { "" };
        let key = (namespace.to_owned(), role.name.clone());
        self.roles.get(&key).cloned().ok_or_else(|| no_such_role(&key))
    }

    /// Fails, worded as by kube-apiserver, unless `user` already has all of `rules`.
    pub(crate) fn confirm_no_escalation(&self, user: &UserInfo, namespace: &str, rules: &[Rule]) -> Result<(), String> {
        let (owned, errors) = self.rules_for(user, namespace);
        let missing = missing(&owned, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let mut message = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            quoted(&user.groups),
            missing.join("\n")
        );
        if !errors.is_empty() {
            message += &format!("; resolution errors: [{}]", errors.join(" "));
        }
        Err(message)
    }
}

fn no_such_role((namespace, name): &(String, String)) -> String {
    let kind = if namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{kind}.rbac.authorization.k8s.io {name:?} not found")
}

/// Parses the rules of a role.
pub(crate) fn rules_in(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(|rules| Vec::<Rule>::deserialize(rules).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy() -> Policy {
        let mut policy = Policy::default();
        let role = |value: Value| value.to_string().into_bytes();
        policy.add_role(&role(json!({"metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]})));
        policy.add_role(&role(json!({"metadata": {"name": "writer", "namespace": "shop"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]})));
        policy.add_binding(&role(
            json!({"metadata": {"name": "all"}, "roleRef": {"kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "Group", "name": "staff"}]}),
        ));
        policy.add_binding(&role(json!({"metadata": {"name": "w", "namespace": "shop"},
            "roleRef": {"kind": "Role", "name": "writer"},
            "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}]})));
        policy.add_binding(&role(json!({"metadata": {"name": "x", "namespace": "shop"},
            "roleRef": {"kind": "ClusterRole", "name": "gone"}, "subjects": [{"kind": "User", "name": "ann"}]})));
        policy
    }

    fn pods(verb: &str, namespace: &str) -> Attributes {
        Attributes {
            verb: verb.into(),
            is_resource: true,
            resource: "pods".into(),
            namespace: namespace.into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn bindings_hold_where_they_are() {
        let policy = policy();
        let (ann, bot) = (UserInfo::new("ann", &["staff"]), UserInfo::service_account("ci", "bot", ""));
        let cases = [
            (&ann, pods("list", ""), true),
            (&ann, pods("list", "shop"), true),
            (&ann, pods("create", "shop"), false),
            (&bot, pods("create", "shop"), true),
            (&bot, pods("create", "ci"), false),
            (&bot, pods("list", ""), false),
        ];
        for (user, request, allowed) in cases {
            assert_eq!(policy.authorize(user, &request).allowed(), allowed, "{} {request:?}", user.name);
        }
    }

    #[test]
    fn answers_say_why() {
        let policy = policy();
        let ann = UserInfo::new("ann", &["staff"]);
        assert_eq!(
            policy.authorize(&ann, &pods("get", "shop")),
            Decision::Allow(
                r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "staff""#.into()
            )
        );
        assert_eq!(
            policy.authorize(&ann, &pods("delete", "shop")),
            Decision::Deny(r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#.into())
        );
    }

    #[test]
    fn nobody_grants_what_they_do_not_hold() {
        let policy = policy();
        let ann = UserInfo::new("ann", &["staff"]);
        let reader = policy.rules_of("", &RoleRef { kind: "ClusterRole".into(), name: "reader".into() }).unwrap();
        let writer = policy.rules_of("shop", &RoleRef { kind: "Role".into(), name: "writer".into() }).unwrap();
        assert_eq!(policy.confirm_no_escalation(&ann, "ci", &reader), Ok(()));
        let refusal = policy.confirm_no_escalation(&ann, "ci", &writer).unwrap_err();
        assert_eq!(
            refusal,
            "user \"ann\" (groups=[\"staff\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
             currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"*\"]}"
        );
    }
}
