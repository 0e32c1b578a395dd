//! The real kubectl on the embedded cluster: every command that people use, and what it prints.
//!
//! Needs kubectl; [`capstan_tests::programs`] says where it is looked for, and what happens without it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use capstan_apiserver::serve::Listen;
use capstan_sim::node::{Behaviour, Match};
use capstan_sim::{Cluster, node};
use capstan_tests::programs;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

const DEPLOYMENT: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2,
"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
"spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}"#;

const CHANGED: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2,
"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
"spec": {"containers": [{"name": "web", "image": "web:3"}]}}}}"#;

const MISSPELT: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd"}, "dota": {}}"#;

const DEFINITION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
"metadata": {"name": "shops.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
"names": {"plural": "shops", "singular": "shop", "kind": "Shop"}, "versions": [{"name": "v1", "served": true, "storage": true,
"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.clerks", "statusReplicasPath": ".status.clerks"}},
"additionalPrinterColumns": [{"name": "Clerks", "type": "integer", "jsonPath": ".spec.clerks"}],
"schema": {"openAPIV3Schema": {"type": "object", "properties": {
"spec": {"type": "object", "properties": {"clerks": {"type": "integer", "minimum": 1, "description": "People at work."}}},
"status": {"type": "object", "properties": {"clerks": {"type": "integer"}}}}}}}]}}"#;

const SHOP: &str =
    r#"{"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "corner"}, "spec": {"clerks": 2}}"#;

/// A command, what it reads, and what it must print. `!` in front: it must fail.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("version", "", "Server Version: v1."),
    ("api-resources", "", "deployments"),
    ("get nodes", "", "Ready"),
    ("get nodes -o wide", "", "INTERNAL-IP"),
    ("apply -f -", DEPLOYMENT, "deployment.apps/web created"),
    ("rollout status deployment/web --timeout=60s", "", "successfully rolled out"),
    ("get deployments", "", "2/2"),
    ("get deployment web -o yaml", "", "readyReplicas: 2"),
    ("get deployment web -o yaml --show-managed-fields", "", "managedFields:"),
    ("get pods -l app=web -o name", "", "pod/web-"),
    ("describe deployment web", "", "ScalingReplicaSet"),
    ("describe pods -l app=web", "", "Scheduled"),
    ("describe node node-0", "", "Allocated resources"),
    ("wait --for=condition=Available deployment/web --timeout=30s", "", "condition met"),
    ("diff -f -", DEPLOYMENT, ""),
    ("diff --server-side --force-conflicts -f -", CHANGED, "!+      - image: web:3"),
    ("apply --dry-run=server -f -", CHANGED, "configured (server dry run)"),
    ("apply --server-side --force-conflicts -f -", DEPLOYMENT, "serverside-applied"),
    ("scale deployment web --replicas=3", "", "scaled"),
    ("rollout status deployment/web --timeout=60s", "", "successfully rolled out"),
    ("set image deployment/web web=web:2", "", "image updated"),
    ("rollout status deployment/web --timeout=60s", "", "successfully rolled out"),
    ("rollout history deployment/web", "", "REVISION"),
    ("rollout undo deployment/web", "", "rolled back"),
    ("rollout status deployment/web --timeout=60s", "", "successfully rolled out"),
    ("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "", "web:1"),
    ("patch deployment web --type=merge -p {\"spec\":{\"replicas\":1}}", "", "patched"),
    (
        "patch deployment web --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":2}]",
        "",
        "patched",
    ),
    ("patch deployment web --type=strategic -p {\"metadata\":{\"labels\":{\"a\":\"b\"}}}", "", "patched"),
    ("label deployment web tier=front", "", "labeled"),
    ("annotate deployment web note=x", "", "annotated"),
    ("explain deployment.spec.strategy", "", "RollingUpdate"),
    ("edit deployment web", "", "deployment.apps/web edited"),
    ("get deployment web -o jsonpath={.metadata.labels.tier}", "", "back"),
    ("logs deployment/web", "", "ready to serve"),
    ("exec deployment/web -- echo hello", "", "hello"),
    ("exec -i deployment/web -- false", "", "!command terminated with exit code 1"),
    ("exec deployment/web -- absent", "", "!command terminated with exit code 127"),
    ("exec deployment/web -c other -- echo hello", "", "!container other"),
    ("create job once --image=work:1", "", "job.batch/once created"),
    ("logs -f job/once --pod-running-timeout=30s", "", "worked"),
    ("delete job once --cascade=orphan", "", "deleted"),
    ("get pods -l job-name=once -o name", "", "pod/once-"),
    ("create job again --image=work:1", "", "job.batch/again created"),
    ("wait --for=condition=Complete job/again --timeout=60s", "", "condition met"),
    ("delete job again --cascade=background", "", "deleted"),
    ("wait --for=delete pod -l job-name=again --timeout=60s", "", ""),
    ("get pods -l job-name=again", "", "No resources found"),
    ("cordon node-0", "", "cordoned"),
    ("drain node-0 --ignore-daemonsets --force --timeout=60s", "", "drained"),
    ("uncordon node-0", "", "uncordoned"),
    ("taint nodes node-1 k=v:NoSchedule", "", "tainted"),
    ("auth can-i delete pods", "", "yes"),
    ("auth can-i delete pods --as=nobody", "", "!no"),
    ("create serviceaccount robot", "", "created"),
    ("create token robot", "", "."),
    ("create configmap settings --from-literal=a=b", "", "created"),
    ("get configmap settings -o jsonpath={.data.a}", "", "b"),
    ("events", "", "SuccessfulCreate"),
    ("apply -f -", MISSPELT, "!unknown field \"dota\""),
    ("apply -f -", DEFINITION, "shops.example.com created"),
    ("wait --for=condition=Established crd/shops.example.com --timeout=60s", "", "condition met"),
    ("apply -f -", SHOP, "shop.example.com/corner created"),
    ("get shops", "", "CLERKS"),
    ("explain shop.spec.clerks", "", "People at work."),
    ("scale shop corner --replicas=3", "", "scaled"),
    ("get shop corner -o jsonpath={.spec.clerks}", "", "3"),
    ("patch shop corner --type=merge -p {\"spec\":{\"clerks\":0}}", "", "!should be greater than or equal to 1"),
    ("delete crd shops.example.com", "", "deleted"),
    ("get all", "", "deployment.apps/web"),
    ("delete configmap settings", "", "deleted"),
    ("delete deployment web --cascade=foreground --timeout=60s", "", "deleted"),
    ("get pods -l app=web", "", "No resources found"),
    ("get deployment web", "", "!NotFound"),
];

