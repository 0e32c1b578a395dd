//! ResourceClaims of the DRA driver, by node.

use serde_json::Value;

/// Name of the driver.
pub const DRIVER: &str = "gpu.nvidia.com";

/// Nodes whose GPUs a claim allocated. All served versions have the same shape here; the driver has one pool per node,
/// with its name.
pub fn nodes_of(claim: &Value) -> impl Iterator<Item = &str> {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array().into_iter().flatten();
    results.filter(|result| result["driver"] == DRIVER).filter_map(|result| result["pool"].as_str())
}

/// Whether GPUs of the node are allocated by one of `claims`. Admin access counts: it has to be unprepared, too.
pub fn in_use<'a>(node: &str, claims: impl IntoIterator<Item = &'a Value>) -> bool {
    let held = |claim: &&Value| claim["status"]["reservedFor"].as_array().is_some_and(|pods| !pods.is_empty());
    claims.into_iter().filter(held).any(|claim| nodes_of(claim).any(|one| one == node))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(driver: &str, node: &str, holders: Value) -> Value {
        json!({"status": {
            "reservedFor": holders, "allocation": {"devices": {"results": [{"driver": driver, "pool": node, "device": "d"}]}},
        }})
    }

    #[test]
    fn a_claim_counts_on_its_node_while_somebody_holds_it() {
        let pods = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
        let held = claim(DRIVER, "a", pods.clone());
        assert!(in_use("a", [&held]) && !in_use("b", [&held]));
        assert!(!in_use("a", [&claim(DRIVER, "a", json!([])), &claim(DRIVER, "a", Value::Null)]));
        assert!(!in_use("a", [&claim("net.example.com", "a", pods)]), "others give back what is theirs");
        assert!(!in_use("a", [&json!({"status": {}})]), "not allocated yet");
    }
}
