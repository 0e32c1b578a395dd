//! DaemonSet builder: a template first, then the user's overrides, then the object to apply.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, PodResourceClaim, PodSpec, PodTemplateSpec, ResourceClaim, ResourceRequirements,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{MANAGED_BY, Scope, scope};
use crate::Object;

/// Pod labels that selectors rely on: common labels do not override them.
const RESERVED: [&str; 2] = ["app", "app.kubernetes.io/part-of"];

/// A DaemonSet under construction.
pub struct Daemon {
    /// Its name.
    pub name: String,
    /// Labels of the DaemonSet.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the DaemonSet.
    pub annotations: BTreeMap<String, String>,
    /// Its label selector.
    pub selector: BTreeMap<String, String>,
    /// Labels of pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Update strategy; the default of Kubernetes when unset.
    pub strategy: Option<DaemonSetUpdateStrategy>,
    /// The pod spec.
    pub pod: PodSpec,
}

impl Daemon {
    /// A DaemonSet with label `app`, which also selects its pods, for nodes with these labels.
    pub fn new(name: &str, account: &str, nodes: BTreeMap<String, String>) -> Self {
        let app = BTreeMap::from([("app".to_owned(), name.to_owned())]);
        Self {
            name: name.into(),
            labels: app.clone(),
            annotations: BTreeMap::new(),
            selector: app.clone(),
            pod_labels: app,
            pod_annotations: BTreeMap::new(),
            strategy: None,
            pod: PodSpec {
                service_account_name: Some(account.into()),
                priority_class_name: Some("system-node-critical".into()),
                node_selector: Some(nodes),
                ..PodSpec::default()
            },
        }
    }

    /// The same, selected by `name=` instead of `app=`.
    pub fn selected_by_name(mut self) -> Self {
        let name = BTreeMap::from([("name".to_owned(), self.name.clone())]);
        self.selector = name.clone();
        self.pod_labels = name;
        self
    }

    /// Renames it, with a selector of its own.
    pub fn rename(&mut self, name: &str) {
        self.name = name.into();
        for labels in [&mut self.labels, &mut self.selector, &mut self.pod_labels] {
            labels.insert("app".into(), name.into());
        }
    }

    /// The same with a `part-of` label that is part of the selector.
    pub fn part_of(mut self, whole: &str) -> Self {
        for labels in [&mut self.labels, &mut self.selector, &mut self.pod_labels] {
            labels.insert("app.kubernetes.io/part-of".into(), whole.into());
        }
        self
    }

    /// The same with the SecurityContextConstraints that OpenShift should use.
    pub fn with_scc(mut self, scc: &str) -> Self {
        self.annotations.insert("openshift.io/scc".into(), scc.into());
        self
    }

    /// The same with these containers and volumes.
    pub fn with(mut self, init: Vec<Container>, containers: Vec<Container>, volumes: Vec<Volume>) -> Self {
        self.pod.init_containers = (!init.is_empty()).then_some(init);
        self.pod.containers = containers;
        self.pod.volumes = Some(volumes);
        self
    }

    /// The same with the tail of a failed container's log as its termination message: the cause is then in the pod
    /// status.
    pub fn with_log_fallback(mut self) -> Self {
        for container in self.pod.init_containers.iter_mut().flatten().chain(&mut self.pod.containers) {
            container.termination_message_policy = Some("FallbackToLogsOnError".into());
        }
        self
    }

    /// The container of that name, init containers included.
    pub fn container(&mut self, name: &str) -> Option<&mut Container> {
        let init = self.pod.init_containers.iter_mut().flatten();
        init.chain(&mut self.pod.containers).find(|container| container.name == name)
    }

    /// The main container: the first.
    pub fn main(&mut self) -> &mut Container {
        self.pod.containers.first_mut().expect("every template has a container")
    }

    /// Removes the container of that name, init containers included.
    pub fn remove(&mut self, name: &str) {
        self.pod.containers.retain(|container| container.name != name);
        if let Some(init) = &mut self.pod.init_containers {
            init.retain(|container| container.name != name);
        }
    }

    /// The volume of that name.
    pub fn volume(&mut self, name: &str) -> Option<&mut Volume> {
        self.pod.volumes.iter_mut().flatten().find(|volume| volume.name == name)
    }

    /// Changes the path of a hostPath volume.
    pub fn set_host_path(&mut self, name: &str, path: &str) {
        if let Some(host) = self.volume(name).and_then(|volume| volume.host_path.as_mut()) {
            host.path = path.into();
        }
    }

    /// Adds a volume unless there is one of that name, and mounts it in `container`.
    pub fn mount(&mut self, container: &str, volume: Volume, mount: VolumeMount) {
        if self.volume(&volume.name).is_none() {
            self.pod.volumes.get_or_insert_default().push(volume);
        }
        if let Some(container) = self.container(container) {
            container.volume_mounts.get_or_insert_default().push(mount);
        }
    }