async fn run(kubectl: &Path, kubeconfig: &Path, command: &str, input: &str) -> (bool, String) {
    let mut child = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(command.split(' '))
        .env("KUBE_EDITOR", "sed -i s/front/back/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_as_on_a_real_cluster() {
    let Some(kubectl) = programs::find("kubectl", "kubectl::kubectl_works_as_on_a_real_cluster") else { return };
    let (cluster, kubeconfig) = start("commands").await;
    let mut wrong = Vec::new();
    for (command, input, wanted) in COMMANDS {
        let (ok, text) = run(&kubectl, &kubeconfig, command, input).await;
        let (fails, wanted) = wanted.strip_prefix('!').map_or((false, *wanted), |wanted| (true, wanted));
        if ok == fails || !text.contains(wanted) {
            wrong.push(format!("kubectl {command}\n  wanted {wanted:?}, got: {}", text.trim()));
        }
    }
    let _ = std::fs::remove_file(&kubeconfig);
    assert!(wrong.is_empty(), "{} of {} commands:\n{}", wrong.len(), COMMANDS.len(), wrong.join("\n"));
    println!("{} kubectl commands", COMMANDS.len());
    drop(cluster);
}

/// A cluster with containers that say and answer something, and the file by which kubectl finds it.
async fn start(name: &str) -> (Cluster, PathBuf) {
    let answer = |pattern: &str, stdout: &str, code| node::Command {
        pattern: pattern.to_owned(),
        stdout: stdout.to_owned(),
        stderr: String::new(),
        code,
    };
    let web = Behaviour {
        log: Some(vec!["ready to serve".to_owned()]),
        commands: vec![answer("echo hello", "hello\n", 0), answer("false", "", 1)],
        ..Behaviour::default()
    };
    let work = Behaviour { log: Some(vec!["worked".to_owned()]), ..Behaviour::default() };
    let rules = vec![(Match::image("web:*"), web), (Match::image("work:*"), work)];
    let settings = node::Settings { rules, ..node::Settings::default() };
    let builder = Cluster::builder().node_settings(settings).nodes(3).listen(Listen::default());
    let cluster = builder.start().await.unwrap();
    let port = cluster.listener().unwrap().address().port();
    let kubeconfig = std::env::temp_dir().join(format!("kubectl-{name}-{port}.kubeconfig"));
    cluster.kubeconfig().unwrap().write(&kubeconfig).unwrap();
    (cluster, kubeconfig)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_follows_what_happens() {
    let Some(kubectl) = programs::find("kubectl", "kubectl::kubectl_follows_what_happens") else { return };
    let (cluster, kubeconfig) = start("follows").await;
    for (follow, change, wanted) in [
        ("get configmaps -w -o name", "create configmap fresh", "configmap/fresh"),
        ("get deployments -w", "create deployment web --image=web:1 --replicas=2", "web    2/2"),
        ("logs -f deployment/web", "get nodes", "ready to serve"),
    ] {
        let mut child = Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(follow.split(' '))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (ok, text) = run(&kubectl, &kubeconfig, change, "").await;
        assert!(ok, "kubectl {change}: {text}");
        let seen = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return true;
                }
            }
            false
        };
        let seen = tokio::time::timeout(Duration::from_secs(60), seen).await;
        assert!(matches!(seen, Ok(true)), "kubectl {follow} does not say {wanted:?}: {seen:?}");
    }
    let _ = std::fs::remove_file(&kubeconfig);
    drop(cluster);
}
