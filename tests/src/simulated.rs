//! Virtual nodes of stories: equal on the embedded cluster and on a real control plane.

use std::time::Duration;

use capstan_gpu_sim::Machines;
use capstan_sim::{NodeTemplate, node};

/// Nodes with eight allocatable GPUs each, whose containers start and stop like real ones.
pub(crate) fn usual(nodes: usize) -> node::Settings {
    let nodes = (0..nodes).map(|index| NodeTemplate {
        name: format!("gpu-{index}"),
        capacity: [("nvidia.com/gpu".to_owned(), "8".to_owned())].into(),
        labels: [("feature.node.kubernetes.io/pci-10de.present".to_owned(), "true".to_owned())].into(),
        ..NodeTemplate::default()
    });
    settings(nodes.collect(), downloads())
}

/// GPU nodes without operands.
pub(crate) fn bare(nodes: u16) -> node::Settings {
    let nodes = (0..nodes).map(|index| capstan_gpu_sim::gpu_node(&format!("gpu-{index}"), 8));
    settings(nodes.collect(), capstan_gpu_sim::rules(capstan_gpu_sim::Pace::default()))
}

/// The same on machines with fake hardware, where containers of this image run its code.
pub(crate) fn on_machines(nodes: u16, machines: &Machines, image: &str) -> node::Settings {
    let nodes = (0..nodes).map(|index| capstan_gpu_sim::bare_node(&format!("gpu-{index}"), 8));
    machines.run(settings(nodes.collect(), Vec::new()), image, capstan_gpu_sim::Pace::default())
}

fn settings(nodes: Vec<NodeTemplate>, rules: Vec<(node::Match, node::Behaviour)>) -> node::Settings {
    let soon = node::Behaviour {
        started_after: Some(Duration::from_secs(1)),
        ready_after: Some(Duration::from_secs(1)),
        ..node::Behaviour::default()
    };
    let rules = [vec![(node::Match::default(), soon)], rules].concat();
    node::Settings { nodes, rules, ..node::Settings::default() }
}

/// Containers that exit: manifest printers and downloads. They fail with the image `broken`; `missing` cannot be
/// pulled.
pub fn downloads() -> Vec<(node::Match, node::Behaviour)> {
    let ends = |code| Some(node::Exit::after(Duration::from_secs(5), code));
    let prints = |text: &str| node::Behaviour {
        exit: ends(0),
        log: Some(text.lines().map(str::to_owned).collect()),
        ..node::Behaviour::default()
    };
    let of = |pod: &str| node::Match { pod: Some(pod.into()), ..node::Match::default() };
    let missing = node::PullFailure { message: String::new(), times: None };
    vec![
        (
            of("*-pod"),
            prints("trt:\n  model: meta/llama\n  tags: {llm_engine: tensorrt_llm, tp: 2, trtllm_buildable: true}"),
        ),
        // The image of the examples.
        (
            node::Match { image: Some("*llama-3.1-8b-instruct:1.8".into()), ..of("llama-pod") },
            prints("trt:\n  model: meta/llama\n  tags: {llm_engine: tensorrt_llm, tp: 1, trtllm_buildable: true}"),
        ),
        (of("*-engine-build-pod"), node::Behaviour { exit: Some(node::Exit::Never), ..node::Behaviour::default() }),
        (
            of("*-local-manifest-pod"),
            prints("built:\n  tags: {model_name: tuned, tp: 2}\nexample:\n  tags: {model_name: llama-tuned, tp: 1}"),
        ),
        (of("*-job-*"), node::Behaviour { exit: ends(0), ..node::Behaviour::default() }),
        (
            node::Match { image: Some("*broken:*".into()), ..of("*-job-*") },
            node::Behaviour { exit: ends(1), ..node::Behaviour::default() },
        ),
        (
            node::Match::image("*missing:*"),
            node::Behaviour { pull_failure: Some(missing), ..node::Behaviour::default() },
        ),
    ]
}
