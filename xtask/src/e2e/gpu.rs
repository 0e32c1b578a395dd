//! The examples of `examples/gpu` on a node with simulated GPU capacity: conditions for drivers that cannot run,
//! without effect on other objects.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use super::{RELEASE, Suite, examples};
use crate::cluster::NODE;

/// Host directories of operands.
const HOST_FOLDERS: [&str; 2] = ["/run/nvidia", "/run/mellanox"];

/// Applies each, waits for its condition, and deletes it.
pub(super) fn policy(suite: &Suite) -> Result<String> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(suite.root.join("examples/gpu"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let absent: Vec<PathBuf> = HOST_FOLDERS.iter().map(PathBuf::from).filter(|path| !path.exists()).collect();
    let (objects, labels) = (examples::versions(suite, "resourceVersion")?, labels(suite)?);
    let mut most = 0;
    for file in &files {
        let file = file.display().to_string();
        suite.kubectl(&["apply", "-f", &file])?;
        for object in examples::objects(suite, &[&file])?.iter().filter(|object| examples::is_ours(object)) {
            match examples::expected_message(object) {
                Some(words) => examples::until_condition_contains(suite, object, words)?,
                None => examples::until_ready_or_explained(suite, object)?,
            }
        }
        most = most.max(daemon_sets(suite)?);
        suite.kubectl(&["delete", "-f", &file])?;
        suite.wait("DaemonSets are left", || Ok(daemon_sets(suite)? == 0))?;
        suite.wait("the node has other labels than before", || Ok(self::labels(suite)? == labels))?;
    }
    if most == 0 {
        bail!("no DaemonSet was made");
    }
    suite.two_operators()?;
    if let Some(changed) = examples::versions(suite, "resourceVersion")?.iter().find(|one| !objects.contains(one)) {
        bail!("changed: {changed}");
    }
    for folder in absent {
        // Created by the node for pods that never ran.
        let _ = std::fs::remove_dir_all(folder);
    }
    Ok(format!("{} examples, with up to {most} DaemonSets, came and went, and nothing else changed", files.len()))
}

fn labels(suite: &Suite) -> Result<Value> {
    Ok(suite.json(&["get", "node", NODE])?["metadata"]["labels"].clone())
}

fn daemon_sets(suite: &Suite) -> Result<usize> {
    let list = suite.json(&["get", "daemonsets", "-n", RELEASE])?;
    let pods = suite.json(&["get", "pods", "-n", RELEASE, "-l", "app.kubernetes.io/name!=capstan"])?;
    let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
    // Terminating pods count as well.
    Ok(count(&list).max(usize::from(count(&pods) > 0)))
}
