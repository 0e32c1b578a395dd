//! Bootstrap RBAC policy: the default roles and bindings of every cluster.
//!
//! The roles are in two text files beside this one, one rule per line.

use serde_json::{Map, Value, json};

use crate::error::{Result, Status};
use crate::ops::{Caller, Server, Target, WriteOptions};
use crate::registry::group_version;

const CLUSTER_ROLES: &str = include_str!("cluster-roles.txt");
const CONTROLLER_ROLES: &str = include_str!("controller-roles.txt");
const GROUP: &str = "rbac.authorization.k8s.io";
/// Write access to events in both groups that serve them.
const EVENTS: &str = "core events.k8s.io | events | create patch update";

/// Kinds and names of subjects. Service accounts are in `kube-system`.
type Subjects = &'static [(&'static str, &'static str)];

/// ClusterRole and subjects of the ClusterRoleBinding of the same name.
const BINDINGS: &[(&str, Subjects)] = &[
    ("cluster-admin", &[("Group", "system:masters")]),
    ("system:basic-user", &[("Group", "system:authenticated")]),
    ("system:cluster-trust-bundle-discovery", &[("Group", "system:serviceaccounts")]),
    ("system:discovery", &[("Group", "system:authenticated")]),
    ("system:kube-controller-manager", &[("User", "system:kube-controller-manager")]),
    ("system:kube-dns", &[("ServiceAccount", "kube-dns")]),
    ("system:kube-scheduler", &[("User", "system:kube-scheduler")]),
    ("system:monitoring", &[("Group", "system:monitoring")]),
    ("system:node", &[]),
    ("system:node-proxier", &[("User", "system:kube-proxy")]),
    ("system:public-info-viewer", &[("Group", "system:authenticated"), ("Group", "system:unauthenticated")]),
    ("system:service-account-issuer-discovery", &[("Group", "system:serviceaccounts")]),
    ("system:volume-scheduler", &[("User", "system:kube-scheduler")]),
];

/// Namespaced roles: namespace, name, rules.
const ROLES: &[(&str, &str, &[&str])] = &[
    ("kube-public", SIGNER, &["core | configmaps | read", "core | configmaps | update | cluster-info", EVENTS]),
    ("kube-system", READER, &["core | configmaps | read | extension-apiserver-authentication"]),
    ("kube-system", "system::leader-locking-kube-controller-manager", LOCKING),
    ("kube-system", "system::leader-locking-kube-scheduler", LOCKING),
    ("kube-system", SIGNER, &["core | secrets | read"]),
    ("kube-system", "system:controller:cloud-provider", &["core | configmaps | create get list watch"]),
    ("kube-system", "system:controller:token-cleaner", &["core | secrets | delete get list watch", EVENTS]),
];

const SIGNER: &str = "system:controller:bootstrap-signer";
const READER: &str = "extension-apiserver-authentication-reader";
const LOCKING: &[&str] = &[
    "coordination.k8s.io | leases | create get list update watch",
    "coordination.k8s.io | leasecandidates | create get list update watch",
];

/// RoleBindings: namespace, name prefix, role, subjects.
#[rustfmt::skip]
const ROLE_BINDINGS: &[(&str, &str, &str, Subjects)] = &[
    ("kube-public", "", SIGNER, &[("ServiceAccount", "bootstrap-signer")]),
    ("kube-system", "system::", READER, &[
        ("User", "system:kube-controller-manager"), ("User", "system:kube-scheduler"),
    ]),
    ("kube-system", "", "system::leader-locking-kube-controller-manager", &[
        ("User", "system:kube-controller-manager"), ("ServiceAccount", "kube-controller-manager"),
        ("ServiceAccount", "leader-election-controller"),
    ]),
    ("kube-system", "", "system::leader-locking-kube-scheduler", &[
        ("User", "system:kube-scheduler"), ("ServiceAccount", "kube-scheduler"),
    ]),
    ("kube-system", "", SIGNER, &[("ServiceAccount", "bootstrap-signer")]),
    ("kube-system", "", "system:controller:cloud-provider", &[("ServiceAccount", "cloud-provider")]),
    ("kube-system", "", "system:controller:token-cleaner", &[("ServiceAccount", "token-cleaner")]),
];

/// All objects, roles before bindings; the namespaces must exist.
pub(crate) fn objects() -> Vec<Value> {
    let mut objects = roles(CLUSTER_ROLES, "");
    objects.sort_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    // Each aggregates the one before.
    for name in ["view", "edit", "admin"] {
        aggregate(&mut objects, name);
    }
    let controllers = roles(CONTROLLER_ROLES, "system:controller:");
    let names: Vec<String> =
        controllers.iter().filter_map(|role| role["metadata"]["name"].as_str().map(str::to_owned)).collect();
    objects.extend(controllers);
    for (namespace, name, rules) in ROLES {
        let rules: Vec<Value> = rules.iter().map(|line| rule(line)).collect();
        objects.push(object("Role", name, namespace, json!({"rules": rules})));
    }
    for (role, subjects) in BINDINGS {
        objects.push(binding("ClusterRole", role, "", subjects));
    }
    for name in &names {
        let account = name.trim_start_matches("system:controller:");
        objects.push(binding("ClusterRole", name, "", &[("ServiceAccount", account)]));
    }
    for (namespace, prefix, role, subjects) in ROLE_BINDINGS {
        let mut binding = binding("Role", role, namespace, subjects);
        binding["metadata"]["name"] = format!("{prefix}{role}").into();
        objects.push(binding);
    }
    objects
}

