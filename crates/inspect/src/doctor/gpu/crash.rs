//! GPU operands that fail for a reason that no other rule knows. Drivers have their own rule.

use crate::doctor::cluster::crash::failing;
use crate::doctor::finding::Finding;
use crate::doctor::index::{Index, Role};

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    failing(index, |pod| !matches!(pod.role, Role::Driver | Role::Workload))
}

#[cfg(test)]
mod tests {
    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn last_words_are_quoted() {
        let report = assert_only(
            &Cluster::healthy().crashing("toolkit", "gpu-1", "nvidia-container-toolkit-ctr", "boom"),
            "operand-crashes",
        );
        assert!(report.causes[0].evidence[0].ends_with("boom"), "{report:?}");
    }
}
