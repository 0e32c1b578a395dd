//! ClusterPolicy: what it deploys and what it says.

mod access;
mod common;
mod dcgm;
mod digest;
mod driver;
mod driver_files;
mod driver_template;
mod measures;
mod mig;
mod openshift;
mod own;
mod plugin;
mod rendered;
mod runtime_classes;
mod sandbox_templates;
mod shape;
mod stack_templates;
mod status;
mod toolkit;
mod validator;

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_api::gpu::ClusterPolicy;
use capstan_api::gpu::cluster_policy::ClusterPolicyStatus;
use capstan_plan::{Facts, Gvk, Object, Plan, Ref, Write, diff};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::plan;
use crate::gpu::fleet::OSTREE;
use crate::gpu::{Cluster, Fleet, IMAGES, OpenShift};

/// A policy with every required section, and `more` on top.
fn policy(more: Value) -> ClusterPolicy {
    let mut spec = json!({
        "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgmExporter": {},
        "dcgm": {}, "nodeStatusExporter": {}, "gfd": {},
    });
    for (section, value) in more.as_object().unwrap() {
        spec[section] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "uid": "u1", "generation": 1}, "spec": spec,
    }))
    .unwrap()
}

/// A GPU node as feature discovery and we label it.
fn node(name: &str, os: (&str, &str), kernel: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {
            "nvidia.com/gpu.present": "true",
            "feature.node.kubernetes.io/system-os_release.ID": os.0,
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": os.1,
            "feature.node.kubernetes.io/kernel-version.full": kernel,
        }},
        "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0"}},
    })
}

/// A cluster with these nodes.
fn cluster(nodes: &[Value]) -> Cluster {
    let mut fleet = Fleet::default();
    nodes.iter().for_each(|node| fleet.add(node));
    Cluster {
        namespace: "gpu-operator".into(),
        images: IMAGES.iter().map(|name| ((*name).into(), format!("r.io/{}:v1", name.to_lowercase()))).collect(),
        fleet,
        policies: vec![("2026-01-01T00:00:00Z".into(), "cluster-policy".into())],
        ..Cluster::default()
    }
}

/// One Ubuntu node.
fn ubuntu() -> Cluster {
    cluster(&[node("n1", ("ubuntu", "24.04"), "6.8.0-45-generic")])
}

fn facts() -> Facts {
    Facts::at(Timestamp::from_second(1_800_000_000).unwrap())
}

/// What `policy` makes of an empty cluster.
fn fresh(policy: &ClusterPolicy, cluster: &Cluster) -> Plan<ClusterPolicyStatus> {
    plan(policy, &facts(), cluster)
}

fn objects(plan: &Plan<ClusterPolicyStatus>) -> &[Object] {
    plan.objects.as_deref().unwrap()
}

/// The object of that kind and name, as it is applied.
fn find<'a>(plan: &'a Plan<ClusterPolicyStatus>, kind: &str, name: &str) -> Option<&'a Value> {
    let is = |object: &&Object| object.reference.gvk.kind == kind && object.reference.name == name;
    objects(plan).iter().find(is).map(|object| &object.body)
}

/// The DaemonSet of that name.
fn daemon<'a>(plan: &'a Plan<ClusterPolicyStatus>, name: &str) -> &'a Value {
    find(plan, "DaemonSet", name).unwrap_or_else(|| panic!("there is no DaemonSet {name}"))
}

/// A container of a DaemonSet, init containers included.
fn container<'a>(daemon: &'a Value, name: &str) -> Option<&'a Value> {
    let pod = &daemon["spec"]["template"]["spec"];
    let all = [&pod["initContainers"], &pod["containers"]].into_iter().filter_map(Value::as_array).flatten();
    all.into_iter().find(|one| one["name"] == name)
}

/// Literal variables of a container.
fn env(container: &Value) -> BTreeMap<&str, &str> {
    let list = container["env"].as_array().into_iter().flatten();
    list.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?))).collect()
}

/// The volume of that name.
fn volume<'a>(daemon: &'a Value, name: &str) -> Option<&'a Value> {
    daemon["spec"]["template"]["spec"]["volumes"].as_array()?.iter().find(|one| one["name"] == name)
}

/// The pod of a DaemonSet.
fn pod(daemon: &Value) -> &Value {
    &daemon["spec"]["template"]["spec"]
}

/// What `more` makes of one Ubuntu node.
fn on_ubuntu(more: Value) -> Plan<ClusterPolicyStatus> {
    fresh(&policy(more), &ubuntu())
}

/// An OpenShift cluster with nodes of this version.
fn openshift(rhcos: &[&str]) -> Cluster {
    let nodes: Vec<Value> = rhcos
        .iter()
        .map(|version| {
            let mut node = node("n1", ("rhcos", "4.19"), "5.14.0-570.el9_6.x86_64");
            node["metadata"]["labels"][OSTREE] = (*version).into();
            node["status"]["nodeInfo"]["containerRuntimeVersion"] = "cri-o://1.32".into();
            node
        })
        .collect();
    let toolkits = rhcos.iter().map(|version| ((*version).to_owned(), format!("r.io/dtk:{version}"))).collect();
    Cluster {
        openshift: Some(OpenShift { version: "4.19".into(), toolkits: Some(toolkits), ..OpenShift::default() }),
        ..cluster(&nodes)
    }
}

