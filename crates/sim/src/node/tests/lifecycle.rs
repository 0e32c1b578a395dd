//! Lifecycle of a pod without a server: its status at each second.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodStatus};
use serde_json::{Value, json};

use super::super::backoff::after;
use super::super::behaviour::{Behaviour, Exit, Match, PullFailure, Rules, StartFailure};
use super::super::lifecycle::{Effect, End, Machine, MachineInputs};
use super::super::status::{Addresses, status};
use crate::Pod;

struct Life {
    pod: Pod,
    machine: Machine,
    rules: Rules,
    images: HashSet<String>,
    start: Timestamp,
    now: Timestamp,
    effects: Vec<Effect>,
    misconfigured: Option<String>,
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn pod(spec: Value) -> Pod {
    let meta = json!({"name": "p", "namespace": "ns", "uid": "u", "generation": 1});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

fn plain() -> Value {
    json!({"containers": [{"name": "c", "image": "img"}]})
}

impl Life {
    fn new(spec: Value) -> Self {
        let (pod, start) = (pod(spec), "2025-01-01T00:00:00Z".parse().unwrap());
        Self {
            machine: Machine::new(&pod, start),
            pod,
            rules: Rules::default(),
            images: HashSet::new(),
            start,
            now: start,
            effects: Vec::new(),
            misconfigured: None,
        }
    }

    fn rule(self, which: Match, behaviour: Behaviour) -> Self {
        self.rules.add(which, behaviour);
        self
    }

    fn step(&mut self) -> PodStatus {
        let behaviour = |container: &Container| self.rules.behaviour(&self.pod, container);
        let misconfigured = |_: &Container| self.misconfigured.clone();
        let mut inputs = MachineInputs {
            behaviour: &behaviour,
            misconfigured: &misconfigured,
            log_tail: &|_| Some("the end".into()),
            images: &mut self.images,
        };
        self.effects.extend(self.machine.step(&self.pod, self.now, &mut inputs));
        let fresh = status(&self.machine, &self.pod, Addresses { host: "172.16.0.2", pod: Some("10.0.0.2") }, self.now);
        self.pod.status = Some(fresh.clone());
        fresh
    }

    /// Every status until a time, with the second of the transition.
    fn until(&mut self, end: u64) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        let end = after(self.start, seconds(end));
        loop {
            let text = show(&self.step());
            if seen.last().is_none_or(|last| last.split_once(' ').unwrap().1 != text) {
                seen.push(format!("{}s {text}", self.now.duration_since(self.start).as_secs()));
            }
            match self.machine.due(&self.pod, self.now).filter(|due| *due <= end) {
                Some(due) => {
                    assert!(due > self.now, "time goes on");
                    self.now = due;
                }
                None => {
                    self.now = end;
                    return seen;
                }
            }
        }
    }

    fn delete(&mut self, grace: u64) {
        let time = after(self.now, seconds(grace));
        self.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    }

    fn events(&self, wanted: &str) -> Vec<String> {
        let events = self.effects.iter().filter_map(|effect| match effect {
            Effect::Event { reason, message, .. } if *reason == wanted => Some(message.clone()),
            _ => None,
        });
        events.collect()
    }
}

fn show(status: &PodStatus) -> String {
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let containers: Vec<String> = lists.into_iter().flatten().flatten().map(show_container).collect();
    let reason = status.reason.as_ref().map(|reason| format!("({reason})")).unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    format!("{phase}{reason}{} {}", if ready { "+ready" } else { "" }, containers.join(" "))
}

fn show_container(status: &ContainerStatus) -> String {
    let state = status.state.as_ref().unwrap();
    let text = match (&state.waiting, &state.running, &state.terminated) {
        (Some(waiting), ..) => waiting.reason.clone().unwrap(),
        (_, Some(_), _) if status.ready => "ready".to_owned(),
        (_, Some(_), _) if status.started == Some(true) => "started".to_owned(),
        (_, Some(_), _) => "running".to_owned(),
        (.., Some(ended)) => format!("{}:{}", ended.reason.clone().unwrap(), ended.exit_code),
        _ => "?".to_owned(),
    };
    let restarts = if status.restart_count > 0 { format!("*{}", status.restart_count) } else { String::new() };
    format!("{}={text}{restarts}", status.name)
}

#[test]
fn a_plain_pod_is_ready_at_once() {
    let mut life = Life::new(plain());
    assert_eq!(life.until(3600), ["0s Running+ready c=ready"]);
    let status = life.pod.status.as_ref().unwrap();
    let conditions: Vec<String> =
        status.conditions.iter().flatten().map(|c| format!("{}={}", c.type_, c.status)).collect();
    assert_eq!(
        conditions,
        [
            "PodReadyToStartContainers=True",
            "Initialized=True",
            "Ready=True",
            "ContainersReady=True",
            "PodScheduled=True"
        ]
    );
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("10.0.0.2"), Some("172.16.0.2")));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert!(container.container_id.as_ref().unwrap().starts_with("containerd://"));
    assert!(container.image_id.starts_with("img@sha256:"), "{}", container.image_id);
    assert_eq!(life.events("Pulling"), ["Pulling image \"img\""]);
    assert_eq!(life.events("Started"), ["Container started"]);
}

