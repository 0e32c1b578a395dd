//! Every field of ClusterPolicy does something that a user can see.
//!
//! For each field of the generated schema two policies are planned that differ in this field only: in some cluster, for
//! some policy around the field, their plans must differ. A refusal does not count, since it would hide a field without
//! effect behind a bad value. What `capstan_api::ignored` lists is told to the user anyway.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

// The walk of the NIM kinds; it knows more than is needed here.
#[allow(dead_code)]
#[path = "../nim_fields/walk.rs"]
mod walk;

use std::sync::Arc;

use capstan_api::foreign::{PrometheusRule, ServiceMonitor};
use capstan_api::gpu::ClusterPolicy;
use capstan_api::ignored;
use capstan_operands::gpu::{Cluster, Fleet, IMAGES, OpenShift, cluster_policy, namespace, nodes, upgrade};
use capstan_plan::{Facts, Gvk, Ref};
use jiff::Timestamp;
use serde_json::{Value, json};

use walk::{Leaf, leaves};

/// A policy and the cluster that it is for.
struct Setting {
    name: &'static str,
    policy: Value,
    cluster: Cluster,
    /// What can be seen of the policy as it is.
    usual: Value,
}

impl Setting {
    fn new(name: &'static str, cluster: Cluster, sections: &[(&str, Value)]) -> Self {
        let mut spec = json!({
            "operator": {}, "daemonsets": {}, "driver": component(), "toolkit": component(),
            "devicePlugin": component(), "dcgmExporter": component(), "dcgm": component(),
            "nodeStatusExporter": component(), "gfd": component(),
        });
        for (section, value) in sections {
            spec[section] = value.clone();
        }
        let policy = json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "cluster-policy", "uid": "u1", "generation": 1}, "spec": spec,
        });
        let mut setting = Self { name, policy, cluster, usual: Value::Null };
        setting.usual = setting.observe(&setting.policy).unwrap_or_else(|| panic!("the policy of {name} is refused"));
        setting
    }

    /// What can be seen of a policy; `None` when it is refused.
    fn observe(&self, object: &Value) -> Option<Value> {
        let policy: ClusterPolicy = serde_json::from_value(object.clone()).unwrap();
        let plan = cluster_policy::plan(&policy, &facts(), &self.cluster);
        let objects = plan.objects?;
        let conditions = plan.status.conditions.iter().flatten();
        if conditions.clone().any(|one| one.type_ == "Error" && one.reason == "ReconcileFailed") {
            return None;
        }
        let bodies: Vec<&Value> = objects.iter().map(|object| &object.body).collect();
        let upgrades = upgrade::Settings::of(policy.spec.driver.upgrade_policy.as_ref(), None);
        let namespace = namespace::wanted(Some(&policy), None, self.cluster.openshift.is_some(), "gpu-operator");
        Some(json!({
            "objects": bodies, "status": plan.status, "node": labels(&policy), "namespace": namespace,
            "upgrades": format!("{upgrades:?}"),
        }))
    }

    /// Whether the field at `leaf` changes something of what is seen under `part`.
    fn shows(&self, leaf: &Leaf, root: &Value, part: &str) -> bool {
        let samples = &samples()[..];
        let without = leaf.surrounded(&self.policy, root, samples);
        let before = if without == self.policy { Some(self.usual.clone()) } else { self.observe(&without) };
        let Some(before) = before else { return false };
        let with = |value: Value| self.observe(&leaf.with(&self.policy, value, root, samples));
        let differs = |after: Value| after.pointer(part) != before.pointer(part);
        leaf.candidates(&without, samples).into_iter().filter_map(with).any(differs)
    }
}

/// What a node with GPUs that can be partitioned is labelled with.
fn labels(policy: &ClusterPolicy) -> Value {
    let node = json!({"metadata": {"name": "n1", "labels": {
        "feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/mig.capable": "true",
    }}});
    let wanted = nodes::Wanted::of(Some(policy), None, &[]);
    let decision = nodes::decide(&wanted, &nodes::Node::of(&node), &nodes::NodeFacts::default());
    decision.patch.to_json(None)
}