    /// Removes a volume and its mounts.
    pub fn unmount(&mut self, name: &str) {
        self.pod.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| volume.name != name));
        let init = self.pod.init_containers.iter_mut().flatten();
        for mounts in init.chain(&mut self.pod.containers).filter_map(|one| one.volume_mounts.as_mut()) {
            mounts.retain(|mount| mount.name != name);
        }
    }

    /// Adds image pull secrets, each once.
    pub fn add_pull_secrets(&mut self, secrets: Option<&Vec<String>>) {
        for secret in secrets.into_iter().flatten() {
            let list = self.pod.image_pull_secrets.get_or_insert_default();
            if !list.iter().any(|one| one.name == *secret) {
                list.push(LocalObjectReference { name: secret.clone() });
            }
        }
    }

    /// Enables the host network if asked to.
    pub fn host_network(&mut self, wanted: Option<bool>) {
        if wanted == Some(true) {
            self.pod.host_network = Some(true);
            self.pod.dns_policy = Some("ClusterFirstWithHostNet".into());
        }
    }

    /// Sets the resources of every main container.
    pub fn limit(&mut self, resources: &ResourceRequirements) {
        self.pod.containers.iter_mut().for_each(|container| container.resources = Some(resources.clone()));
    }

    /// The container gets devices through a ResourceClaimTemplate, instead of through a RuntimeClass.
    pub fn claims(&mut self, container: &str, claim: &str, template: &str) {
        self.pod.runtime_class_name = None;
        self.pod.resource_claims = Some(vec![PodResourceClaim {
            name: claim.into(),
            resource_claim_template_name: Some(template.into()),
            ..PodResourceClaim::default()
        }]);
        if let Some(container) = self.container(container) {
            let resources: &mut ResourceRequirements = container.resources.get_or_insert_default();
            resources.claims = Some(vec![ResourceClaim { name: claim.into(), request: None }]);
        }
    }

    /// Applies priority class, tolerations and security context that the user set for all pods.
    pub fn with_defaults(&mut self, scope: &Scope) {
        let defaults = &scope.defaults;
        if let Some(class) = &defaults.priority_class {
            self.pod.priority_class_name = Some(class.clone());
        }
        if !defaults.tolerations.is_empty() {
            self.pod.tolerations = Some(defaults.tolerations.clone());
        }
        if defaults.pod_security_context.is_some() {
            self.pod.security_context.clone_from(&defaults.pod_security_context);
        }
    }

    /// Whether the update strategy is OnDelete.
    pub fn is_on_delete(&self) -> bool {
        self.strategy.as_ref().is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"))
    }

    /// The object.
    pub fn object(mut self, scope: &Scope) -> Object {
        let defaults = &scope.defaults;
        let kept = |key: &str| !RESERVED.contains(&key) && !self.selector.contains_key(key);
        let labels = defaults.labels.clone().into_iter().filter(|(key, _)| kept(key)).collect::<BTreeMap<_, _>>();
        self.labels.extend(labels.clone());
        self.pod_labels.extend(labels);
        self.annotations.extend(defaults.annotations.clone());
        self.pod_annotations.extend(defaults.annotations.clone());
        // We watch by this label.
        self.labels.insert(MANAGED_BY.into(), scope.manager.into());
        for required in &scope.required_tolerations {
            let tolerations = self.pod.tolerations.get_or_insert_default();
            if !scope::is_tolerated(required, tolerations) {
                tolerations.push(required.clone());
            }
        }
        let some = |map: BTreeMap<String, String>| (!map.is_empty()).then_some(map);
        Object::new(&DaemonSet {
            metadata: ObjectMeta {
                name: Some(self.name),
                namespace: Some(scope.namespace.clone()),
                labels: some(self.labels),
                annotations: some(self.annotations),
                ..ObjectMeta::default()
            },
            spec: DaemonSetSpec {
                selector: LabelSelector { match_labels: Some(self.selector), ..LabelSelector::default() },
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: some(self.pod_labels),
                        annotations: some(self.pod_annotations),
                        ..ObjectMeta::default()
                    }),
                    spec: Some(self.pod),
                },
                update_strategy: self.strategy,
                ..DaemonSetSpec::default()
            },
            ..DaemonSet::default()
        })
    }
}

/// The OnDelete update strategy.
pub fn on_delete() -> DaemonSetUpdateStrategy {
    DaemonSetUpdateStrategy { type_: Some("OnDelete".into()), rolling_update: None }
}

/// The RollingUpdate strategy with `maxUnavailable`.
pub fn rolling_update(max_unavailable: IntOrString) -> DaemonSetUpdateStrategy {
    DaemonSetUpdateStrategy {
        type_: Some("RollingUpdate".into()),
        rolling_update: Some(RollingUpdateDaemonSet {
            max_unavailable: Some(max_unavailable),
            ..RollingUpdateDaemonSet::default()
        }),
    }
}

/// Parses a number of nodes such as `1`, or a percentage such as `10%`.
pub fn parse_int_or_percent(text: &str) -> Option<IntOrString> {
    match text.strip_suffix('%') {
        Some(number) => number.parse::<u32>().ok().map(|_| IntOrString::String(text.into())),
        None => text.parse().ok().map(IntOrString::Int),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::pod::container;
    use crate::kit::scope::Defaults;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_that_select_are_not_the_users() {
        let defaults = Defaults { labels: map(&[("app", "mine"), ("team", "a")]), ..Defaults::default() };
        let scope = Scope { namespace: "n".into(), manager: "m", defaults, ..Scope::default() };
        let daemon = Daemon::new("d", "d", map(&[])).with(vec![], vec![container("c")], vec![]);
        let body = daemon.object(&scope).body;
        let expected = serde_json::json!({"app": "d", "team": "a", "app.kubernetes.io/managed-by": "m"});
        assert_eq!(body["metadata"]["labels"], expected);
        assert_eq!(body["spec"]["template"]["metadata"]["labels"], serde_json::json!({"app": "d", "team": "a"}));
    }

    #[test]
    fn shares_are_numbers_or_percentages() {
        assert_eq!(parse_int_or_percent("1"), Some(IntOrString::Int(1)));
        assert_eq!(parse_int_or_percent("10%"), Some(IntOrString::String("10%".into())));
        for bad in ["", "%", "ten", "-5%", "1.5"] {
            assert_eq!(parse_int_or_percent(bad), None, "{bad}");
        }
    }
}