#[test]
fn everything_takes_its_time() {
    let behaviour = Behaviour {
        pull_time: Some(seconds(5)),
        start_time: Some(seconds(2)),
        started_after: Some(seconds(3)),
        ready_after: Some(seconds(4)),
        ..Behaviour::default()
    };
    let mut life = Life::new(plain()).rule(Match::image("img"), behaviour);
    assert_eq!(
        life.until(3600),
        [
            "0s Pending c=ContainerCreating",
            "7s Running c=running",
            "10s Running c=started",
            "14s Running+ready c=ready"
        ]
    );
    assert_eq!(
        life.events("Pulled"),
        ["Successfully pulled image \"img\" in 5s (5s including waiting). Image size: 50000003 bytes."]
    );
}

#[test]
fn probes_delay_readiness() {
    let probe = |delay: i32| json!({"initialDelaySeconds": delay, "exec": {"command": ["x"]}});
    let container = json!({"name": "c", "startupProbe": probe(2), "readinessProbe": probe(5)});
    let mut life = Life::new(json!({"containers": [container]}));
    assert_eq!(life.until(60), ["0s Running c=running", "2s Running c=started", "7s Running+ready c=ready"]);
}

#[test]
fn init_containers_go_one_after_the_other() {
    let init = [json!({"name": "i1", "image": "slow"}), json!({"name": "i2", "image": "slow"})];
    let mut life = Life::new(json!({"initContainers": init, "containers": [{"name": "c"}, {"name": "d"}]}))
        .rule(Match::image("slow"), Behaviour { exit: Some(Exit::after(seconds(3), 0)), ..Behaviour::default() });
    assert_eq!(
        life.until(60),
        [
            "0s Pending i1=started i2=PodInitializing c=PodInitializing d=PodInitializing",
            "3s Pending i1=Completed:0 i2=started c=PodInitializing d=PodInitializing",
            "6s Running+ready i1=Completed:0 i2=Completed:0 c=ready d=ready",
        ]
    );
}

#[test]
fn an_init_container_that_fails_is_tried_again() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    let exit = Exit::After { time: Duration::ZERO, code: 1, reason: None, times: Some(3) };
    let mut life = Life::new(spec).rule(Match::container("i"), Behaviour { exit: Some(exit), ..Behaviour::default() });
    assert_eq!(
        life.until(600),
        [
            "0s Pending i=CrashLoopBackOff*1 c=PodInitializing",
            "10s Pending i=CrashLoopBackOff*2 c=PodInitializing",
            "30s Running+ready i=Completed:0*3 c=ready",
        ]
    );
}

#[test]
fn an_init_container_that_fails_ends_a_pod_that_does_not_restart() {
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    let exit = Exit::after(seconds(1), 3);
    let mut life = Life::new(spec).rule(Match::container("i"), Behaviour { exit: Some(exit), ..Behaviour::default() });
    assert_eq!(life.until(600), ["0s Pending i=started c=PodInitializing", "1s Failed i=Error:3 c=PodInitializing"]);
}

