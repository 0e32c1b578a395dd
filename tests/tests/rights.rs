//! The operator as its own ServiceAccount, with the rights that the chart gives it: it needs all of them, and no others.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::SocketAddr;
use std::time::Duration;

use capstan_apiserver::auth::UserInfo;
use capstan_apiserver::error::Status;
use capstan_apiserver::faults::{Fault, Matcher, Verb};
use capstan_operator::rights::Right;
use capstan_operator::{Certificate, Endpoint, Options, gpu};
use capstan_runtime::kinds::{KINDS, Kind, Presence, Scope};
use capstan_runtime::webhook::rotation;
use capstan_runtime::{Anchor, leader};
use capstan_sim::{Cluster, NodeTemplate, node};
use capstan_tests::real::HOME;
use capstan_tests::rights::{Recorder, Streams, all, atoms, release, roles};
use capstan_tests::simulated::downloads;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const ANCHOR: &str = "capstan-anchor";
const API: &str = "apps.nvidia.com/v1alpha1";
const TIMEOUT: Duration = Duration::from_secs(90);

/// A cluster with everything that the operator may meet, and its roles.
struct Place {
    cluster: Cluster,
    admin: Client,
    recorder: Recorder,
    stop: CancellationToken,
}

impl Place {
    /// The first object of each kind that the operator makes meets somebody who was faster: it has to look.
    fn let_others_be_faster(&self) {
        for kind in KINDS.iter().filter(|kind| kind.purpose.verbs().contains(&"get")) {
            let operator = UserInfo::service_account(HOME, "capstan", "");
            let made = Matcher::new().verb(Verb::Patch).user(&operator.name).group(kind.group).resource(kind.plural);
            let conflict = Status::new(409, "Conflict", "somebody was faster");
            self.cluster.server.faults().add(Fault::fail(made.subresource(""), conflict).nth(1));
        }
    }

