//! Drivers by pool: GPU nodes with the same model, driver and CUDA version.

use capstan_operands::gpu::nodes::keys::PRODUCT;
use capstan_operands::gpu::nodes::{Node, OWNER, has_gpu};
use serde::Serialize;
use serde_json::Value;

use super::text::{Row, table};
use super::{Table, Versions};
use crate::paint::Paint;
use crate::snapshot::{Snapshot, named};

/// Drivers by pool.
pub(crate) const TABLE: Table = Table {
    kinds: &["ClusterPolicy.nvidia.com", "NVIDIADriver.nvidia.com"],
    fill: |snapshot, versions| versions.drivers = of(snapshot),
    draw: drivers,
};

/// A pool of similar nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// GPU model.
    pub product: String,
    /// Number of nodes.
    pub nodes: usize,
    /// An example node.
    pub example: String,
    /// The custom resource that selects the driver: `ClusterPolicy cluster-policy`, `NVIDIADriver a100`, or none.
    pub owner: String,
    /// Desired driver version; empty if none is, as with preinstalled drivers.
    pub wanted: String,
    /// Running driver version, by GPU feature discovery; empty before it has run.
    pub running: String,
    /// Highest CUDA version that the driver supports.
    pub cuda: String,
    /// Kernel version of the nodes.
    pub kernel: String,
    /// Their operating system.
    pub system: String,
    /// Whether the running driver differs from the desired one.
    pub differs: bool,
}

fn of(snapshot: &Snapshot) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    for node in snapshot.of("", "Node").iter().filter(|node| has_gpu(Node::of(*node).labels)) {
        let pool = pool(snapshot, node);
        let alike = pools.iter_mut().find(|one| {
            let key = |pool: &Pool| {
                let Pool { product, owner, wanted, running, cuda, kernel, system, .. } = pool.clone();
                [product, owner, wanted, running, cuda, kernel, system]
            };
            key(one) == key(&pool)
        });
        match alike {
            Some(one) => one.nodes += 1,
            None => pools.push(pool),
        }
    }
    pools.sort_by(|one, other| {
        (&one.product, &one.running, &one.example).cmp(&(&other.product, &other.running, &other.example))
    });
    pools
}

fn pool(snapshot: &Snapshot, node: &Value) -> Pool {
    let view = Node::of(node);
    let label =
        |key: &str| view.labels.get(key).filter(|value| !value.contains("unknown")).unwrap_or_default().to_owned();
    let parts = |keys: &[&str]| {
        let parts: Vec<String> = keys.iter().map(|key| label(key)).filter(|part| !part.is_empty()).collect();
        parts.join(".")
    };
    let either =
        |full: &str, keys: &[&str]| Some(label(full)).filter(|full| !full.is_empty()).unwrap_or_else(|| parts(keys));
    let running = either(
        "nvidia.com/cuda.driver-version.full",
        &["nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"],
    );
    let cuda = either(
        "nvidia.com/cuda.runtime-version.full",
        &["nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"],
    );
    let (owner, wanted) = wanted(snapshot, view.labels.get(OWNER));
    let info = &node["status"]["nodeInfo"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kernel = Some(label("feature.node.kubernetes.io/kernel-version.full")).filter(|kernel| !kernel.is_empty());
    Pool {
        product: label(PRODUCT),
        nodes: 1,
        example: view.name.into(),
        // A digest does not show the version.
        differs: !wanted.is_empty() && !running.is_empty() && !wanted.starts_with("sha256:") && wanted != running,
        owner,
        wanted,
        running,
        cuda,
        kernel: kernel.unwrap_or_else(|| text(&info["kernelVersion"])),
        system: text(&info["osImage"]),
    }
}

/// The custom resource and driver version of a node.
fn wanted(snapshot: &Snapshot, owner: Option<&str>) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(owner) = owner.filter(|owner| !owner.is_empty()) {
        let driver = snapshot.find("nvidia.com", "NVIDIADriver", "", owner);
        return (format!("NVIDIADriver {owner}"), driver.map(|one| text(&one["spec"]["version"])).unwrap_or_default());
    }
    let policy = snapshot.of("nvidia.com", "ClusterPolicy").first();
    let driver = policy.map(|one| &one["spec"]["driver"]);
    match policy.zip(driver).filter(|(_, driver)| driver["enabled"] != false && driver["useNvidiaDriverCRD"] != true) {
        Some((policy, driver)) => (format!("ClusterPolicy {}", named(policy).1), text(&driver["version"])),
        None => (String::new(), String::new()),
    }
}

fn drivers(versions: &Versions, paint: Paint) -> String {
    let mut rows =
        vec![Row::head(&["PRODUCT", "NODES", "SUCH AS", "WANTED BY", "WANTED", "RUNNING", "CUDA", "KERNEL", "SYSTEM"])];
    for one in &versions.drivers {
        let known = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let cells = vec![
            known(&one.product),
            one.nodes.to_string(),
            one.example.clone(),
            known(&one.owner),
            known(&one.wanted),
            known(&one.running),
            known(&one.cuda),
            known(&one.kernel),
            known(&one.system),
        ];
        rows.push(Row { differs: one.differs, cells });
    }
    table("drivers", rows, paint)
}
