//! Pod status by the kubelet: phase, conditions and container statuses, with the kubelet's reasons and messages.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::backoff::{after, go_duration};
use super::lifecycle::{End, Machine, Role, Slot, Stage, Termination, containers, pod_text, restarts};
use crate::Pod;

/// Conditions that the kubelet owns; all others belong to other controllers.
const KUBELET_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Addresses of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Addresses<'a> {
    /// Of the node.
    pub(super) host: &'a str,
    /// Of the pod, once it has one.
    pub(super) pod: Option<&'a str>,
}

/// The status of a pod. Fields of other writers are preserved.
pub(super) fn status(machine: &Machine, pod: &Pod, addresses: Addresses<'_>, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else { return status };
    let view = View { machine, pod, spec, now };
    let phase = view.phase();
    let (mut init, mut main, mut ephemeral) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (role, container)) in containers(spec).enumerate() {
        let Some(slot) = machine.slots.get(at) else { break };
        let list = match role {
            Role::Init | Role::Sidecar => &mut init,
            Role::Main => &mut main,
            Role::Ephemeral => &mut ephemeral,
        };
        list.push(view.container(slot, &container));
    }
    let some = |list: Vec<ContainerStatus>| (!list.is_empty()).then_some(list);
    status.init_container_statuses = some(init);
    status.container_statuses = some(main);
    status.ephemeral_container_statuses = some(ephemeral);
    status.conditions = Some(view.conditions(phase, status.conditions.take().unwrap_or_default()));
    status.phase = Some(phase.to_owned());
    status.start_time = Some(seconds(machine.started));
    status.host_ip = Some(addresses.host.to_owned());
    status.host_ips = Some(vec![HostIP { ip: addresses.host.to_owned() }]);
    let ip = if spec.host_network == Some(true) { Some(addresses.host) } else { addresses.pod };
    if let Some(ip) = ip.filter(|_| !view.is_waiting_for_sandbox()) {
        status.pod_ip = Some(ip.to_owned());
        status.pod_ips = Some(vec![PodIP { ip: ip.to_owned() }]);
    }
    status.observed_generation = pod.metadata.generation;
    if let Some(End::Failed { reason, message }) = machine.end() {
        status.reason = Some(reason.to_string());
        status.message = Some(message.to_string());
    }
    status
}

/// The status of a rejected pod.
pub(super) fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    status.phase = Some("Failed".to_owned());
    status.reason = Some(reason.to_owned());
    status.message = Some(format!("Pod was rejected: {message}"));
    status.start_time = Some(seconds(now));
    status.observed_generation = pod.metadata.generation;
    status
}

struct View<'a> {
    machine: &'a Machine,
    pod: &'a Pod,
    spec: &'a PodSpec,
    now: Timestamp,
}

