//! The chart: values that are misspelt are refused, those of other charts are taken, every object is accepted by a
//! server, and the roles are those that the operator says it needs.
//!
//! Needs helm; [`capstan_tests::programs`] says where it is looked for, and what happens without it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use capstan_apiserver::serve::Listen;
use capstan_operator::rights::{Release, rights};
use capstan_sim::Cluster;
use capstan_tests::programs;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use serde_json::{Value, json};

const NAMESPACE: &str = "capstan-system";
const CASES: [&str; 6] = ["", "everything", "gpu-operator", "network-operator", "nim-operator", "secret"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn run(helm: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(helm).args(args).current_dir(root()).env("HELM_NAMESPACE", NAMESPACE).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// What a case of values renders to, as text.
fn template(helm: &Path, case: &str, more: &[&str]) -> Result<String, String> {
    let file = format!("tests/values/{case}.yaml");
    // helm's own notion of the cluster's version may be old.
    let mut args = vec!["template", "capstan", "charts/capstan", "--kube-version", "1.37.0"];
    if !case.is_empty() {
        args.extend(["-f", file.as_str()]);
    }
    args.extend(more);
    run(helm, &args)
}

fn objects(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
fn misspelt_values_are_refused_by_name() {
    let Some(helm) = programs::find("helm", "chart::misspelt_values_are_refused_by_name") else { return };
    run(&helm, &["lint", "--strict", "charts/capstan"]).unwrap();
    let cases = [
        ("operator.replcas=3", "at '/operator': additional properties 'replcas' not allowed"),
        ("metrics.serviceMonitor.enable=true", "additional properties 'enable' not allowed"),
        ("driver.upgradePolicy.autoUpgade=true", "additional properties 'autoUpgade' not allowed"),
        ("crd.keep=false", "additional properties 'crd' not allowed"),
        ("operator.replicas=two", "at '/operator/replicas': got string, want integer"),
        ("operator.admissionController.tls.mode=certmanager", "value must be one of 'own', 'cert-manager', 'secret'"),
    ];
    for (value, message) in cases {
        let refused = template(&helm, "", &["--set", value]).unwrap_err();
        assert!(refused.contains(message), "{value}: {refused}");
    }
}

/// An embedded cluster that helm can reach, with the CRDs of others.
struct Place {
    admin: Client,
    kubeconfig: PathBuf,
    _cluster: Cluster,
}

impl Place {
    async fn start() -> Self {
        let cluster = Cluster::builder().nodes(1).listen(Listen::default()).start().await.unwrap();
        let port = cluster.listener().unwrap().address().port();
        let kubeconfig = std::env::temp_dir().join(format!("chart-test-{port}.kubeconfig"));
        cluster.kubeconfig().unwrap().write(&kubeconfig).unwrap();
        let place = Self { admin: cluster.client(), kubeconfig, _cluster: cluster };
        let others = [
            ("monitoring.coreos.com", "ServiceMonitor"),
            ("monitoring.coreos.com", "PrometheusRule"),
            ("cert-manager.io", "Issuer"),
            ("cert-manager.io", "Certificate"),
        ];
        for (group, kind) in others {
            let plural = format!("{}s", kind.to_lowercase());
            let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            let crd = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
                },
            });
            place.send(&crd, &PatchParams::apply("test")).await.unwrap();
        }
        place
    }

    fn helm(&self, helm: &Path, args: &[&str]) -> Result<String, String> {
        let file = self.kubeconfig.display().to_string();
        run(helm, &[args, &["--kubeconfig", &file, "--namespace", NAMESPACE]].concat())
    }

    async fn api(&self, object: &Value) -> Result<Api<DynamicObject>, kube::Error> {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.admin, &gvk).await?;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.admin.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE);
                Api::namespaced_with(self.admin.clone(), namespace, &resource)
            }
        })
    }

    async fn send(&self, object: &Value, params: &PatchParams) -> Result<(), kube::Error> {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).await?.patch(name, params, &Patch::Apply(object)).await.map(drop)
    }

    /// Whether the object is there, and not on its way out.
    async fn has(&self, object: &Value) -> bool {
        let live = self.api(object).await.unwrap().get_opt(object["metadata"]["name"].as_str().unwrap()).await.unwrap();
        live.is_some_and(|live| live.metadata.deletion_timestamp.is_none())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Which values of a file have no effect.
fn without_effect(file: &str) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let ignored: Value = serde_json::from_str(&read("charts/capstan/files/ignored-values.json")).unwrap();
    let values: Value = serde_saphyr::from_str(&read(file)).unwrap();
    let is_set = |path: &&String| {
        let mut parts = path.split('.');
        parts.try_fold(&values, |value, name| value.as_object()?.get(name)).is_some()
    };
    ignored.as_object().unwrap().keys().filter(is_set).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_is_accepted_and_goes_again() {
    let Some(helm) = programs::find("helm", "chart::every_object_is_accepted_and_goes_again") else { return };
    let place = Place::start().await;
    let strict = PatchParams::apply("test").force().validation_strict().dry_run();
    for case in CASES {
        let file = format!("tests/values/{case}.yaml");
        let values: &[&str] = if case.is_empty() { &[] } else { &["-f", &file] };
        let install = [&["install", "capstan", "charts/capstan", "--create-namespace"], values].concat();
        let notes = place.helm(&helm, &install).unwrap_or_else(|error| panic!("{case}: {error}"));
        let expected = if case.is_empty() { Vec::new() } else { without_effect(&file) };
        for path in &expected {
            assert!(notes.contains(&format!("{path}: ")), "{case}: {path} is not named in {notes}");
        }
        assert_eq!(notes.contains("no effect"), !expected.is_empty(), "{case}: {notes}");
        let objects = objects(&place.helm(&helm, &["get", "manifest", "capstan"]).unwrap());
        for object in &objects {
            let what = || format!("{case}: {} {}", object["kind"], object["metadata"]["name"]);
            assert!(place.has(object).await, "{} is not there", what());
            place.send(object, &strict).await.unwrap_or_else(|error| panic!("{}: {error}", what()));
            let hooks = object["metadata"]["annotations"].as_object().into_iter().flatten();
            assert!(hooks.into_iter().all(|(name, _)| !name.starts_with("helm.sh/hook")), "{} is a hook", what());
        }
        let upgrade = [&["upgrade", "capstan", "charts/capstan", "--set", "operator.podLabels.x=y"], values].concat();
        place.helm(&helm, &upgrade).unwrap_or_else(|error| panic!("{case}: {error}"));
        place.helm(&helm, &["rollback", "capstan", "1"]).unwrap_or_else(|error| panic!("{case}: {error}"));
        place.helm(&helm, &["uninstall", "capstan"]).unwrap_or_else(|error| panic!("{case}: {error}"));
        for object in &objects {
            assert!(!place.has(object).await, "{case}: {} {} is left", object["kind"], object["metadata"]["name"]);
        }
        println!("{case:?}: {} objects", objects.len());
    }
}

#[test]
fn the_roles_are_what_the_operator_needs() {
    let Some(helm) = programs::find("helm", "chart::the_roles_are_what_the_operator_needs") else { return };
    let objects = objects(&template(&helm, "", &[]).unwrap());
    let names = Release { namespace: NAMESPACE.into(), ..capstan_tests::rights::release() };
    let expected = capstan_tests::rights::roles(&rights(&names), "capstan", "capstan");
    for role in expected.iter().filter(|object| object["rules"].is_array()) {
        let of_kind = of_kind(&objects, role["kind"].as_str().unwrap());
        let rendered = of_kind.iter().find(|object| object["metadata"]["name"] == "capstan").unwrap();
        assert_eq!(rendered["rules"], role["rules"]);
    }
    // Whoever installs no CRDs, answers no reviews and serves no metrics needs less.
    let less = ["crds.apply=false", "operator.admissionController.enabled=false", "metrics.enabled=false"];
    let less: Vec<&str> = less.iter().flat_map(|value| ["--set", value]).collect();
    let text = template(&helm, "", &less).unwrap();
    for absent in ["tokenreviews", "validatingwebhookconfigurations", "subjectaccessreviews"] {
        assert!(!text.contains(absent), "{absent}");
    }
    assert!(text.contains("--skip-crds"));
}

#[test]
fn what_nodes_are_told_and_who_takes_them_out_of_use_reach_the_operator() {
    let Some(helm) =
        programs::find("helm", "chart::what_nodes_are_told_and_who_takes_them_out_of_use_reach_the_operator")
    else {
        return;
    };
    let container = |case: &str| {
        let objects = objects(&template(&helm, case, &[]).unwrap());
        of_kind(&objects, "Deployment").remove(0)["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let (plain, full) = (container(""), container("everything"));
    let args = |container: &Value| container["args"].as_array().unwrap().clone();
    for argument in ["--node-ready-condition", "--startup-taint=example.com/starting=yes:NoSchedule"] {
        assert!(args(&full).contains(&argument.into()), "{full:#}");
    }
    assert!(!args(&plain).iter().any(|one| one.as_str().unwrap().contains("startup-taint")));
    let variable = |container: &Value, name: &str| {
        let all = container["env"].as_array().unwrap().clone();
        all.into_iter()
            .find(|one| one["name"] == format!("MAINTENANCE_OPERATOR_{name}"))
            .map(|one| one["value"].clone())
    };
    assert_eq!(variable(&full, "ENABLED"), Some("true".into()));
    assert_eq!(variable(&full, "REQUESTOR_NAMESPACE"), Some("maintenance".into()));
    assert_eq!(variable(&full, "NODE_MAINTENANCE_PREFIX"), Some("nvidia-operator".into()));
    assert_eq!(variable(&plain, "ENABLED"), None);
    let refused = template(&helm, "", &["--set", "nodes.startupTaint=a:Never"]).unwrap_err();
    assert!(refused.contains("/nodes/startupTaint"), "{refused}");
}

#[test]
fn values_that_say_no_are_no_in_the_custom_resources() {
    let Some(helm) = programs::find("helm", "chart::values_that_say_no_are_no_in_the_custom_resources") else { return };
    let no = [
        "clusterPolicy.deployCR=true",
        "operator.use_ocp_driver_toolkit=false",
        "driver.nvidiaDriverCRD.enabled=true",
        "driver.version=580.65.06",
        "driver.imagePullPolicy=Always",
        "driver.licensingConfig.secretName=licence",
        "driver.licensingConfig.nlsEnabled=false",
    ];
    let no: Vec<&str> = no.iter().flat_map(|value| ["--set", value]).collect();
    let objects = objects(&template(&helm, "", &no).unwrap());
    let spec = |kind: &str| of_kind(&objects, kind).remove(0)["spec"].clone();
    assert_eq!(spec("ClusterPolicy")["operator"]["use_ocp_driver_toolkit"], false);
    let driver = spec("NVIDIADriver");
    assert_eq!(
        (&driver["licensingConfig"]["nlsEnabled"], &driver["imagePullPolicy"]),
        (&false.into(), &"Always".into())
    );
}

#[test]
fn pods_are_restricted_and_spread() {
    let Some(helm) = programs::find("helm", "chart::pods_are_restricted_and_spread") else { return };
    let objects = objects(&template(&helm, "", &[]).unwrap());
    let deployment = of_kind(&objects, "Deployment").remove(0);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["runAsUser"], 65532);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("ghcr.io/capstan/capstan:{version}"));
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert!(pod["affinity"]["podAntiAffinity"].is_object() && pod["topologySpreadConstraints"].is_array());
    for kind in ["PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "ValidatingWebhookConfiguration"] {
        assert_eq!(of_kind(&objects, kind).len(), 1, "{kind}");
    }
    assert_eq!(of_kind(&objects, "Service").len(), 2, "webhook and metrics");
}