#[test]
fn sidecars_start_first_and_end_last() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always"});
    let spec =
        json!({"restartPolicy": "Never", "initContainers": [sidecar, {"name": "i"}], "containers": [{"name": "c"}]});
    let mut life = Life::new(spec)
        .rule(
            Match::container("s"),
            Behaviour { started_after: Some(seconds(2)), stop_time: Some(seconds(1)), ..Behaviour::default() },
        )
        .rule(Match::container("c"), Behaviour { exit: Some(Exit::after(seconds(5), 0)), ..Behaviour::default() });
    assert_eq!(
        life.until(600),
        [
            "0s Pending s=running i=PodInitializing c=PodInitializing",
            "2s Running+ready s=ready i=Completed:0 c=ready",
            "7s Running s=ready i=Completed:0 c=Completed:0",
            "8s Succeeded s=Completed:0 i=Completed:0 c=Completed:0",
        ]
    );
}

#[test]
fn a_sidecar_that_fails_is_restarted_and_the_others_go_on() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always"});
    let exit = Exit::After { time: seconds(5), code: 1, reason: None, times: Some(2) };
    let mut life = Life::new(json!({"initContainers": [sidecar], "containers": [{"name": "c"}]}))
        .rule(Match::container("s"), Behaviour { exit: Some(exit), ..Behaviour::default() });
    assert_eq!(
        life.until(600),
        [
            "0s Running+ready s=ready c=ready",
            "5s Running+ready s=ready*1 c=ready",
            "10s Running s=CrashLoopBackOff*1 c=ready",
            "20s Running+ready s=ready*2 c=ready",
        ]
    );
}

#[test]
fn a_container_that_crashes_backs_off() {
    let exit = Exit::after(seconds(1), 1);
    let mut life = Life::new(plain()).rule(Match::image("img"), Behaviour { exit: Some(exit), ..Behaviour::default() });
    let seen = life.until(400);
    let restarts: Vec<&str> =
        seen.iter().filter(|text| text.contains("ready")).map(|text| text.split_once(' ').unwrap().0).collect();
    assert_eq!(restarts, ["0s", "1s", "12s", "33s", "74s", "155s", "316s"], "{seen:?}");
    assert!(seen.contains(&"2s Running c=CrashLoopBackOff*1".to_owned()), "{seen:?}");
    let status = life.pod.status.as_ref().unwrap();
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.message.as_deref(), Some("back-off 5m0s restarting failed container=c pod=p_ns(u)"));
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (1, Some("Error")));
    assert_eq!(life.events("BackOff")[0], "Back-off restarting failed container c in pod p_ns(u)");
}

#[test]
fn restart_policies() {
    let cases = [
        ("Always", 0, "Running+ready c=ready*1"),
        ("Always", 1, "Running+ready c=ready*1"),
        ("OnFailure", 0, "Succeeded c=Completed:0"),
        ("OnFailure", 1, "Running+ready c=ready*1"),
        ("Never", 0, "Succeeded c=Completed:0"),
        ("Never", 1, "Failed c=Error:1"),
    ];
    for (policy, code, expected) in cases {
        let exit = Exit::After { time: seconds(1), code, reason: None, times: Some(1) };
        let mut life = Life::new(json!({"restartPolicy": policy, "containers": [{"name": "c"}]}))
            .rule(Match::default(), Behaviour { exit: Some(exit), ..Behaviour::default() });
        let seen = life.until(30);
        assert_eq!(seen.last().unwrap(), &format!("1s {expected}"), "{policy} {code}");
    }
}

#[test]
fn a_pod_with_several_containers_fails_if_one_does() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}]});
    let exit = |time, code| Behaviour { exit: Some(Exit::after(seconds(time), code)), ..Behaviour::default() };
    let mut life = Life::new(spec).rule(Match::container("a"), exit(1, 1)).rule(Match::container("b"), exit(2, 0));
    assert_eq!(
        life.until(30),
        ["0s Running+ready a=ready b=ready", "1s Running a=Error:1 b=ready", "2s Failed a=Error:1 b=Completed:0",]
    );
}

