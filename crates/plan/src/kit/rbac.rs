//! ServiceAccounts, roles and bindings: the only place that builds them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Scope;
use crate::Object;

const GROUP: &str = "rbac.authorization.k8s.io";

/// RBAC rules of a ServiceAccount, in its namespace and in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Rules of its Role.
    pub here: Vec<PolicyRule>,
    /// Rules of its ClusterRole.
    pub everywhere: Vec<PolicyRule>,
}

impl Rights {
    /// Adds rules, without deduplication.
    pub fn add(&mut self, more: Self) {
        self.here.extend(more.here);
        self.everywhere.extend(more.everywhere);
    }
}

/// One rule.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(list(resources)),
        verbs: list(verbs),
        ..PolicyRule::default()
    }
}

/// Allows to use these SecurityContextConstraints of OpenShift; no effect elsewhere.
pub fn use_constraints(names: Vec<String>) -> PolicyRule {
    PolicyRule {
        resource_names: Some(names),
        ..rule("security.openshift.io", &["securitycontextconstraints"], &["use"])
    }
}

/// A ServiceAccount.
pub fn service_account(metadata: ObjectMeta) -> Object {
    Object::new(&ServiceAccount { metadata, ..ServiceAccount::default() })
}

/// A Role.
pub fn role(metadata: ObjectMeta, rules: Vec<PolicyRule>) -> Object {
    Object::new(&Role { metadata, rules: Some(rules) })
}

/// Binds the Role `role` to a ServiceAccount, which may be in another namespace.
pub fn role_binding(metadata: ObjectMeta, role: &str, account: &str, namespace: &str) -> Object {
    Object::new(&RoleBinding {
        metadata,
        role_ref: reference("Role", role),
        subjects: Some(vec![subject(account, namespace)]),
    })
}

/// A ServiceAccount with a Role and RoleBinding of the same name; with cluster rules also a ClusterRole and
/// ClusterRoleBinding.
pub fn access(scope: &Scope, account: &str, rights: Rights) -> Vec<Object> {
    let mut objects = vec![service_account(scope.meta(account))];
    objects.extend(bound_role(scope, account, account, rights.here));
    if !rights.everywhere.is_empty() {
        objects.extend(cluster_role(scope, account, account, rights.everywhere));
    }
    objects
}

/// A ServiceAccount, Role and RoleBinding with this metadata; annotations are for the account only, as clouds bind
/// identities to accounts by them.
pub fn account_with_role(
    metadata: &ObjectMeta,
    annotations: Option<BTreeMap<String, String>>,
    rules: Vec<PolicyRule>,
) -> [Object; 3] {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (name, namespace) = (text(&metadata.name), text(&metadata.namespace));
    [
        service_account(ObjectMeta { annotations, ..metadata.clone() }),
        role(metadata.clone(), rules),
        role_binding(metadata.clone(), &name, &name, &namespace),
    ]
}

/// A Role and its binding to an account of the namespace.
pub fn bound_role(scope: &Scope, name: &str, account: &str, rules: Vec<PolicyRule>) -> [Object; 2] {
    [role(scope.meta(name), rules), role_binding(scope.meta(name), name, account, &scope.namespace)]
}

/// A ClusterRole and its binding to an account of the namespace.
pub fn cluster_role(scope: &Scope, name: &str, account: &str, rules: Vec<PolicyRule>) -> [Object; 2] {
    let metadata = || scope.cluster_meta(name);
    [
        Object::new(&ClusterRole { metadata: metadata(), rules: Some(rules), ..ClusterRole::default() }),
        Object::new(&ClusterRoleBinding {
            metadata: metadata(),
            role_ref: reference("ClusterRole", name),
            subjects: Some(vec![subject(account, &scope.namespace)]),
        }),
    ]
}

/// The rules of all Roles and ClusterRoles among `objects`. RBAC lets only a subject that has a permission grant it.
pub fn granted(objects: &[Object]) -> Rights {
    let mut rights = Rights::default();
    for object in objects {
        let rules = || serde_json::from_value::<Vec<PolicyRule>>(object.body["rules"].clone()).unwrap_or_default();
        match &*object.reference.gvk.kind {
            "Role" => rights.here.extend(rules()),
            "ClusterRole" => rights.everywhere.extend(rules()),
            _ => {}
        }
    }
    rights
}

fn reference(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some(GROUP.into()), kind: kind.into(), name: name.into() }
}

fn subject(account: &str, namespace: &str) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: account.into(),
        namespace: Some(namespace.into()),
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rights_in_the_cluster_make_a_cluster_role() {
        let scope = Scope { namespace: "n".into(), manager: "m", ..Scope::default() };
        let kinds = |rights| -> Vec<String> {
            access(&scope, "a", rights).iter().map(|object| object.reference.to_string()).collect()
        };
        let here = ["ServiceAccount n/a", "Role n/a", "RoleBinding n/a"];
        assert_eq!(kinds(Rights::default()), here);
        let everywhere = vec![rule("", &["nodes"], &["get"])];
        let all = kinds(Rights { everywhere, ..Rights::default() });
        assert_eq!(all, [&here[..], &["ClusterRole a", "ClusterRoleBinding a"]].concat());
    }

    #[test]
    fn a_binding_may_name_an_account_of_another_namespace() {
        let scope = Scope { namespace: "n".into(), manager: "m", ..Scope::default() };
        let binding = role_binding(scope.meta("b"), "r", "a", "elsewhere");
        assert_eq!(binding.body["roleRef"]["name"], "r");
        assert_eq!(binding.body["subjects"][0]["namespace"], "elsewhere");
        assert_eq!(binding.body["metadata"]["labels"]["app.kubernetes.io/managed-by"], "m");
    }
}