    async fn start(rights: &[Right]) -> Self {
        let gpus = [("nvidia.com/gpu".into(), "64".into())].into();
        let feature = |name: &str, value: &str| (format!("feature.node.kubernetes.io/{name}"), value.to_owned());
        let labels = [
            feature("pci-10de.present", "true"),
            feature("system-os_release.ID", "rhcos"),
            feature("system-os_release.VERSION_ID", "4.19"),
        ];
        let labels = labels.into();
        let soon = Some(Duration::from_millis(100));
        let behaviour = node::Behaviour { started_after: soon, ready_after: soon, ..node::Behaviour::default() };
        let settings = node::Settings {
            nodes: vec![NodeTemplate { name: "gpu-0".into(), capacity: gpus, labels, ..NodeTemplate::default() }],
            rules: [vec![(node::Match::default(), behaviour)], downloads()].concat(),
            ..node::Settings::default()
        };
        let cluster = Cluster::builder().node_settings(settings).start().await.unwrap();
        let account = UserInfo::service_account(HOME, "capstan", "");
        let recorder = Recorder::new(cluster.api().as_user(account), Streams::Yes);
        let place = Self { admin: cluster.client(), cluster, recorder, stop: CancellationToken::new() };
        place.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})).await;
        for role in roles(rights, HOME, "capstan") {
            place.apply(role).await;
        }
        let anchor = json!({"name": ANCHOR});
        place
            .apply(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": anchor}))
            .await;
        let class = json!({"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}});
        let storage = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": class, "provisioner": "x.io/v"});
        place.apply(storage).await;
        for kind in KINDS.iter().filter(|kind| is_foreign(kind)) {
            place.apply(stub(kind)).await;
        }
        place.apply(webhook_configuration()).await;
        place
    }

    /// Starts an operator as the chart does. Returns where its metrics are.
    async fn operator(&self, pod: &str, streams: Streams) -> SocketAddr {
        self.run(pod, streams, None).await
    }

    async fn run(&self, pod: &str, streams: Streams, crd_anchor: Option<Anchor>) -> SocketAddr {
        let anchor = Some(Anchor { cluster_role: ANCHOR.into() });
        let endpoint = || Endpoint { address: free_port(), certificate: Certificate::Own };
        let metrics = endpoint();
        let address = metrics.address;
        let options = Options {
            leader: Some(leader::Settings { anchor: anchor.clone(), ..leader::Settings::new(HOME, pod) }),
            metrics: Some(metrics),
            webhook: Some(endpoint()),
            certificate_rotation: Some(rotation::Settings {
                namespace: HOME.into(),
                secret: rotation::SECRET.into(),
                configuration: Some(release().webhook_configuration),
                names: vec![format!("capstan-metrics.{HOME}.svc")],
                anchor,
            }),
            crd_anchor,
            gpu: operands(),
            ..Options::in_process()
        };
        let client = Client::new(self.recorder.beside(streams), "default");
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(capstan_operator::run(client, options, self.stop.clone(), ready));
        let waited = tokio::time::timeout(TIMEOUT, is_ready).await;
        waited.unwrap_or_else(|_| panic!("the operator is not ready; {}", self.recorder.last())).unwrap();
        address
    }

    async fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let api = self.api(&object);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let params = PatchParams::apply("test").force();
        // A CRD is served a moment after it was accepted.
        let applied = async {
            loop {
                match api.patch(&name, &params, &Patch::Apply(&object)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => return other,
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answer = tokio::time::timeout(TIMEOUT, applied).await;
        answer
            .unwrap_or_else(|_| panic!("{name} is not served"))
            .unwrap_or_else(|error| panic!("apply {name}: {error}"));
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    /// Waits until the object is as wanted; `Null` is one that is not there.
    async fn until(&self, object: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
        let (api, name) = (self.api(object), object["metadata"]["name"].as_str().unwrap());
        let mut last = Value::Null;
        let look = async {
            loop {
                let live = api.get_opt(name).await.unwrap();
                last = live.map_or(Value::Null, |live| serde_json::to_value(live).unwrap());
                if wanted(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, look).await;
        assert!(found.is_ok(), "{last} is not as wanted; {}", self.recorder.last());
        last
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cluster.stop();
    }
}

/// Images of others, except for feature discovery and validator: these are ours where a policy names none.
fn operands() -> gpu::Settings {
    let mut settings = gpu::Settings {
        requestor: Some(requestor()),
        readiness: gpu::Readiness { condition: true, taint: None },
        ..capstan_tests::world::operands_in(HOME)
    };
    settings.images.retain(|variable, _| !["GFD_IMAGE", "VALIDATOR_IMAGE"].contains(&variable.as_str()));
    settings.agent.image = capstan_tests::world::OWN_IMAGE.into();
    settings
}

fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Kinds that come with others' CRDs.
fn is_foreign(kind: &Kind) -> bool {
    let ours = capstan_api::kinds().any(|ours| ours.kind == kind.kind);
    kind.presence == Presence::Optional && !ours && kind.group != "resource.k8s.io"
}

fn stub(kind: &Kind) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", kind.plural, kind.group),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": kind.group, "scope": if kind.scope == Scope::Cluster { "Cluster" } else { "Namespaced" },
            "names": {"kind": kind.kind, "plural": kind.plural},
            "versions": [{"name": kind.version, "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn webhook_configuration() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": release().webhook_configuration},
        "webhooks": [{
            "name": "a.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            "clientConfig": {"service": {"name": "capstan-webhook-service", "namespace": HOME}},
            "rules": [{"apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["xs"]}],
        }],
    })
}

fn service(name: &str, storage: Value) -> Value {
    json!({
        "apiVersion": API, "kind": "NIMService", "metadata": {"name": name, "namespace": "default"},
        "spec": {"image": {"repository": "nvcr.io/nim/x", "tag": "1"}, "storage": storage, "replicas": 1,  "resources": {"limits": {"nvidia.com/gpu": 1}}},
    })
}

/// A cache that becomes Ready, and an engine that is built from it.
fn cache_and_build() -> [Value; 2] {
    let meta = |name: &str| json!({"name": name, "namespace": "default"});
    let source = json!({"ngc": {"authSecret": "ngc", "modelPuller": "nim:1", "model": {"profiles": ["trt"]}}});
    let storage = json!({"pvc": {"create": true, "size": "50Gi"}});
    let build =
        json!({"nimCache": {"name": "small"}, "modelName": "tuned", "image": {"repository": "nim", "tag": "1"}});
    [
        json!({"apiVersion": API, "kind": "NIMCache", "metadata": meta("small"), "spec": {"source": source, "storage": storage}}),
        json!({"apiVersion": API, "kind": "NIMBuild", "metadata": meta("engine"), "spec": build}),
    ]
}

/// What the examples and the services above make, one of each kind.
const MADE: &[(&str, &str, &str)] = &[
    ("rbac.authorization.k8s.io/v1", "Role", "host"),
    ("rbac.authorization.k8s.io/v1", "Role", "proxy"),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "autoscaling"),
    ("networking.k8s.io/v1", "Ingress", "ingress"),
    ("monitoring.coreos.com/v1", "ServiceMonitor", "ingress"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", "gateway"),
    ("gateway.networking.k8s.io/v1", "GRPCRoute", "gateway"),
    ("inference.networking.k8s.io/v1", "InferencePool", "gateway"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "multi-node-lws"),
    ("resource.nvidia.com/v1beta1", "ComputeDomain", "multi-node"),
    ("serving.kserve.io/v1beta1", "InferenceService", "kserve"),
];

fn examples() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/nim");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let read = |path| {
        let mut example: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        example["metadata"]["namespace"] = "default".into();
        if example["metadata"]["name"] == "multi-node" {
            example["spec"]["schedulerName"] = "volcano".into();
        }
        example
    };
    files.map(read).collect()
}

/// NeMo services, with what they need: the roles of Customizers and Evaluators grant the most.
async fn nemo(place: &Place) {
    let files = ["prerequisites", "pipeline", "customizer", "datastore", "entitystore", "evaluator", "guardrail"];
    let objects: Vec<Value> = files.iter().flat_map(|file| capstan_tests::nemo::read(file)).collect();
    for mut object in
        objects.into_iter().filter(|one| !["StatefulSet", "NIMService"].iter().any(|kind| one["kind"] == *kind))
    {
        object["metadata"]["namespace"] = "default".into();
        place.apply(object.clone()).await;
        if capstan_tests::nemo::KINDS.iter().any(|kind| object["kind"] == *kind) {
            place.until(&object, state("Ready")).await;
        }
    }
    // The finalizers of another operator go.
    for file in ["customizer", "datastore", "entitystore", "evaluator", "guardrail"] {
        let mut held = capstan_tests::nemo::service(file);
        let kind = held["kind"].as_str().unwrap().to_owned();
        let part =
            if ["NemoEntitystore", "NemoGuardrail"].contains(&&*kind) { kind.clone() } else { kind.to_lowercase() };
        held["metadata"] = json!({
            "name": "held", "namespace": "default", "finalizers": [format!("finalizer.{part}.apps.nvidia.com")],
        });
        place.apply(held.clone()).await;
        place.api(&held).delete("held", &DeleteParams::default()).await.unwrap();
        place.until(&held, Value::is_null).await;
    }
}

fn state(wanted: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["status"]["state"] == wanted
}

/// An object that an earlier operator made for `owner` and that nobody wants any more.
fn leftover(kind: &Kind, owner: &Value) -> Value {
    let meta = &owner["metadata"];
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = match kind.kind {
        "NIMService" => service("left-over", json!({"emptyDir": {}}))["spec"].take(),
        "Pod" => template["spec"].clone(),
        "Job" => json!({"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": template["spec"]["containers"],
        }}}),
        "Deployment" => json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}),
        "DaemonSet" => json!({"selector": {"matchLabels": {"a": "b"}}, "template": template}),
        "StatefulSet" => {
            json!({"replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template})
        }
        "HorizontalPodAutoscaler" => {
            json!({"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}})
        }
        "Service" => json!({"ports": [{"port": 80}]}),
        "Ingress" => json!({"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}),
        "ResourceClaimTemplate" => {
            json!({"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "g"}}]}}})
        }
        "ComputeDomain" => json!({"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": "x"}}}),
        _ => Value::Null,
    };
    let mut object = json!({
        "apiVersion": kind.gvk().api_version(), "kind": kind.kind,
        "metadata": {
            // What a service that was left over made may take a while to go.
            "name": format!("left-over-{}", kind.plural), "namespace": "default", "labels": {"app.kubernetes.io/managed-by": "k8s-nim-operator"},
            "ownerReferences": [{
                "apiVersion": API, "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": true,
            }],
        },
    });
    if !spec.is_null() {
        object["spec"] = spec;
    }
    if kind.kind == "RoleBinding" {
        object["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"});
    }
    object
}

/// Every operand of GPU nodes, on OpenShift: those for virtual machines, then those for confidential containers, then
/// none.
async fn gpus(place: &Place) {
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
        "status": {"history": [{"state": "Completed", "version": "4.19.3"}]},
    });
    place.apply(version.clone()).await;
    let status = Patch::Merge(json!({"status": version["status"]}));
    place.api(&version).patch("version", &PatchParams::default(), &status).await.unwrap();
    let on = json!({"enabled": true});
    let named = json!({"repository": "example.com", "image": "named", "version": "1"});
    let policy = |mode: &str| {
        json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"},
            "spec": {
                "operator": {}, "daemonsets": {}, "driver": {}, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
                "gfd": named, "validator": named, "dcgmExporter": {"enablePodLabels": true, "serviceMonitor": on}, "nodeStatusExporter": on,
                "vgpuManager": on, "vgpuDeviceManager": on, "vfioManager": on, "sandboxDevicePlugin": on,
                "kataSandboxDevicePlugin": on, "ccManager": on, "sandboxWorkloads": {"enabled": true, "mode": mode},
            },
        })
    };
    let daemon = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": HOME},
        })
    };
    place.apply(policy("kubevirt")).await;
    let (plugin, manager) = (daemon("nvidia-sandbox-device-plugin-daemonset"), daemon("nvidia-cc-manager"));
    place.until(&plugin, |live| !live.is_null()).await;
    let mut kata = policy("kata");
    kata["spec"]["cdi"] = json!({"enabled": false});
    kata["spec"]["nodeStatusExporter"] = json!({"enabled": false});
    place.apply(kata).await;
    place.until(&manager, |live| !live.is_null()).await;
    place.until(&plugin, Value::is_null).await;
    maintenance(place).await;
    let driver = json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": "default"},
        "spec": {"default": true, "driverType": "gpu", "image": "example.com/driver:1"},
    });
    place.apply(driver.clone()).await;
    place.until(&driver, state("disabled")).await;
    own_roles(place, policy("kata")).await;
    let policy = policy("kata");
    place.api(&policy).delete("cluster-policy", &DeleteParams::default()).await.unwrap();
    place.until(&manager, Value::is_null).await;
    // One of two drivers goes only when its nodes have moved.
    let mut spare = driver.clone();
    spare["metadata"]["name"] = "spare".into();
    (spare["spec"]["default"], spare["spec"]["nodeSelector"]) = (false.into(), json!({"nobody": "has it"}));
    place.apply(spare.clone()).await;
    place.until(&spare, |live| live["metadata"]["finalizers"].is_array()).await;
    place.api(&spare).delete("spare", &DeleteParams::default()).await.unwrap();
    place.until(&spare, Value::is_null).await;
    claims(place).await;
}