/// Facts with these ConfigMaps and Secrets of the operator's namespace: kind, name, data.
fn with_files(files: &[(&str, &str, Value)]) -> Facts {
    let mut facts = facts();
    for (kind, name, data) in files {
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: (*kind).to_owned().into() };
        let body = json!({"apiVersion": "v1", "kind": kind, "data": data,
            "metadata": {"name": name, "namespace": "gpu-operator"}});
        facts.live.insert(Ref { gvk, namespace: "gpu-operator".into(), name: (*name).into() }, Arc::new(body));
    }
    facts
}

/// Variables of a container in their order: `A=b`, or `A<-field` for one that is filled by a field of the pod.
fn variables(container: &Value) -> Vec<String> {
    let one = |one: &Value| {
        let name = one["name"].as_str().unwrap();
        assert!(one["value"].is_null() || one["valueFrom"].is_null(), "{name} has a value and a source");
        match one.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str) {
            Some(field) => format!("{name}<-{field}"),
            None => format!("{name}={}", one["value"].as_str().unwrap_or_default()),
        }
    };
    container["env"].as_array().into_iter().flatten().map(one).collect()
}

/// Mounts of a container, as `volume path`, with `ro`, `H2C`, `Bi` and `sub=` where they apply.
fn mounts(container: &Value) -> Vec<String> {
    let one = |one: &Value| {
        let mut text = format!("{} {}", one["name"].as_str().unwrap(), one["mountPath"].as_str().unwrap());
        if one["readOnly"] == true {
            text.push_str(" ro");
        }
        match one["mountPropagation"].as_str() {
            Some("HostToContainer") => text.push_str(" H2C"),
            Some("Bidirectional") => text.push_str(" Bi"),
            Some(other) => panic!("{other}"),
            None => {}
        }
        if let Some(sub) = one["subPath"].as_str() {
            text.push_str(&format!(" sub={sub}"));
        }
        text
    };
    container["volumeMounts"].as_array().into_iter().flatten().map(one).collect()
}

/// Volumes of a DaemonSet, as `name path type` or `name ConfigMap=… mode items`, in the order of their names.
fn volumes(daemon: &Value) -> Vec<String> {
    let one = |one: &Value| {
        let name = one["name"].as_str().unwrap();
        let items = |source: &Value| -> String {
            let items = source["items"].as_array().into_iter().flatten();
            items.map(|item| format!(" {}:{}", item["key"].as_str().unwrap(), item["path"].as_str().unwrap())).collect()
        };
        if let Some(path) = one.pointer("/hostPath/path").and_then(Value::as_str) {
            let type_ = one["hostPath"]["type"].as_str().map(|type_| format!(" {type_}")).unwrap_or_default();
            return format!("{name} {path}{type_}").replace("DirectoryOrCreate", "DoC");
        }
        if let Some(map) = one.pointer("/configMap/name").and_then(Value::as_str) {
            let mode = one["configMap"]["defaultMode"].as_i64().map(|mode| format!(" {mode:o}")).unwrap_or_default();
            return format!("{name} ConfigMap={map}{mode}{}", items(&one["configMap"]));
        }
        match one.pointer("/secret/secretName").and_then(Value::as_str) {
            Some(secret) => format!("{name} Secret={secret}{}", items(&one["secret"])),
            None => format!("{name} emptyDir"),
        }
    };
    let list = pod(daemon)["volumes"].as_array().into_iter().flatten();
    let mut list: Vec<String> = list.map(one).collect();
    list.sort();
    list
}

/// Names of containers, init containers first.
fn containers(daemon: &Value) -> Vec<&str> {
    let lists = ["initContainers", "containers"].map(|list| pod(daemon)[list].as_array());
    lists.into_iter().flatten().flatten().filter_map(|one| one["name"].as_str()).collect()
}

/// Command and arguments of a container.
fn words(container: &Value) -> Vec<&str> {
    let lists = ["command", "args"].map(|list| container[list].as_array());
    lists.into_iter().flatten().flatten().filter_map(Value::as_str).collect()
}

/// A condition of a plan: status, reason and message.
fn condition<'a>(plan: &'a Plan<ClusterPolicyStatus>, type_: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let one = plan.status.conditions.as_ref()?.iter().find(|one| one.type_ == type_)?;
    Some((one.status.as_str(), one.reason.as_str(), one.message.as_str()))
}

/// Facts after everything that `plan` wants was applied, with these counts in the status of each DaemonSet.
fn applied(plan: &Plan<ClusterPolicyStatus>, desired: i64, available: i64) -> Facts {
    let mut facts = facts();
    for Write { object, .. } in diff("u1", objects(plan), &facts.live).apply {
        let mut body = object.body.clone();
        body["metadata"]["uid"] = object.reference.to_string().into();
        body["metadata"]["resourceVersion"] = "1".into();
        body["metadata"]["generation"] = 1.into();
        if object.reference.gvk.kind == "DaemonSet" {
            body["status"] = json!({
                "observedGeneration": 1, "desiredNumberScheduled": desired, "currentNumberScheduled": desired,
                "updatedNumberScheduled": available, "numberAvailable": available,
            });
        }
        facts.live.mark_complete(object.reference.gvk.clone());
        facts.live.insert(object.reference.clone(), Arc::new(body));
    }
    facts
}