impl View<'_> {
    fn is_waiting_for_sandbox(&self) -> bool {
        self.machine.blocked.is_some() && self.machine.is_new()
    }

    /// The phase, as a kubelet derives it from the containers.
    fn phase(&self) -> &'static str {
        if self.machine.finished && matches!(self.machine.end(), Some(End::Failed { .. })) {
            return "Failed";
        }
        let list: Vec<_> = containers(self.spec).zip(&self.machine.slots).collect();
        let (mut pending, mut waiting, mut running, mut stopped, mut restarting, mut failed) = (0, 0, 0, 0, 0, 0);
        for ((role, container), slot) in &list {
            let code = match slot.stage {
                Stage::Terminated => slot.ended.as_ref().map(|ended| ended.code),
                Stage::Running(_) => None,
                _ => slot.last.as_ref().map(|last| last.code),
            };
            let again = |code| restarts(*role, self.spec, container, code);
            match (role, &slot.stage, code) {
                (Role::Ephemeral, ..) => {}
                (Role::Init, Stage::Terminated, Some(0)) => {}
                (Role::Init, Stage::Terminated, Some(_)) => return "Failed",
                (Role::Init, ..) => pending += 1,
                (Role::Sidecar, Stage::Running(_), _) => {
                    running += 1;
                    pending += usize::from(!slot.is_up(self.now) && !self.machine.initialized);
                }
                (Role::Sidecar, Stage::Terminated, _) | (Role::Sidecar, _, Some(_)) => {}
                (Role::Sidecar, ..) => waiting += 1,
                (Role::Main, Stage::Running(_), _) => running += 1,
                (Role::Main, _, Some(code)) => {
                    stopped += 1;
                    restarting += usize::from(again(code) && !self.machine.finished);
                    failed += usize::from(code != 0);
                }
                (Role::Main, _, None) => waiting += 1,
            }
        }
        match () {
            () if pending > 0 || waiting > 0 => "Pending",
            () if running > 0 || (stopped > 0 && restarting > 0) => "Running",
            () if stopped > 0 && failed > 0 => "Failed",
            () if stopped > 0 => "Succeeded",
            () => "Pending",
        }
    }

    fn container(&self, slot: &Slot, container: &Container) -> ContainerStatus {
        let image = container.image.clone().unwrap_or_default();
        let present = slot.runs > 0;
        let started = match (slot.role, &slot.stage) {
            (Role::Ephemeral, _) => None,
            (_, Stage::Running(_)) => Some(slot.role == Role::Init || slot.is_up(self.now)),
            _ => Some(false),
        };
        ContainerStatus {
            name: container.name.clone(),
            image_id: if present { image_id(&image) } else { String::new() },
            image,
            container_id: present.then(|| self.container_id(container, slot.runs)),
            ready: slot.is_ready(self.now),
            restart_count: slot.restarts,
            started,
            state: Some(self.state(slot, container)),
            last_state: Some(ContainerState {
                terminated: slot.last.as_ref().map(|last| self.terminated(last, container)),
                ..ContainerState::default()
            }),
            ..ContainerStatus::default()
        }
    }

    fn state(&self, slot: &Slot, container: &Container) -> ContainerState {
        let waiting = |reason: &str, message: Option<String>| ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
            ..ContainerState::default()
        };
        match &slot.stage {
            Stage::Running(run) => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(seconds(run.since)) }),
                ..ContainerState::default()
            },
            Stage::Terminated => ContainerState {
                terminated: slot.ended.as_ref().map(|ended| self.terminated(ended, container)),
                ..ContainerState::default()
            },
            Stage::BackingOff { delay, .. } => {
                let (delay, name, pod) = (go_duration(*delay), &container.name, pod_text(self.pod));
                let message = format!("back-off {delay} restarting failed container={name} pod={pod}");
                waiting("CrashLoopBackOff", Some(message))
            }
            Stage::PullFailed { since, message, .. } => {
                if after(*since, std::time::Duration::from_secs(1)) > self.now {
                    return waiting("ErrImagePull", Some(message.to_string()));
                }
                let image = container.image.as_deref().unwrap_or_default();
                waiting("ImagePullBackOff", Some(format!("Back-off pulling image {image:?}: ErrImagePull: {message}")))
            }
            Stage::StartFailed { reason, message, .. } => waiting(reason, Some(message.to_string())),
            Stage::Idle | Stage::Pulling { .. } | Stage::Starting { .. } => {
                let init = self.spec.init_containers.as_ref().is_some_and(|list| !list.is_empty());
                let init = init && slot.role != Role::Ephemeral;
                waiting(if init { "PodInitializing" } else { "ContainerCreating" }, None)
            }
        }
    }

    fn terminated(&self, ended: &Termination, container: &Container) -> ContainerStateTerminated {
        ContainerStateTerminated {
            exit_code: ended.code,
            reason: Some(ended.reason.to_string()),
            started_at: Some(seconds(ended.started)),
            finished_at: Some(seconds(ended.finished)),
            container_id: Some(self.container_id(container, ended.run)),
            message: ended.message.as_deref().map(str::to_owned),
            ..ContainerStateTerminated::default()
        }
    }

    fn container_id(&self, container: &Container, run: u32) -> String {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        format!("containerd://{}", digest(&[uid, &container.name, &run.to_string()]))
    }

    fn conditions(&self, phase: &str, before: Vec<PodCondition>) -> Vec<PodCondition> {
        let wanted = [
            ("PodReadyToStartContainers", self.sandbox()),
            ("Initialized", self.initialized(phase)),
            ("Ready", self.ready(phase, &before)),
            ("ContainersReady", self.containers_ready(phase)),
            ("PodScheduled", ConditionStatus::yes()),
        ];
        let mut conditions: Vec<PodCondition> = wanted
            .into_iter()
            .map(|(type_, verdict)| {
                let old = before.iter().find(|condition| condition.type_ == type_);
                let same = old.filter(|old| (old.status == "True") == verdict.yes);
                let since = same.and_then(|old| old.last_transition_time.clone());
                PodCondition {
                    type_: type_.to_owned(),
                    status: if verdict.yes { "True" } else { "False" }.to_owned(),
                    reason: verdict.reason.map(str::to_owned),
                    message: verdict.message,
                    last_transition_time: since.or_else(|| Some(seconds(self.now))),
                    last_probe_time: old.and_then(|old| old.last_probe_time.clone()),
                    observed_generation: self.pod.metadata.generation,
                }
            })
            .collect();
        conditions
            .extend(before.into_iter().filter(|condition| !KUBELET_CONDITIONS.contains(&condition.type_.as_str())));
        conditions
    }

    fn sandbox(&self) -> ConditionStatus {
        if self.machine.finished || self.is_waiting_for_sandbox() {
            ConditionStatus::no(None, None)
        } else {
            ConditionStatus::yes()
        }
    }

    fn initialized(&self, phase: &str) -> ConditionStatus {
        if phase == "Succeeded" {
            return ConditionStatus { reason: Some("PodCompleted"), ..ConditionStatus::yes() };
        }
        let init = |role| matches!(role, Role::Init | Role::Sidecar);
        let incomplete = self.names(|slot| init(slot.role) && !self.is_done(slot));
        if self.machine.initialized || incomplete.is_empty() {
            return ConditionStatus::yes();
        }
        let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
        ConditionStatus::no(Some("ContainersNotInitialized"), Some(message))
    }

    fn is_done(&self, slot: &Slot) -> bool {
        if slot.role == Role::Init { slot.is_ready(self.now) } else { slot.is_up(self.now) }
    }

    fn containers_ready(&self, phase: &str) -> ConditionStatus {
        match phase {
            "Succeeded" => return ConditionStatus::no(Some("PodCompleted"), None),
            "Failed" => return ConditionStatus::no(Some("PodFailed"), None),
            _ => {}
        }
        let counts = |slot: &Slot| matches!(slot.role, Role::Sidecar | Role::Main);
        let unready = self.names(|slot| counts(slot) && !slot.is_ready(self.now));
        if unready.is_empty() {
            return ConditionStatus::yes();
        }
        let message = format!("containers with unready status: [{}]", unready.join(" "));
        ConditionStatus::no(Some("ContainersNotReady"), Some(message))
    }

    fn ready(&self, phase: &str, conditions: &[PodCondition]) -> ConditionStatus {
        let containers = self.containers_ready(phase);
        if !containers.yes {
            return containers;
        }
        let gates = self.spec.readiness_gates.iter().flatten().filter_map(|gate| {
            let name = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *name) {
                None => Some(format!("corresponding condition of pod readiness gate {name:?} does not exist.")),
                Some(condition) if condition.status == "True" => None,
                Some(condition) => {
                    Some(format!("the status of pod readiness gate {name:?} is not \"True\", but {}", condition.status))
                }
            }
        });
        let missing: Vec<String> = gates.collect();
        if missing.is_empty() {
            return ConditionStatus::yes();
        }
        ConditionStatus::no(Some("ReadinessGatesNotReady"), Some(missing.join(", ")))
    }

    fn names(&self, which: impl Fn(&Slot) -> bool) -> Vec<String> {
        let list = containers(self.spec).zip(&self.machine.slots);
        list.filter(|(_, slot)| which(slot)).map(|((_, container), _)| container.name.clone()).collect()
    }
}