/// What our own image does needs other rights than the images of others.
async fn own_roles(place: &Place, mut policy: Value) {
    policy["spec"]["gfd"] = json!({"enabled": true});
    policy["spec"]["validator"] = json!({"hostNetwork": false});
    policy["spec"]["sandboxWorkloads"] = json!({"enabled": false});
    place.apply(policy).await;
    for (name, verb) in [("nvidia-gpu-feature-discovery", "patch"), ("nvidia-operator-validator", "deletecollection")] {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": HOME},
        });
        place.until(&role, |role| role["rules"].to_string().contains(&format!("\"{verb}\""))).await;
    }
}

/// The same through claims: everything, then less, then nothing.
async fn claims(place: &Place) {
    let cluster = |dra_driver: Value| {
        json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "metadata": {"name": "gpu-cluster"},
            "spec": {
                "draDriver": dra_driver, "dcgm": {"enabled": true}, "dcgmExporter": {"serviceMonitor": {"enabled": true}},
            },
        })
    };
    let of = |api: &str, kind: &str, namespace: Option<&str>, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let everything = cluster(json!({"computeDomains": {}, "featureGates": {"MPSSupport": true}}));
    place.apply(everything.clone()).await;
    let plugin = of("apps/v1", "DaemonSet", Some(HOME), "nvidia-dra-driver-kubelet-plugin");
    place.until(&plugin, |live| !live.is_null()).await;
    let live = place.until(&everything, |live| live["metadata"]["finalizers"].is_array()).await;
    place.apply(cluster(json!({"computeDomains": {"enabled": false}}))).await;
    let class = of("resource.k8s.io/v1", "DeviceClass", None, "compute-domain-daemon.nvidia.com");
    place.until(&class, Value::is_null).await;
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let mut left = of("admissionregistration.k8s.io/v1", kind, None, "left-over");
        left["spec"] = match kind {
            "ValidatingAdmissionPolicy" => json!({
                "validations": [{"expression": "true"}],
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["xs"],
                }]},
            }),
            _ => json!({"policyName": "left-over", "validationActions": ["Audit"]}),
        };
        left["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "gpu-operator"});
        left["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "nvidia.com/v1alpha1", "kind": "GPUCluster", "name": "gpu-cluster",
            "uid": live["metadata"]["uid"], "controller": true,
        }]);
        place.apply(left.clone()).await;
        place.until(&left, Value::is_null).await;
    }
    place.api(&live).delete("gpu-cluster", &DeleteParams::default()).await.unwrap();
    place.until(&live, Value::is_null).await;
}

