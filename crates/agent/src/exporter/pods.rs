//! Maps devices to pods, from the kubelet's pod-resources API.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::mig::legacy;

/// A device allocated to a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Allocation {
    /// The pod.
    pub pod: String,
    /// Its namespace.
    pub namespace: String,
    /// The container.
    pub container: String,
    /// The device, as named by the device plugin or the claim.
    pub device: Device,
}

/// How a device was allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Device {
    /// By a device plugin.
    Plugin {
        /// Resource name.
        resource: String,
        /// Device ID.
        id: String,
    },
    /// By a resource claim.
    Claim {
        /// The claim.
        claim: String,
        /// Its namespace.
        namespace: String,
        /// The driver.
        driver: String,
        /// The pool.
        pool: String,
        /// Name in the pool.
        name: String,
    },
}

impl Default for Device {
    fn default() -> Self {
        Self::Plugin { resource: String::new(), id: String::new() }
    }
}

/// Labels that come from the Pod object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// Its UID.
    pub id: String,
    /// UID as a label, if enabled.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// Labels of a metric line.
pub(super) type Attributes = BTreeMap<String, String>;

/// Label naming.
#[derive(Debug, Clone, Default)]
pub(super) struct Naming {
    /// `pod_name`, `pod_namespace`, `container_name` instead of `pod`, `namespace`, `container`.
    pub old_namespace: bool,
    /// Additional resource names that stand for GPUs.
    pub resources: Vec<String>,
}

/// Labels of every allocated device, by UUID of the GPU or MIG device. A device shared by several pods has one entry
/// per pod.
pub(super) fn attributes(
    allocations: &[Allocation],
    inventory: &Inventory,
    slices: &BTreeMap<(String, String), String>,
    facts: &BTreeMap<(String, String), PodFacts>,
    naming: &Naming,
) -> BTreeMap<String, Vec<Attributes>> {
    let mut all: BTreeMap<String, Vec<Attributes>> = BTreeMap::new();
    for allocation in allocations {
        let Some((uuid, more)) = target(&allocation.device, inventory, slices, naming) else { continue };
        let mut attributes = named(allocation, naming);
        attributes.extend(more);
        if let Some(facts) = facts.get(&(allocation.namespace.clone(), allocation.pod.clone())) {
            if !facts.uid.is_empty() {
                attributes.insert("pod_uid".into(), facts.uid.clone());
            }
            attributes.extend(facts.labels.iter().map(|(key, value)| (clean(key), value.clone())));
        }
        all.entry(uuid).or_default().push(attributes);
    }
    for sharers in all.values_mut() {
        sharers.sort();
        sharers.dedup();
    }
    all
}

fn named(allocation: &Allocation, naming: &Naming) -> Attributes {
    let keys = match naming.old_namespace {
        true => ["pod_name", "pod_namespace", "container_name"],
        false => ["pod", "namespace", "container"],
    };
    let values = [&allocation.pod, &allocation.namespace, &allocation.container];
    keys.into_iter().map(str::to_owned).zip(values.into_iter().cloned()).collect()
}

