//! The pod that prints the manifest of an image, and the ConfigMap that stores it.

use std::collections::BTreeMap;

use capstan_plan::{Object, Orchestrator};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::manifest::{self, Manifest};
use super::source::Source;
use super::{Cx, access, job, names};
use crate::pods;

/// Output of the pod if the image has no manifest.
const NONE: &str = "model_manifest.yaml not found";

/// Prints the manifest from its known paths. It terminates, so that its log is complete when it is read.
const PRINT: &str = "for file in /opt/nim/etc/default/model_manifest.yaml /etc/nim/config/model_manifest.yaml; do
  if [ -f \"$file\" ]; then exec cat \"$file\"; fi
done
echo 'model_manifest.yaml not found'
";

/// Whether the log says that the image has no manifest.
pub(super) fn has_none(text: &str) -> bool {
    text.contains(NONE)
}

/// Whether a pod has ended without usable output and must be recreated.
pub(super) fn is_spent(pod: &Pod) -> bool {
    pods::phase(pod) == "Failed"
}

/// The pod.
pub(super) fn object(cx: &Cx<'_>) -> Object {
    let source = Source::of(cx);
    let scc = (cx.facts.orchestrator == Orchestrator::OpenShift)
        .then(|| BTreeMap::from([("openshift.io/required-scc".to_owned(), "nonroot".to_owned())]));
    let container = Container {
        name: job::CONTAINER.into(),
        image: Some(source.image().into()),
        command: Some(vec!["/bin/sh".into(), "-c".into(), PRINT.into()]),
        resources: job::resources(cx),
        security_context: Some(job::container_security(cx)),
        ..Container::default()
    };
    Object::new(&Pod {
        metadata: ObjectMeta {
            name: Some(names::pod(cx)),
            namespace: Some(cx.namespace.clone()),
            labels: Some(names::labels(cx)),
            annotations: scc,
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some("OnFailure".into()),
            service_account_name: Some(access::ACCOUNT.into()),
            security_context: Some(job::pod_security(cx)),
            ..job::placement(cx, &source)
        }),
        ..Pod::default()
    })
}

/// The ConfigMap.
pub(super) fn config_map(cx: &Cx<'_>, manifest: &Manifest) -> Object {
    Object::new(&ConfigMap {
        metadata: ObjectMeta {
            name: Some(names::manifest(cx)),
            namespace: Some(cx.namespace.clone()),
            labels: Some(names::labels(cx)),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(manifest::KEY.to_owned(), manifest.to_yaml())])),
        ..ConfigMap::default()
    })
}