/// As whom nodes are asked for.
fn requestor() -> gpu::Requestor {
    gpu::Requestor { namespace: "default".into(), id: "nvidia.gpu.operator".into(), prefix: "nvidia-operator".into() }
}

/// A driver is upgraded on a node that somebody else takes out of use: first together with another requestor, then, as
/// that one has gone, alone.
async fn maintenance(place: &Place) {
    let policy = |version: &str| {
        let driver = json!({
            "repository": "example.com", "image": "driver", "version": version, "upgradePolicy": {"autoUpgrade": true},
        });
        json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"},
            "spec": {
                "operator": {}, "daemonsets": {}, "driver": driver, "toolkit": {}, "devicePlugin": {}, "dcgm": {},
                "gfd": {"enabled": true}, "dcgmExporter": {"enabled": true}, "nodeStatusExporter": {"enabled": false},
            },
        })
    };
    let request = json!({
        "apiVersion": "maintenance.nvidia.com/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": requestor().name("gpu-0"), "namespace": "default"},
        "spec": {"requestorID": "network.operator", "nodeName": "gpu-0"},
    });
    place.apply(request.clone()).await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "nvidia-driver-daemonset", "namespace": HOME},
    });
    for version in ["1", "2"] {
        place.apply(policy(version)).await;
        let image = format!("example.com/driver:{version}-");
        let runs = |live: &Value| live["status"]["numberAvailable"] == 1 && live.to_string().contains(&image);
        place.until(&set, runs).await;
    }
    place.until(&request, |live| live["spec"]["additionalRequestors"] == json!([requestor().id])).await;
    place.api(&request).delete(&requestor().name("gpu-0"), &DeleteParams::default()).await.unwrap();
    place.until(&request, |live| live["spec"]["requestorID"] == requestor().id.as_str()).await;
}