/// A pod label key as a Prometheus label name.
fn clean(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// The UUID of an allocated device, and extra labels from its ID.
fn target(
    device: &Device,
    inventory: &Inventory,
    slices: &BTreeMap<(String, String), String>,
    naming: &Naming,
) -> Option<(String, Attributes)> {
    match device {
        Device::Plugin { resource, id } => {
            let ours = resource == "nvidia.com/gpu"
                || resource.starts_with("nvidia.com/gpu.")
                || resource.starts_with("nvidia.com/mig-")
                || naming.resources.contains(resource);
            if !ours {
                return None;
            }
            let (id, vgpu) = match id.split_once("/vgpu") {
                Some((id, number)) => (id, Some(number.to_owned())),
                None => (id.as_str(), None),
            };
            let id = id.split("::").next().unwrap_or(id);
            let more = vgpu.map(|number| ("vgpu".to_owned(), number)).into_iter().collect();
            Some((uuid(id, inventory)?, more))
        }
        Device::Claim { claim, namespace, driver, pool, name } => {
            let uuid = slices.get(&(pool.clone(), name.clone()))?.clone();
            let mut more: Attributes = [
                ("dra_claim_name", claim),
                ("dra_claim_namespace", namespace),
                ("dra_driver_name", driver),
                ("dra_pool_name", pool),
                ("dra_device_name", name),
            ]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
            let mut parts = inventory.gpus.iter().flat_map(|gpu| &gpu.mig_devices);
            if let Some(part) = parts.find(|part| part.uuid == uuid) {
                more.insert("dra_mig_profile".into(), part.profile.clone());
                more.insert("dra_mig_device_uuid".into(), uuid.clone());
            }
            Some((uuid, more))
        }
    }
}

/// The UUID for a device plugin ID: a UUID, an index, or a format of other plugins.
fn uuid(id: &str, inventory: &Inventory) -> Option<String> {
    if let Some((gpu, gi, ci)) = legacy(id) {
        let gpu = inventory.gpus.iter().find(|each| each.uuid == gpu)?;
        return gpu.mig_devices.iter().find(|part| (part.gi, part.ci) == (gi, ci)).map(|part| part.uuid.clone());
    }
    if id.starts_with("GPU-") || id.starts_with("MIG-") {
        return Some(id.to_owned());
    }
    let gpu = |number: &str| {
        let number: u32 = number.parse().ok()?;
        inventory.gpus.iter().find(|gpu| gpu.index == number)
    };
    // `nvidia0/gi7`, the format of GKE.
    if let Some(rest) = id.strip_prefix("nvidia") {
        return match rest.split_once("/gi") {
            Some((number, gi)) => {
                let gi: u32 = gi.parse().ok()?;
                gpu(number)?.mig_devices.iter().find(|part| part.gi == gi).map(|part| part.uuid.clone())
            }
            None => gpu(rest).map(|gpu| gpu.uuid.clone()),
        };
    }
    match id.split_once(':') {
        Some((number, part)) => {
            let part: u32 = part.parse().ok()?;
            gpu(number)?.mig_devices.iter().find(|each| each.index == part).map(|part| part.uuid.clone())
        }
        None => gpu(id).map(|gpu| gpu.uuid.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_hw::fake::{Model, Recording, node};
    use proptest::prelude::*;

    fn allocation(pod: &str, id: &str) -> Allocation {
        let device = Device::Plugin { resource: "nvidia.com/gpu".into(), id: id.into() };
        Allocation { pod: pod.into(), namespace: "n".into(), container: "c".into(), device }
    }

    fn map(allocations: &[Allocation], inventory: &Inventory, naming: &Naming) -> BTreeMap<String, Vec<Attributes>> {
        attributes(allocations, inventory, &BTreeMap::new(), &BTreeMap::new(), naming)
    }

    #[test]
    fn every_form_of_an_id_finds_its_device() {
        let inventory = Recording::h200_mig().inventory;
        let (gpu, part) = (&inventory.gpus[0].uuid, &inventory.gpus[0].mig_devices[1]);
        let cases = [
            (gpu.clone(), gpu),
            (format!("{gpu}::3"), gpu),
            (part.uuid.clone(), &part.uuid),
            (format!("{}::0", part.uuid), &part.uuid),
            (format!("nvidia0/gi{}", part.gi), &part.uuid),
            (format!("nvidia0/gi{}/vgpu2", part.gi), &part.uuid),
            (format!("{gpu}/vgpu1"), gpu),
            ("0".into(), gpu),
            ("0:1".into(), &part.uuid),
        ];
        for (id, wanted) in cases {
            let found = map(&[allocation("p", &id)], &inventory, &Naming::default());
            assert_eq!(found.keys().collect::<Vec<_>>(), [wanted], "{id}");
        }
    }

    #[test]
    fn other_resources_are_others() {
        let inventory = node(Model::H200, 1).inventory;
        let mut one = allocation("p", "0");
        one.device = Device::Plugin { resource: "example.com/gpu".into(), id: "0".into() };
        assert!(map(&[one.clone()], &inventory, &Naming::default()).is_empty());
        let naming = Naming { resources: vec!["example.com/gpu".into()], ..Naming::default() };
        assert_eq!(map(&[one], &inventory, &naming).len(), 1);
    }

    #[test]
    fn pods_that_share_a_device_are_all_known_in_order() {
        let inventory = node(Model::H200, 1).inventory;
        let gpu = inventory.gpus[0].uuid.clone();
        let found = map(
            &[allocation("b", &format!("{gpu}::1")), allocation("a", &format!("{gpu}::0"))],
            &inventory,
            &Naming::default(),
        );
        let pods: Vec<&str> = found[&gpu].iter().map(|attributes| attributes["pod"].as_str()).collect();
        assert_eq!(pods, ["a", "b"]);
    }

    #[test]
    fn labels_and_uid_are_added_with_clean_names() {
        let inventory = node(Model::H200, 1).inventory;
        let gpu = inventory.gpus[0].uuid.clone();
        let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), "x".to_owned())]);
        let facts = BTreeMap::from([(
            ("n".to_owned(), "p".to_owned()),
            PodFacts { uid: "u".into(), labels, ..PodFacts::default() },
        )]);
        let found = attributes(&[allocation("p", &gpu)], &inventory, &BTreeMap::new(), &facts, &Naming::default());
        let line = &found[&gpu][0];
        assert_eq!((line["pod_uid"].as_str(), line["app_kubernetes_io_name"].as_str()), ("u", "x"));
    }

    #[test]
    fn a_claim_finds_the_part_itself_not_its_gpu() {
        let inventory = Recording::h200_mig().inventory;
        let part = &inventory.gpus[0].mig_devices[0];
        let slices = BTreeMap::from([(("node".to_owned(), "gpu-0-mig-1".to_owned()), part.uuid.clone())]);
        let mut one = allocation("p", "");
        one.device = Device::Claim {
            claim: "claim".into(),
            namespace: "n".into(),
            driver: "gpu.nvidia.com".into(),
            pool: "node".into(),
            name: "gpu-0-mig-1".into(),
        };
        let found = attributes(&[one], &inventory, &slices, &BTreeMap::new(), &Naming::default());
        assert_eq!(found[&part.uuid][0]["dra_mig_profile"], "2g.35gb");
    }

    #[test]
    fn the_old_namespace_has_other_names() {
        let inventory = node(Model::H200, 1).inventory;
        let naming = Naming { old_namespace: true, ..Naming::default() };
        let found = map(&[allocation("p", "0")], &inventory, &naming);
        let line = &found[&inventory.gpus[0].uuid][0];
        assert_eq!(line.keys().collect::<Vec<_>>(), ["container_name", "pod_name", "pod_namespace"]);
    }

    proptest! {
        #[test]
        fn any_id_is_answered(id in ".{0,40}") {
            let _ = map(&[allocation("p", &id)], &Recording::h200_mig().inventory, &Naming::default());
        }
    }
}
