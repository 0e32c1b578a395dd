//! Options of a cluster's operator: arguments and environment of its Deployment.

use anyhow::{Result, anyhow};
use capstan_inspect::Snapshot;
use capstan_inspect::snapshot::named;
use capstan_operator::Options;
use clap::Parser;
use serde_json::Value;

/// Command line of an operator.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: crate::operator::Args,
}

/// Options of the cluster's operator without leader election, and notes about the differences.
pub(crate) fn options(snapshot: &Snapshot) -> Result<(Options, Vec<String>)> {
    let alone = Options::in_process();
    let Some((namespace, container)) = find(snapshot) else {
        let options = crate::operator::in_process();
        let note = format!("no operator found: this is what one would do in the namespace {}", options.gpu.namespace);
        return Ok((options, vec![note]));
    };
    let words = ["command", "args"].iter().flat_map(|field| container[*field].as_array().into_iter().flatten());
    let mut words = words.filter_map(Value::as_str).skip_while(|word| *word != "operator").skip(1);
    let mut line: Vec<String> = words.by_ref().map(str::to_owned).collect();
    // In the pod, namespace and name come from the environment.
    line.extend(["--namespace".to_owned(), namespace.to_owned()]);
    let line = Line::try_parse_from(&line).map_err(|error| {
        anyhow!("the operator in {namespace} has arguments that this version does not know: {error}")
    })?;
    let variable = |name: &str| {
        let found = container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?;
        found["value"].as_str().map(str::to_owned)
    };
    Ok((Options { gpu: crate::operator::gpu(&line.args, variable), ..alone }, Vec::new()))
}

/// Namespace and container of the operator, if it is installed.
fn find(snapshot: &Snapshot) -> Option<(&str, &Value)> {
    snapshot.of("apps", "Deployment").iter().find_map(|deployment| {
        let labels = &deployment["metadata"]["labels"];
        if labels["app.kubernetes.io/name"] != "capstan" {
            return None;
        }
        let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
        let is_operator = |container: &&Value| {
            let words = ["command", "args"].iter().flat_map(|field| container[*field].as_array().into_iter().flatten());
            words.into_iter().any(|word| word == "operator")
        };
        Some((named(deployment).0, containers.iter().find(is_operator)?))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operator_is_taken_as_it_runs() {
        let mut snapshot = Snapshot::default();
        let container = json!({
            "name": "manager", "args": ["operator", "--leader-elect", "--node-layout=per-component", "--health-probe-bind-address=:8081"],
            "env": [{"name": "DRIVER_IMAGE", "value": "example.com/driver:1"}],
        });
        snapshot.add(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "c", "namespace": "ops", "labels": {"app.kubernetes.io/name": "capstan"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }));
        let (options, notes) = options(&snapshot).unwrap();
        assert_eq!(options.gpu.namespace, "ops");
        assert_eq!(options.gpu.images["DRIVER_IMAGE"], "example.com/driver:1");
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn a_cluster_without_one_is_told_so() {
        let (_, notes) = options(&Snapshot::default()).unwrap();
        assert!(notes[0].starts_with("no operator found"), "{notes:?}");
    }
}