/// A scrape as Prometheus does it: over TLS, with the authority from the Secret, and with a token.
async fn scrape(place: &Place, address: SocketAddr, authority: &Value, user: UserInfo) -> Result<String, u16> {
    let token = place.cluster.api().auth().authenticator.issue(user);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": authority,
            "tls-server-name": format!("capstan-metrics.{HOME}.svc"),
        }}],
        "users": [{"name": "u", "user": {"token": token}}],
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/metrics").body(kube::client::Body::empty()).unwrap();
    // No answer at all, as before the new certificate is served, is no code.
    let answer = client.send(request).await.map_err(|_| 0_u16)?;
    let code = answer.status();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    if code.is_success() { Ok(String::from_utf8_lossy(&body).into_owned()) } else { Err(code.as_u16()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_is_needed_and_none_is_missing() {
    let place = Place::start(&all()).await;
    place.let_others_be_faster();
    let metrics = place.operator("one", Streams::Yes).await;
    // A standby on a server that streams no lists.
    place.operator("two", Streams::No).await;

    // A service with a claim, one with a directory of the host, whose pods are allowed more, and every example.
    let good = service("llama", json!({"pvc": {"create": true, "size": "50Gi"}}));
    place.apply(good.clone()).await;
    let ready = place.until(&good, state("Ready")).await;
    place.apply(service("host", json!({"hostPath": "/models"}))).await;
    for example in examples() {
        place.apply(example).await;
    }
    for (api_version, kind, name) in MADE {
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        place.until(&object, |object| !object.is_null()).await;
    }

    let key = json!({"name": "ngc", "namespace": "default"});
    place
        .apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": key, "stringData": {"NGC_API_KEY": "k"}}))
        .await;
    for object in cache_and_build() {
        place.apply(object.clone()).await;
        place.until(&object, state("Ready")).await;
    }

    // What an earlier operator left.
    let pipeline =
        json!({"apiVersion": API, "kind": "NIMPipeline", "metadata": {"name": "rag", "namespace": "default"}});
    let pipeline = place.until(&pipeline, |pipeline| !pipeline.is_null()).await;
    for kind in KINDS.iter().filter(|kind| kind.purpose.prunes() && kind.scope == Scope::Namespaced) {
        let owner = if kind.kind == "NIMService" { &pipeline } else { &ready };
        let object = leftover(kind, owner);
        place.apply(object.clone()).await;
        place.until(&object, Value::is_null).await;
    }

    // A mistake that is made twice is one event with a count.
    let mut bad = good.clone();
    bad["spec"]["storage"]["pvc"]["size"] = "50 GB".into();
    for _ in 0..2 {
        place.apply(bad.clone()).await;
        place.until(&good, state("Failed")).await;
        place.apply(good.clone()).await;
        place.until(&good, state("Ready")).await;
    }
    let counted = |asked: &capstan_apiserver::auth::Attributes| asked.resource == "events" && asked.verb == "patch";
    let look = async {
        while !place.recorder.asked().iter().any(counted) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.expect("an event is counted up");

    // The finalizer of another operator goes.
    let [cache, build] = cache_and_build();
    let pipeline = json!({"apiVersion": API, "kind": "NIMPipeline", "metadata": {"namespace": "default"}, "spec": {"services": []}});
    for mut held in [good.clone(), cache, build, pipeline] {
        let finalizer = format!("finalizer.{}.apps.nvidia.com", held["kind"].as_str().unwrap().to_lowercase());
        held["metadata"]["name"] = "held".into();
        held["metadata"]["finalizers"] = json!([finalizer]);
        place.apply(held.clone()).await;
        place.api(&held).delete("held", &DeleteParams::default()).await.unwrap();
        place.until(&held, Value::is_null).await;
    }

    nemo(&place).await;
    gpus(&place).await;

    // A certificate that somebody broke is mended, and trusted.
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": rotation::SECRET, "namespace": HOME}});
    let first = place.until(&secret, |secret| secret["data"]["ca.crt"].is_string()).await;
    let owner = &first["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("ClusterRole"), &json!(ANCHOR)));
    let broken = json!({"data": {"facts.json": "e30="}});
    place.api(&secret).patch(rotation::SECRET, &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
    let changed = |secret: &Value| secret["data"]["ca.crt"] != first["data"]["ca.crt"];
    let mended = place.until(&secret, changed).await;
    let authority = mended["data"]["ca.crt"].clone();
    place.until(&webhook_configuration(), |hook| hook["webhooks"][0]["clientConfig"]["caBundle"] == authority).await;

    // Metrics are for those who may read them, over TLS.
    let scraped = async {
        loop {
            // The new certificate is served a moment later.
            match tokio::time::timeout(Duration::from_secs(1), scrape(&place, metrics, &authority, UserInfo::admin()))
                .await
            {
                Ok(Ok(text)) => return text,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let text = tokio::time::timeout(TIMEOUT, scraped).await.expect("metrics are served");
    assert!(text.contains("capstan_leader 1"), "{text}");
    assert_eq!(scrape(&place, metrics, &authority, UserInfo::new("eve", &[])).await, Err(403));

    // Now every right was used, and each by a request that no other allows.
    assert_eq!(place.recorder.refused(), Vec::<String>::new(), "rights that are missing");
    let (asked, atoms) = (place.recorder.asked(), atoms(&all()));
    let needed = |index: usize| {
        asked.iter().any(|request| {
            let mut allowed = atoms.iter().enumerate().filter(|(_, atom)| atom.allows(request, HOME));
            allowed.next().is_some_and(|(first, _)| first == index) && allowed.next().is_none()
        })
    };
    let unused: Vec<_> =
        (0..atoms.len()).filter(|index| !needed(*index)).map(|index| atoms[index].to_string()).collect();
    assert_eq!(unused, Vec::<String>::new(), "rights that nothing needs: take them out of kinds.rs or rights.rs");
    println!("{} rights, each needed by one of {} requests", atoms.len(), asked.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_one_right_the_operator_does_not_do_its_work() {
    let mut rights = all();
    let deployments = rights.iter().position(|right| right.resources.contains(&"deployments".into())).unwrap();
    rights[deployments].verbs.retain(|verb| verb != "patch");
    let place = Place::start(&rights).await;
    place.operator("one", Streams::Yes).await;
    let llama = service("llama", json!({"emptyDir": {}}));
    place.apply(llama.clone()).await;
    let refused = async {
        while place.recorder.refused().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, refused).await.expect("something is refused");
    assert_eq!(place.recorder.refused(), [r#"patch apps/deployments "llama""#]);
    let live = place.until(&llama, |live| !live.is_null()).await;
    assert_ne!(live["status"]["state"], "Ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_made_goes_with_the_release() {
    let place = Place::start(&all()).await;
    let anchor = Anchor { cluster_role: ANCHOR.into() };
    place.run("one", Streams::Yes, Some(anchor.clone())).await;
    let llama = service("llama", json!({"emptyDir": {}}));
    place.apply(llama.clone()).await;
    place.until(&llama, state("Ready")).await;
    let named = |api: &str, kind: &str, namespace: Value, name: &str| json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", Value::Null, "nimservices.apps.nvidia.com");
    let made = [
        crd.clone(),
        named("coordination.k8s.io/v1", "Lease", HOME.into(), leader::LEASE_NAME),
        named("v1", "Secret", HOME.into(), rotation::SECRET),
    ];
    for object in &made {
        place.until(object, |live| live["metadata"]["ownerReferences"][0]["name"] == *anchor.cluster_role).await;
    }
    assert_eq!(place.recorder.refused(), Vec::<String>::new());
    // As `helm uninstall`: nobody is there to clean up.
    place.stop.cancel();
    let role = named("rbac.authorization.k8s.io/v1", "ClusterRole", Value::Null, &anchor.cluster_role);
    place.api(&role).delete(&anchor.cluster_role, &DeleteParams::default()).await.unwrap();
    for object in &made {
        place.until(object, Value::is_null).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_that_were_to_go_can_be_kept_again() {
    let mut place = Place::start(&all()).await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "nimservices.apps.nvidia.com"}});
    let tied = |live: &Value| live["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1);
    place.run("one", Streams::Yes, Some(Anchor { cluster_role: ANCHOR.into() })).await;
    place.until(&crd, tied).await;
    place.stop.cancel();
    place.stop = CancellationToken::new();
    place.operator("two", Streams::Yes).await;
    place.until(&crd, |live| live["metadata"]["ownerReferences"].is_null()).await;
}