/// Status of a condition, with the reason if it is false.
struct ConditionStatus {
    yes: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionStatus {
    fn yes() -> Self {
        Self { yes: true, reason: None, message: None }
    }

    fn no(reason: Option<&'static str>, message: Option<String>) -> Self {
        Self { yes: false, reason, message }
    }
}

/// A time in whole seconds, as objects carry it.
pub(super) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn image_id(image: &str) -> String {
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    let at = name.rfind('/').map_or(0, |at| at + 1);
    let name = name[at..].find(':').map_or(name, |colon| &name[..at + colon]);
    format!("{name}@sha256:{}", digest(&[image]))
}

/// 64 hexadecimal digits derived from some texts: an identity, not a secret.
pub(super) fn digest(texts: &[&str]) -> String {
    // FNV-1a from four seeds, with a finalizer that spreads the influence of the last bytes.
    let mut hashes = [1, 2, 3, 4].map(|seed: u64| 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for byte in texts.iter().flat_map(|text| text.as_bytes().iter().chain(&[0])) {
        for hash in &mut hashes {
            *hash = (*hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    let mut text = String::with_capacity(64);
    for mut hash in hashes {
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^= hash >> 32;
        let digits = (0..16).rev().filter_map(|at| char::from_digit((hash >> (4 * at)) as u32 & 15, 16));
        text.extend(digits);
    }
    text
}