#[test]
fn out_of_memory_is_said_so() {
    let exit = Exit::After { time: seconds(1), code: 137, reason: Some("OOMKilled".into()), times: Some(1) };
    let mut life = Life::new(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}))
        .rule(Match::default(), Behaviour { exit: Some(exit), ..Behaviour::default() });
    assert_eq!(life.until(30).last().unwrap(), "1s Failed c=OOMKilled:137");
}

#[test]
fn containers_of_jobs_end_after_a_moment() {
    let mut life = Life::new(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    life.pod.metadata.owner_references = serde_json::from_value(json!([
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x", "controller": true},
    ]))
    .unwrap();
    assert_eq!(life.until(30), ["0s Running+ready c=ready", "1s Succeeded c=Completed:0"]);
}

#[test]
fn images_that_cannot_be_pulled() {
    let failure = PullFailure { message: "no such image".into(), times: Some(2) };
    let mut life =
        Life::new(plain()).rule(Match::image("img"), Behaviour { pull_failure: Some(failure), ..Behaviour::default() });
    assert_eq!(life.until(5), ["0s Pending c=ErrImagePull", "1s Pending c=ImagePullBackOff"]);
    let status = life.pod.status.clone().unwrap();
    let waiting = status.container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap();
    assert_eq!(waiting.message.as_deref(), Some("Back-off pulling image \"img\": ErrImagePull: no such image"));
    assert_eq!(life.events("Failed")[..2], ["Failed to pull image \"img\": no such image", "Error: ErrImagePull"]);
    assert_eq!(
        life.until(100),
        [
            "5s Pending c=ImagePullBackOff",
            "10s Pending c=ErrImagePull",
            "11s Pending c=ImagePullBackOff",
            "30s Running+ready c=ready",
        ]
    );
}

#[test]
fn an_image_is_pulled_once() {
    let slow = Behaviour { pull_time: Some(seconds(5)), ..Behaviour::default() };
    let mut life = Life::new(plain()).rule(Match::image("img"), slow);
    life.images.insert("img".to_owned());
    assert_eq!(life.until(60), ["0s Running+ready c=ready"]);
    assert_eq!(
        life.events("Pulled"),
        ["Container image \"img\" already present on machine and can be accessed by the pod"]
    );
}

#[test]
fn containers_that_cannot_be_created() {
    let mut life = Life::new(plain());
    life.misconfigured = Some("configmap \"x\" not found".to_owned());
    assert_eq!(life.until(15), ["0s Pending c=CreateContainerConfigError"]);
    life.misconfigured = None;
    assert_eq!(life.until(60).last().unwrap(), "20s Running+ready c=ready");
    let failure = StartFailure { reason: "RunContainerError".into(), message: "no runtime".into(), times: Some(1) };
    let mut life =
        Life::new(plain()).rule(Match::default(), Behaviour { start_failure: Some(failure), ..Behaviour::default() });
    assert_eq!(life.until(60), ["0s Pending c=RunContainerError", "10s Running+ready c=ready"]);
}

#[test]
fn an_unhealthy_container_is_restarted() {
    let mut life = Life::new(plain())
        .rule(Match::default(), Behaviour { unhealthy_after: Some(seconds(30)), ..Behaviour::default() });
    assert_eq!(
        life.until(65),
        ["0s Running+ready c=ready", "30s Running+ready c=ready*1", "60s Running c=CrashLoopBackOff*1"]
    );
    assert_eq!(life.events("Killing")[0], "Container c failed liveness probe, will be restarted");
}

#[test]
fn a_container_that_is_never_ready() {
    let mut life = Life::new(plain()).rule(Match::default(), Behaviour { ready: Some(false), ..Behaviour::default() });
    assert_eq!(life.until(60), ["0s Running c=started"]);
    life.machine.force_ready(0, Some(true));
    assert_eq!(life.until(61), ["60s Running+ready c=ready"]);
}

#[test]
fn readiness_gates_hold_a_pod_back() {
    let mut life = Life::new(json!({"containers": [{"name": "c"}], "readinessGates": [{"conditionType": "lb"}]}));
    assert_eq!(life.until(1), ["0s Running c=ready"]);
    let ready = |life: &Life| {
        let conditions = life.pod.status.as_ref().unwrap().conditions.clone().unwrap();
        conditions.into_iter().find(|c| c.type_ == "Ready").unwrap()
    };
    let message = "corresponding condition of pod readiness gate \"lb\" does not exist.";
    assert_eq!(ready(&life).message.as_deref(), Some(message));
    let lb = serde_json::from_value(json!({"type": "lb", "status": "True"})).unwrap();
    life.pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(lb);
    assert_eq!(life.until(2), ["1s Running+ready c=ready"]);
    assert_eq!(life.pod.status.as_ref().unwrap().conditions.as_ref().unwrap().len(), 6, "what others wrote stays");
}

#[test]
fn a_deleted_pod_stops_within_its_grace_period() {
    let cases = [
        (0, vec!["10s Succeeded c=Completed:0"]),
        (5, vec!["10s Running+ready c=ready", "15s Succeeded c=Completed:0"]),
        (60, vec!["10s Running+ready c=ready", "40s Failed c=Error:137"]),
    ];
    for (stop, expected) in cases {
        let mut life = Life::new(plain())
            .rule(Match::default(), Behaviour { stop_time: Some(seconds(stop)), ..Behaviour::default() });
        life.until(10);
        life.delete(30);
        assert_eq!(life.until(600), expected, "{stop}");
        assert!(life.machine.finished);
        assert_eq!(life.events("Killing"), ["Stopping container c"]);
    }
}

#[test]
fn a_deletion_can_be_hurried_up() {
    let mut life =
        Life::new(plain()).rule(Match::default(), Behaviour { stop_time: Some(seconds(100)), ..Behaviour::default() });
    life.until(10);
    life.delete(60);
    life.until(20);
    life.delete(1);
    assert_eq!(life.until(600), ["20s Running+ready c=ready", "21s Failed c=Error:137"]);
}

#[test]
fn a_pod_that_is_deleted_before_it_starts_never_does() {
    let mut life =
        Life::new(plain()).rule(Match::default(), Behaviour { pull_time: Some(seconds(100)), ..Behaviour::default() });
    life.until(10);
    life.delete(30);
    life.until(300);
    assert!(life.machine.finished && life.events("Started").is_empty());
}

#[test]
fn a_pod_may_only_be_active_so_long() {
    let mut life = Life::new(json!({"activeDeadlineSeconds": 20, "containers": [{"name": "c"}]}));
    assert_eq!(life.until(600), ["0s Running+ready c=ready", "20s Failed(DeadlineExceeded) c=Completed:0"]);
}

#[test]
fn a_pod_that_is_made_to_fail() {
    let mut life = Life::new(plain());
    life.until(10);
    let end = End::Failed { reason: "Evicted".into(), message: "The node was low on resource: memory.".into() };
    life.machine.finish(end, life.now);
    assert_eq!(life.until(20), ["10s Failed(Evicted) c=Completed:0"]);
}

#[test]
fn a_reboot_starts_everything_again() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    let mut life = Life::new(spec)
        .rule(Match::container("i"), Behaviour { exit: Some(Exit::after(seconds(1), 0)), ..Behaviour::default() });
    life.until(10);
    life.machine.reboot(life.now);
    assert_eq!(
        life.until(60),
        ["10s Pending i=started c=PodInitializing*1", "11s Running+ready i=Completed:0 c=ready*1"]
    );
    let status = life.pod.status.as_ref().unwrap();
    let last = status.container_statuses.as_ref().unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (255, Some("Unknown")));
}

