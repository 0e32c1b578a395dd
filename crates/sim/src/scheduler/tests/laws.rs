//! Properties of scheduling for arbitrary pods and nodes.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::cycle::Cycle;
use super::super::pod::PodInfo;
use super::super::schedule::Decision;
use super::{World, node, pod};

#[derive(Clone, Debug)]
enum Step {
    /// A pod is created and scheduled.
    Create(PodRequest),
    /// The n-th pod is deleted.
    Delete(usize),
}

#[derive(Clone, Debug)]
struct PodRequest {
    cpu: u32,
    devices: u32,
    app: usize,
    priority: i32,
    port: bool,
    zone: Option<usize>,
    spread: bool,
    near: Option<usize>,
    far: Option<usize>,
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn pod_request() -> impl Strategy<Value = PodRequest> {
    let option = |range: std::ops::Range<usize>| proptest::option::weighted(0.2, range);
    (0..2500u32, 0..2u32, 0..3usize, 0..3i32, any::<u8>(), option(0..3), any::<u8>(), option(0..3), option(0..3))
        .prop_map(|(cpu, devices, app, priority, port, zone, spread, near, far)| PodRequest {
            cpu,
            devices,
            app,
            priority,
            port: port < 30,
            zone,
            spread: spread < 60,
            near,
            far,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![4 => pod_request().prop_map(Step::Create), 1 => (0..40usize).prop_map(Step::Delete)]
}

fn to_pod(at: usize, pod_request: &PodRequest) -> crate::Pod {
    let selector =
        |app: usize| json!({"labelSelector": {"matchLabels": {"app": format!("a{app}")}}, "topologyKey": ZONE});
    let required = |app: usize| json!({"requiredDuringSchedulingIgnoredDuringExecution": [selector(app)]});
    let mut container = json!({"name": "c", "resources": {"requests": {"cpu": format!("{}m", pod_request.cpu)}}});
    if pod_request.devices > 0 {
        container["resources"]["requests"]["example.com/device"] = json!(pod_request.devices.to_string());
    }
    if pod_request.port {
        container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
    }
    let mut spec = json!({"containers": [container], "priority": pod_request.priority, "affinity": {}});
    if let Some(zone) = pod_request.zone {
        spec["nodeSelector"] = json!({ZONE: format!("z{zone}")});
    }
    if pod_request.spread {
        let mut constraint: Value = selector(pod_request.app);
        constraint["maxSkew"] = json!(1);
        constraint["whenUnsatisfiable"] = json!("DoNotSchedule");
        spec["topologySpreadConstraints"] = json!([constraint]);
    }
    if let Some(app) = pod_request.near {
        spec["affinity"]["podAffinity"] = required(app);
    }
    if let Some(app) = pod_request.far {
        spec["affinity"]["podAntiAffinity"] = required(app);
    }
    pod(&format!("p{at}"), json!({"metadata": {"labels": {"app": format!("a{}", pod_request.app)}}, "spec": spec}))
}

/// Sums and constraints, computed from scratch.
fn check(world: &World) {
    for id in world.state.order() {
        let node = world.state.node(*id);
        let cpu: i64 = node.pods.iter().map(|pod| pod.requests.exact.milli_cpu).sum();
        let devices: i64 = node.pods.iter().map(|pod| pod.requests.exact.get("example.com/device")).sum();
        let ports = node.pods.iter().filter(|pod| !pod.ports.is_empty()).count();
        assert!(cpu <= 4000 && devices <= 2 && ports <= 1 && node.pods.len() <= 10, "{node:?}");
        assert_eq!((cpu, devices), (node.requested.milli_cpu, node.requested.get("example.com/device")));
        for pod in &node.pods {
            let affinity = capstan_semantics::node_selector::NodeAffinity::of(pod.spec());
            assert!(affinity.allows(node.node.as_ref().unwrap()));
        }
        // No pod violates the anti-affinity of another.
        for pod in &node.pods {
            for term in pod.affinity.iter().flat_map(|affinity| &affinity.anti) {
                let zone = node.label(&term.topology_key);
                let mut others = world.state.pods().filter(|(_, other)| other.key != pod.key);
                let clash = others.find(|(other_node, other)| {
                    world.state.node(*other_node).label(&term.topology_key) == zone
                        && term.matches(other.namespace(), None, other.labels())
                });
                assert!(clash.is_none(), "{} and {}", pod.key, clash.unwrap().1.key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// No node is overcommitted, and no constraint violated, in any sequence of creates and deletes. Incremental counts
    /// equal recomputed ones.
    #[test]
    fn nodes_are_never_over_committed(steps in proptest::collection::vec(step(), 1..60)) {
        let nodes = || (0..6).map(|i| node(&format!("n{i}"), json!({"metadata": {"labels": {ZONE: format!("z{}", i % 3)}}})));
        let mut world = World::with(nodes());
        let mut running: Vec<String> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Create(pod_request) => {
                    let pod = to_pod(at, pod_request);
                    if let Decision::Place(id, _) = world.decide(&pod) {
                        let name = world.state.node(id).name.to_string();
                        running.push(format!("default/p{at}"));
                        world.run(&name, pod);
                    }
                }
                Step::Delete(at) => {
                    if !running.is_empty() {
                        let key = running.swap_remove(at % running.len());
                        world.state.remove_pod(&key);
                    }
                }
            }
            check(&world);
        }
        let mut fresh = World::with(nodes());
        for (id, pod) in world.state.pods() {
            fresh.run(&world.state.node(id).name, crate::Pod::clone(&pod.pod));
        }
        for (at, step) in steps.iter().enumerate() {
            let Step::Create(pod_request) = step else { continue };
            let info = PodInfo::new(Arc::new(to_pod(1000 + at, pod_request)));
            for world in [&mut world, &mut fresh] {
                super::super::cycle::prepare(&mut world.state, &info, &[]);
            }
            for i in 0..6 {
                let answer = |world: &World| {
                    let id = world.state.find(&format!("n{i}")).unwrap();
                    let cycle = Cycle::new(&info, &world.state, &world.objects, &world.ledger).unwrap();
                    cycle.check(id).map(drop)
                };
                prop_assert_eq!(answer(&world), answer(&fresh));
            }
        }
    }

    /// After the victims of a preemption are gone, the pod fits; and no victim has the pod's priority or more.
    #[test]
    fn preemption_makes_room(pod_requests in proptest::collection::vec(pod_request(), 1..40), mut last in pod_request()) {
        let mut world = World::with((0..3).map(|i| node(&format!("n{i}"), json!({"metadata": {"labels": {ZONE: format!("z{i}")}}}))));
        for (at, pod_request) in pod_requests.iter().enumerate() {
            let pod = to_pod(at, pod_request);
            if let Decision::Place(id, _) = world.decide(&pod) {
                let name = world.state.node(id).name.to_string();
                world.run(&name, pod);
            }
        }
        last.priority = 2;
        let pod = to_pod(1000, &last);
        if let Decision::Unschedulable(unschedulable) = world.decide(&pod) && let Some(preemption) = unschedulable.preemption {
            let name = world.state.node(preemption.node).name.to_string();
            prop_assert!(!preemption.victims.is_empty());
            for victim in &preemption.victims {
                prop_assert!(victim.priority < 2);
                world.state.remove_pod(&victim.key);
            }
            let info = PodInfo::new(Arc::new(pod));
            super::super::cycle::prepare(&mut world.state, &info, &[]);
            let cycle = Cycle::new(&info, &world.state, &world.objects, &world.ledger).unwrap();
            prop_assert!(cycle.check(world.state.find(&name).unwrap()).is_ok());
        }
    }
}
