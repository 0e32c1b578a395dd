//! Scales a snapshot of a small cluster to a large one: copies each node with its pods. For measurements of the
//! commands that read snapshots.
//!
//!     capstan plan --from-cluster small.json
//!     cargo run --example fleet -- small.json 5000 large.json
//!     time capstan status --snapshot large.json

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Objects by kind.
type Objects = BTreeMap<String, Vec<Value>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [small, nodes, large] = args.as_slice() else { bail!("usage: fleet SMALL NODES LARGE") };
    let text = std::fs::read(small).with_context(|| format!("cannot read {small}"))?;
    let mut snapshot: Value = serde_json::from_slice(&text).with_context(|| format!("{small} is no snapshot"))?;
    let objects: Objects = serde_json::from_value(snapshot["objects"].take()).context("it has no objects")?;
    let grown = grow(objects, nodes.parse().with_context(|| format!("{nodes} is no number of nodes"))?)?;
    let counts: Vec<String> = grown.iter().map(|(kind, all)| format!("{} {kind}", all.len())).collect();
    eprintln!("{}", counts.join(", "));
    snapshot["objects"] = serde_json::to_value(grown)?;
    std::fs::write(large, serde_json::to_vec(&snapshot)?).with_context(|| format!("cannot write {large}"))
}

/// The objects with that many nodes. Objects without a node are kept once.
fn grow(objects: Objects, nodes: usize) -> Result<Objects> {
    let few: Vec<String> = objects.get("Node").into_iter().flatten().map(name).collect();
    if few.is_empty() {
        bail!("it has no nodes");
    }
    let mut grown = Objects::new();
    for (kind, all) in objects {
        let (of_nodes, others): (Vec<Value>, Vec<Value>) =
            all.into_iter().partition(|object| few.contains(&node_of(&kind, object)));
        let list = grown.entry(kind.clone()).or_default();
        list.extend(others);
        for number in 0..nodes {
            let node = &few[number % few.len()];
            for object in of_nodes.iter().filter(|object| node_of(&kind, object) == *node) {
                list.push(copy(object, node, number)?);
            }
        }
    }
    Ok(grown)
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The node that an object is, runs on or refers to.
fn node_of(kind: &str, object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        "Node" => name(object),
        "Lease.coordination.k8s.io" if object["metadata"]["namespace"] == "kube-node-lease" => name(object),
        "NodeFeature.nfd.k8s-sigs.io" => text(&object["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"]),
        _ => text(&object["spec"]["nodeName"]),
    }
}

/// A copy of an object on a node with another name.
fn copy(object: &Value, node: &str, number: usize) -> Result<Value> {
    let text = object.to_string().replace(&format!("\"{node}\""), &format!("\"gpu-{number:05}\""));
    let mut copy: Value = serde_json::from_str(&text)?;
    for field in ["name", "uid"] {
        let before = copy["metadata"][field].as_str().unwrap_or_default();
        if !before.starts_with("gpu-") {
            copy["metadata"][field] = format!("{before}-{number}").into();
        }
    }
    Ok(copy)
}