#[test]
fn a_pod_that_ran_before_its_node_was_off_is_started_again_and_counted() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    let mut life = Life::new(spec)
        .rule(Match::container("i"), Behaviour { exit: Some(Exit::after(seconds(1), 0)), ..Behaviour::default() });
    life.until(10);
    life.machine = Machine::rebooted(&life.pod, life.now);
    assert_eq!(
        life.until(60),
        ["10s Pending i=started c=PodInitializing*1", "11s Running+ready i=Completed:0 c=ready*1"]
    );
    let started = life.pod.status.as_ref().unwrap().start_time.clone().unwrap();
    assert_eq!(started.0, life.start);
    life.machine = Machine::rebooted(&life.pod, life.now);
    assert_eq!(life.until(90).last().unwrap(), "61s Running+ready i=Completed:0 c=ready*2");
}

#[test]
fn a_pod_that_is_never_started_again_fails_if_its_node_was_off() {
    let mut life = Life::new(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    life.until(10);
    life.machine = Machine::rebooted(&life.pod, life.now);
    assert_eq!(life.until(60), ["10s Failed c=Unknown:255"]);
}

#[test]
fn a_pod_that_has_not_run_yet_has_just_come_after_its_node_was_off() {
    let mut life =
        Life::new(plain()).rule(Match::default(), Behaviour { pull_time: Some(seconds(5)), ..Behaviour::default() });
    life.until(2);
    life.machine = Machine::rebooted(&life.pod, life.now);
    assert!(life.machine.is_new());
    assert_eq!(life.until(60).last().unwrap(), "7s Running+ready c=ready");
}

#[test]
fn containers_that_are_added_later_run() {
    let mut life = Life::new(plain());
    life.until(10);
    let spec = life.pod.spec_mut();
    spec.ephemeral_containers = serde_json::from_value(json!([{"name": "debug", "image": "tools"}])).unwrap();
    life.until(20);
    let status = life.pod.status.as_ref().unwrap();
    let debug = &status.ephemeral_container_statuses.as_ref().unwrap()[0];
    assert!(debug.state.as_ref().unwrap().running.is_some());
    assert_eq!(show(status), "Running+ready c=ready");
}

proptest::proptest! {
    /// Whatever containers do, time advances, a finished pod remains finished, and a deleted pod terminates within its
    /// grace period.
    #[test]
    fn pods_end(
        policy in proptest::sample::select(vec!["Always", "OnFailure", "Never"]),
        exits in proptest::collection::vec((0..30u64, 0..3i32, proptest::option::of(0..4u32)), 1..4),
        init in proptest::collection::vec(proptest::prelude::any::<bool>(), 0..3),
        delays in proptest::collection::vec(0..20u64, 4),
        delete in 0..200u64,
    ) {
        let containers: Vec<Value> = (0..exits.len()).map(|i| json!({"name": format!("c{i}"), "image": "img"})).collect();
        let init: Vec<Value> = init
            .iter()
            .enumerate()
            .map(|(i, stays)| json!({"name": format!("i{i}"), "restartPolicy": stays.then_some("Always")}))
            .collect();
        let mut life = Life::new(json!({"restartPolicy": policy, "initContainers": init, "containers": containers}));
        life = life.rule(Match::default(), Behaviour {
            pull_time: Some(seconds(delays[0])),
            start_time: Some(seconds(delays[1])),
            started_after: Some(seconds(delays[2])),
            stop_time: Some(seconds(delays[3] * 3)),
            ..Behaviour::default()
        });
        for (i, (time, code, times)) in exits.iter().enumerate() {
            let exit = Exit::After { time: seconds(*time), code: *code, reason: None, times: *times };
            let behaviour = Behaviour { exit: Some(exit), ..Behaviour::default() };
            life = life.rule(Match::container(&format!("c{i}")), behaviour);
        }
        life.until(delete);
        let over = life.machine.finished;
        let phase = life.pod.status.as_ref().unwrap().phase.clone();
        life.delete(30);
        life.until(delete + 30);
        proptest::prop_assert!(life.machine.finished);
        let last = life.pod.status.as_ref().unwrap().phase.clone();
        if over {
            proptest::prop_assert_eq!(phase, last);
        }
    }
}