/// Values that a type does not tell.
fn samples() -> [(&'static str, Value); 2] {
    [("imagePullPolicy", json!("Always")), ("maxUnavailable", json!("10%"))]
}

/// A component that is on, with a whole image.
fn component() -> Value {
    json!({"enabled": true, "repository": "r.io", "image": "some", "version": "1"})
}

/// `base` with more fields.
fn with(mut base: Value, more: Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

fn image() -> Value {
    json!({"repository": "r.io", "image": "some", "version": "1"})
}

fn cluster(os: (&str, &str), ostree: Option<&str>) -> Cluster {
    let mut node = json!({
        "metadata": {"name": "n1", "labels": {
            "nvidia.com/gpu.present": "true",
            "feature.node.kubernetes.io/system-os_release.ID": os.0,
            "feature.node.kubernetes.io/system-os_release.VERSION_ID": os.1,
            "feature.node.kubernetes.io/kernel-version.full": "6.8.0-45-generic",
        }},
        "status": {"nodeInfo": {"containerRuntimeVersion": "containerd://2.1.0"}},
    });
    if let Some(version) = ostree {
        node["metadata"]["labels"]["feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"] = version.into();
    }
    let mut fleet = Fleet::default();
    fleet.add(&node);
    let openshift = ostree.map(|version| OpenShift {
        version: "4.19".into(),
        toolkits: Some([(version.to_owned(), "r.io/dtk:1".to_owned())].into()),
        ..OpenShift::default()
    });
    Cluster {
        namespace: "gpu-operator".into(),
        images: IMAGES.iter().map(|name| ((*name).into(), format!("r.io/{}:v1", name.to_lowercase()))).collect(),
        fleet,
        policies: vec![("2026-01-01T00:00:00Z".into(), "cluster-policy".into())],
        openshift,
        ..Cluster::default()
    }
}

/// Facts with the ConfigMaps and Secrets that the walk names, in a cluster with the Prometheus operator.
fn facts() -> Facts {
    let mut facts = Facts::at(Timestamp::from_second(1_800_000_000).unwrap());
    facts.served.extend([Gvk::of::<ServiceMonitor>(), Gvk::of::<PrometheusRule>()]);
    for kind in ["ConfigMap", "Secret"] {
        for name in ["walk-one", "walk-two"] {
            let gvk = Gvk { group: "".into(), version: "v1".into(), kind: kind.to_owned().into() };
            let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": {"a": "Yg=="}});
            facts.live.insert(Ref { gvk, namespace: "gpu-operator".into(), name: name.into() }, Arc::new(body));
        }
    }
    facts
}

/// Policies among which every field has its place.
fn settings() -> Vec<Setting> {
    let ubuntu = || cluster(("ubuntu", "24.04"), None);
    let sandbox = |name: &'static str, mode: &str| {
        let managed = || with(component(), json!({"driverManager": image()}));
        let sections = [
            ("sandboxWorkloads", json!({"enabled": true, "mode": mode})),
            ("vfioManager", managed()),
            ("vgpuManager", managed()),
            ("vgpuDeviceManager", component()),
            ("sandboxDevicePlugin", component()),
            ("kataSandboxDevicePlugin", component()),
            ("ccManager", component()),
            ("validator", image()),
        ];
        Setting::new(name, ubuntu(), &sections)
    };
    let monitored = json!({
        "serviceMonitor": {"enabled": true}, "hpcJobMapping": {"enabled": true}, "enablePodLabels": true,
    });
    let full = [
        (
            "driver",
            with(
                component(),
                json!({
                    "rdma": {"enabled": true}, "manager": image(), "licensingConfig": {"secretName": "s"},
                    "upgradePolicy": {
                        "autoUpgrade": true, "drain": {"enable": true}, "podDeletion": {},
                        "waitForCompletion": {"podSelector": "a=b"},
                    },
                }),
            ),
        ),
        ("devicePlugin", with(component(), json!({"config": {"name": "walk-one"}}))),
        ("dcgmExporter", with(component(), monitored)),
        ("gds", component()),
        ("gdrcopy", component()),
        ("validator", image()),
        ("migManager", component()),
    ];
    vec![
        Setting::new("everything for containers", ubuntu(), &full),
        Setting::new("the least", ubuntu(), &[]),
        sandbox("virtual machines", "kubevirt"),
        sandbox("confidential containers", "kata"),
        Setting::new("OpenShift", cluster(("rhcos", "4.19"), Some("9.6.1")), &[]),
    ]
}

/// The schema, and its fields that are in the table of ignored ones or are not.
fn fields(ignored: bool) -> (Value, Vec<Leaf>) {
    let root = capstan_api::kinds().find(|one| one.kind == "ClusterPolicy").unwrap().described();
    let mut fields = leaves(&root["properties"]["spec"], &["spec".into()]);
    fields.retain(|leaf| ignored::is_ignored("ClusterPolicy", &leaf.path()) == ignored);
    (root, fields)
}

#[test]
fn every_field_of_a_cluster_policy_has_an_effect() {
    let (settings, (root, fields)) = (settings(), fields(false));
    let dead: Vec<String> = fields
        .iter()
        .filter(|leaf| !settings.iter().any(|setting| setting.shows(leaf, &root, "")))
        .map(Leaf::path)
        .collect();
    assert!(fields.len() > 300, "only {} fields were looked at", fields.len());
    assert!(dead.is_empty(), "{} of {} fields without effect:\n{}", dead.len(), fields.len(), dead.join("\n"));
}

#[test]
fn what_a_cluster_policy_is_told_to_ignore_is_ignored() {
    let (settings, (root, fields)) = (settings(), fields(true));
    for leaf in &fields {
        let acts = settings.iter().find(|setting| setting.shows(leaf, &root, "/objects"));
        assert!(acts.is_none(), "{} has an effect with {}", leaf.path(), acts.map_or("", |setting| setting.name));
    }
}
