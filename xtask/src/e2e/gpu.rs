//! The examples of `examples/gpu`, on a node that only pretends to have GPUs: what a user sees of drivers that cannot come,
//! and that nobody else notices.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{RELEASE, Suite, examples};
use crate::cluster::NODE;

/// What operands take from their node, and leave on it.
const HOST_FOLDERS: [&str; 2] = ["/run/nvidia", "/run/mellanox"];

/// Applies them, waits for the words, deletes them.
pub(super) fn policy(suite: &Suite) -> Result<String> {
    let folder = suite.root.join("examples/gpu").display().to_string();
    let there: Vec<PathBuf> = HOST_FOLDERS.iter().map(PathBuf::from).filter(|path| !path.exists()).collect();
    let (objects, labels) = (examples::versions(suite, "resourceVersion")?, labels(suite)?);
    suite.kubectl(&["apply", "--recursive", "-f", &folder])?;
    let policies = examples::objects(suite, &[&folder])?;
    let mut told = Vec::new();
    for policy in &policies {
        let words = examples::words(policy).with_context(|| format!("{policy} is not in the table of what waits"))?;
        examples::says(suite, policy, words)?;
        told.push(format!("{} says {words:?}", super::name(policy)));
    }
    let sets = daemon_sets(suite)?;
    if sets == 0 {
        bail!("no DaemonSet was made");
    }
    suite.kubectl(&["delete", "--recursive", "-f", &folder])?;
    suite.wait("DaemonSets are left", || Ok(daemon_sets(suite)? == 0))?;
    suite.two_operators()?;
    suite.wait("the node has other labels than before", || Ok(self::labels(suite)? == labels))?;
    if let Some(changed) = examples::versions(suite, "resourceVersion")?.iter().find(|one| !objects.contains(one)) {
        bail!("changed: {changed}");
    }
    for folder in there {
        // Made by the node for pods that never ran.
        let _ = std::fs::remove_dir_all(folder);
    }
    Ok(format!("{}; {sets} DaemonSets came and went, and nothing else changed", told.join(", ")))
}

fn labels(suite: &Suite) -> Result<Value> {
    Ok(suite.json(&["get", "node", NODE])?["metadata"]["labels"].clone())
}

fn daemon_sets(suite: &Suite) -> Result<usize> {
    let list = suite.json(&["get", "daemonsets", "-n", RELEASE])?;
    let pods = suite.json(&["get", "pods", "-n", RELEASE, "-l", "app.kubernetes.io/name!=capstan"])?;
    let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
    // Pods that are on their way out count as well.
    Ok(count(&list).max(usize::from(count(&pods) > 0)))
}