/// Sets the rules of an aggregated ClusterRole from those that it selects, so that they apply from the start.
fn aggregate(roles: &mut [Value], name: &str) {
    let label = format!("{GROUP}/aggregate-to-{name}");
    let mut rules: Vec<Value> = Vec::new();
    for role in roles.iter().filter(|role| role["metadata"]["labels"][&label] == "true") {
        for rule in role["rules"].as_array().into_iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    for role in roles.iter_mut().filter(|role| role["metadata"]["name"] == name) {
        role["rules"] = rules.clone().into();
    }
}

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates the default namespaces, roles and bindings. Existing objects are kept.
pub(crate) async fn install(server: &Server) -> Result<()> {
    let namespaces =
        NAMESPACES.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let caller = Caller::system("kube-apiserver");
    for object in namespaces.into_iter().chain(objects()) {
        let (group, version) = group_version(object["apiVersion"].as_str().unwrap_or_default());
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = server.registry().by_kind(group, version, kind).ok_or_else(Status::no_such_resource)?;
        let namespace = object["metadata"]["namespace"].as_str();
        let target = Target::all(resource.clone(), namespace);
        match server.create(&caller, &target, object.clone().into(), &WriteOptions::default()).await {
            Err(status) if status.reason != "AlreadyExists" => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

fn roles(text: &str, prefix: &str) -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let Some(line) = line.strip_prefix("  ") else {
            roles.push(object("ClusterRole", &format!("{prefix}{line}"), "", json!({"rules": []})));
            continue;
        };
        let role = roles.last_mut().expect("a rule follows the name of its role");
        let label = |key: &str| format!("{GROUP}/{key}");
        if let Some(key) = line.strip_prefix("+ ") {
            role["metadata"]["labels"][label(key)] = "true".into();
        } else if let Some(key) = line.strip_prefix("< ") {
            let selector = json!({"matchLabels": {label(key): "true"}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        } else if let Some(rules) = role["rules"].as_array_mut() {
            rules.push(rule(if line == "events" { EVENTS } else { line }));
        }
    }
    roles
}

fn rule(line: &str) -> Value {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let words = |text: &str| -> Vec<String> {
        text.split(' ').map(|word| if word == "core" { String::new() } else { word.to_owned() }).collect()
    };
    match *columns.as_slice() {
        [urls, list] => json!({"nonResourceURLs": words(urls), "verbs": verbs(list)}),
        [groups, resources, list] => {
            json!({"apiGroups": words(groups), "resources": words(resources), "verbs": verbs(list)})
        }
        [groups, resources, list, names] => json!({
            "apiGroups": words(groups), "resources": words(resources), "verbs": verbs(list),
            "resourceNames": words(names),
        }),
        _ => unreachable!("a rule has two, three or four columns: {line}"),
    }
}

fn verbs(text: &str) -> Vec<&str> {
    match text {
        "read" => vec!["get", "list", "watch"],
        "write" => vec!["create", "delete", "deletecollection", "patch", "update"],
        "all" => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        list => list.split(' ').collect(),
    }
}

fn binding(kind: &str, role: &str, namespace: &str, subjects: &[(&str, &str)]) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|(kind, name)| match *kind {
            "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "kube-system"}),
            _ => json!({"apiGroup": GROUP, "kind": kind, "name": name}),
        })
        .collect();
    let mut content = json!({"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}});
    if !subjects.is_empty() {
        content["subjects"] = subjects.into();
    }
    object(&format!("{kind}Binding"), role, namespace, content)
}

fn object(kind: &str, name: &str, namespace: &str, content: Value) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    let mut object = Map::new();
    object.insert("apiVersion".into(), format!("{GROUP}/v1").into());
    object.insert("kind".into(), kind.into());
    object.insert("metadata".into(), metadata);
    if let Value::Object(content) = content {
        object.extend(content);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_has_its_role() {
        let objects = objects();
        let key = |object: &Value, name: &Value| (object["kind"].to_string(), name.to_string());
        let roles: Vec<_> = objects.iter().map(|object| key(object, &object["metadata"]["name"])).collect();
        let bindings = objects.iter().filter(|object| object.get("roleRef").is_some());
        for binding in bindings {
            let wanted = key(&binding["roleRef"], &binding["roleRef"]["name"]);
            assert!(roles.contains(&wanted), "{binding}");
        }
        assert!(objects.len() > 130, "{}", objects.len());
    }

    #[test]
    fn the_notation_is_read() {
        let objects = objects();
        let find = |name: &str| objects.iter().find(|object| object["metadata"]["name"] == name).unwrap();
        assert_eq!(
            find("cluster-admin")["rules"],
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}])
        );
        assert_eq!(
            find("edit")["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"],
            json!({"rbac.authorization.k8s.io/aggregate-to-edit": "true"})
        );
        let edit = find("edit")["rules"].as_array().unwrap();
        assert!(find("view")["rules"].as_array().unwrap().iter().all(|rule| edit.contains(rule)));
        let rule = &find("system:controller:cronjob-controller")["rules"][5];
        assert_eq!(rule["apiGroups"], json!(["", "events.k8s.io"]));
    }
}
