//! Driver upgrades that are stuck.

use crate::doctor::cluster::resources;
use crate::doctor::finding::Finding;
use crate::doctor::index::{Index, condition, reference, text};

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    let stuck = resources::all(index).filter_map(|resource| {
        let reported = condition(resource, "DriverUpgrade")?;
        let reason = text(&reported["reason"]);
        if !["NodesFailed", "Halted", "RolledBack", "Held"].contains(&reason) {
            return None;
        }
        let line = format!("{}, condition DriverUpgrade: {reason}", reference(resource));
        let fix = "see the annotation capstan.dev/upgrade-reason of the nodes; docs/gpu.md, Driver upgrades, says how to \
                   try a node again, leave it out or go back";
        Some(Finding::about(resource, text(&reported["message"])).evidence(line).fix(fix))
    });
    stuck.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::doctor::testing::{assert_only, policy};

    #[test]
    fn an_upgrade_that_stands_still() {
        let reported =
            json!([{"type": "DriverUpgrade", "status": "False", "reason": "Halted", "message": "3 nodes failed"}]);
        let report = assert_only(&policy("ready", reported), "driver-upgrade");
        assert_eq!(report.causes[0].title, "ClusterPolicy cluster-policy: 3 nodes failed");
    }
}
