//! A DaemonSet of an operand, from its template to the object that is applied.

use std::collections::BTreeMap;

use capstan_api::gpu::daemonsets::UpdateStrategy;
use capstan_plan::Object;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, PodSpec, PodTemplateSpec, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod::set_env;
use super::{Cx, MANAGER, Outcome};
use crate::gpu::fleet::DEPLOY;

/// Labels of pods that the operator's selectors rely on: settings for all DaemonSets do not change them.
const RESERVED: [&str; 2] = ["app", "app.kubernetes.io/part-of"];

/// A DaemonSet in the making.
pub(super) struct Daemon {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) selector: BTreeMap<String, String>,
    pub(super) pod_labels: BTreeMap<String, String>,
    pub(super) pod_annotations: BTreeMap<String, String>,
    pub(super) strategy: Option<DaemonSetUpdateStrategy>,
    pub(super) pod: PodSpec,
}

impl Daemon {
    /// What all templates have in common.
    pub(super) fn new(name: &str, account: &str, deploy: &'static str) -> Self {
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
                node_selector: Some(BTreeMap::from([(format!("{DEPLOY}{deploy}"), "true".into())])),
                tolerations: Some(vec![Toleration {
                    key: Some("nvidia.com/gpu".into()),
                    operator: Some("Exists".into()),
                    effect: Some("NoSchedule".into()),
                    ..Toleration::default()
                }]),
                ..PodSpec::default()
            },
        }
    }

    /// The same, selected by `name=` instead of `app=`.
    pub(super) fn selected_by_name(mut self) -> Self {
        let name = BTreeMap::from([("name".to_owned(), self.name.clone())]);
        self.selector = name.clone();
        self.pod_labels = name;
        self
    }

    /// Under another name, with pods of its own.
    pub(super) fn rename(&mut self, name: &str) {
        self.name = name.into();
        for labels in [&mut self.labels, &mut self.selector, &mut self.pod_labels] {
            labels.insert("app".into(), name.into());
        }
    }

    /// The same with a label that also selects.
    pub(super) fn part_of(mut self, whole: &str) -> Self {
        for labels in [&mut self.labels, &mut self.selector, &mut self.pod_labels] {
            labels.insert("app.kubernetes.io/part-of".into(), whole.into());
        }
        self
    }

    /// The same with the security constraints that OpenShift should choose.
    pub(super) fn constrained(mut self, scc: &str) -> Self {
        self.annotations.insert("openshift.io/scc".into(), scc.into());
        self
    }

    /// The same with these containers and volumes.
    pub(super) fn with(mut self, init: Vec<Container>, containers: Vec<Container>, volumes: Vec<Volume>) -> Self {
        self.pod.init_containers = (!init.is_empty()).then_some(init);
        self.pod.containers = containers;
        self.pod.volumes = Some(volumes);
        self
    }

    /// The same with the end of the log of a container that fails in the status of its pod: there its cause is read, and
    /// nobody has to be asked for it.
    pub(super) fn with_last_words(mut self) -> Self {
        for container in self.pod.init_containers.iter_mut().flatten().chain(&mut self.pod.containers) {
            container.termination_message_policy = Some("FallbackToLogsOnError".into());
        }
        self
    }

    /// The container of that name, init containers included.
    pub(super) fn container(&mut self, name: &str) -> Option<&mut Container> {
        let init = self.pod.init_containers.iter_mut().flatten();
        init.chain(&mut self.pod.containers).find(|container| container.name == name)
    }

    /// The main container: the first.
    pub(super) fn main(&mut self) -> &mut Container {
        self.pod.containers.first_mut().expect("every template has a container")
    }

    /// Removes a container of that name, wherever it is.
    pub(super) fn remove(&mut self, name: &str) {
        self.pod.containers.retain(|container| container.name != name);
        if let Some(init) = &mut self.pod.init_containers {
            init.retain(|container| container.name != name);
        }
    }

    /// The volume of that name.
    pub(super) fn volume(&mut self, name: &str) -> Option<&mut Volume> {
        self.pod.volumes.iter_mut().flatten().find(|volume| volume.name == name)
    }

    /// Points a volume of the node elsewhere.
    pub(super) fn move_volume(&mut self, name: &str, path: &str) {
        if let Some(host) = self.volume(name).and_then(|volume| volume.host_path.as_mut()) {
            host.path = path.into();
        }
    }

    /// Adds a volume unless there is one of that name, and mounts it in `container`.
    pub(super) fn mount(&mut self, container: &str, volume: Volume, mount: VolumeMount) {
        if self.volume(&volume.name).is_none() {
            self.pod.volumes.get_or_insert_default().push(volume);
        }
        if let Some(container) = self.container(container) {
            container.volume_mounts.get_or_insert_default().push(mount);
        }
    }

    /// Takes a volume away, and with it wherever it is mounted.
    pub(super) fn unmount(&mut self, name: &str) {
        self.pod.volumes.iter_mut().for_each(|volumes| volumes.retain(|volume| volume.name != name));
        let init = self.pod.init_containers.iter_mut().flatten();
        for mounts in init.chain(&mut self.pod.containers).filter_map(|one| one.volume_mounts.as_mut()) {
            mounts.retain(|mount| mount.name != name);
        }
    }

    /// Adds registry credentials, each once.
    pub(super) fn pull_with(&mut self, secrets: Option<&Vec<String>>) {
        for secret in secrets.into_iter().flatten() {
            let list = self.pod.image_pull_secrets.get_or_insert_default();
            if !list.iter().any(|one| one.name == *secret) {
                list.push(LocalObjectReference { name: secret.clone() });
            }
        }
    }

    /// What `spec.daemonsets` and `spec.hostPaths` change, before the operand's own settings.
    pub(super) fn common(&mut self, cx: &Cx<'_>) -> Outcome<()> {
        let all = &cx.spec().daemonsets;
        let unavailable = all.rolling_update.as_ref().and_then(|rolling| rolling.max_unavailable.as_deref());
        match (all.update_strategy.unwrap_or_default(), unavailable.filter(|text| !text.is_empty())) {
            (UpdateStrategy::OnDelete, _) => self.strategy = Some(on_delete()),
            (UpdateStrategy::RollingUpdate, Some(text)) if !self.name.starts_with("nvidia-driver-daemonset") => {
                let rolling = RollingUpdateDaemonSet { max_unavailable: Some(share(text)?), ..Default::default() };
                self.strategy = Some(DaemonSetUpdateStrategy {
                    type_: Some("RollingUpdate".into()),
                    rolling_update: Some(rolling),
                });
            }
            _ => {}
        }
        if let Some(class) = all.priority_class_name.as_ref().filter(|class| !class.is_empty()) {
            self.pod.priority_class_name = Some(class.clone());
        }
        if let Some(tolerations) = all.tolerations.as_ref().filter(|tolerations| !tolerations.is_empty()) {
            self.pod.tolerations = Some(tolerations.clone());
        }
        if all.pod_security_context.is_some() {
            self.pod.security_context.clone_from(&all.pod_security_context);
        }
        self.paths(cx);
        Ok(())
    }

    /// Directories on the node.
    fn paths(&mut self, cx: &Cx<'_>) {
        let root = cx.root();
        if root != "/" {
            if self.volume("host-root").is_some() {
                self.move_volume("host-root", root);
                let init = self.pod.init_containers.iter_mut().flatten();
                for container in init.chain(&mut self.pod.containers) {
                    // A path inside the container stays what it is.
                    if super::pod::env_of(container, "HOST_ROOT").is_none() {
                        set_env(container, "HOST_ROOT", root);
                    }
                }
            }
            self.move_volume("host-dev-char", &format!("{}/dev/char", root.trim_end_matches('/')));
        }
        let driver = cx.driver_dir();
        if driver != DRIVER_DIR && self.volume("driver-install-dir").is_some() {
            self.move_volume("driver-install-dir", driver);
            if let Some(check) = self.container("driver-validation") {
                set_env(check, "DRIVER_INSTALL_DIR", driver);
                set_env(check, "DRIVER_INSTALL_DIR_CTR_PATH", driver);
                for mount in check.volume_mounts.iter_mut().flatten().filter(|one| one.name == "driver-install-dir") {
                    mount.mount_path = driver.into();
                }
            }
        }
        let kubelet = cx.kubelet_dir();
        if kubelet != KUBELET_DIR {
            self.move_volume("device-plugin", &format!("{kubelet}/device-plugins"));
        }
    }

    /// The object.
    pub(super) fn object(mut self, cx: &Cx<'_>) -> Object {
        let all = &cx.spec().daemonsets;
        let (own, selected) = (|key: &str| RESERVED.contains(&key), self.selector.clone());
        let labels = || all.labels.iter().flatten().filter(|(key, _)| !own(key) && !selected.contains_key(*key));
        let annotations = || all.annotations.iter().flatten();
        fn extend<'a>(map: &mut BTreeMap<String, String>, more: impl Iterator<Item = (&'a String, &'a String)>) {
            map.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        }
        extend(&mut self.labels, labels());
        extend(&mut self.pod_labels, labels());
        extend(&mut self.annotations, annotations());
        extend(&mut self.pod_annotations, annotations());
        // By this label we watch what is ours.
        self.labels.insert("app.kubernetes.io/managed-by".into(), MANAGER.into());
        // A node that waits for operands must let them in.
        if let Some(taint) = &cx.cluster.startup_taint {
            let tolerations = self.pod.tolerations.get_or_insert_default();
            if !taint.is_tolerated(tolerations) {
                tolerations.push(taint.toleration());
            }
        }
        let some = |map: BTreeMap<String, String>| (!map.is_empty()).then_some(map);
        Object::new(&DaemonSet {
            metadata: ObjectMeta {
                name: Some(self.name),
                namespace: Some(cx.namespace().into()),
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

/// Where the driver's root shows, unless a policy says otherwise.
pub(super) const DRIVER_DIR: &str = capstan_node::paths::DRIVER_ROOT;

/// Where the kubelet is, unless a policy says otherwise.
pub(super) const KUBELET_DIR: &str = "/var/lib/kubelet";

/// Pods are replaced when somebody deletes them.
pub(super) fn on_delete() -> DaemonSetUpdateStrategy {
    DaemonSetUpdateStrategy { type_: Some("OnDelete".into()), rolling_update: None }
}

/// A number of nodes, or a share of them.
fn share(text: &str) -> Outcome<IntOrString> {
    if let Some(number) = text.strip_suffix('%') {
        return match number.parse::<u32>() {
            Ok(_) => Ok(IntOrString::String(text.into())),
            Err(_) => Err(bad_share(text)),
        };
    }
    text.parse().map(IntOrString::Int).map_err(|_| bad_share(text))
}

fn bad_share(text: &str) -> String {
    format!(
        "spec.daemonsets.rollingUpdate.maxUnavailable is {text:?}: give a number of nodes such as 1, or a share such as 10%"
    )
}
