//! Node features besides GPUs: kernel, operating system, PCI devices, CPU, network. Named as in Node Feature Discovery,
//! so that clusters with and without it have the same labels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use capstan_api::nfd::{AttributeFeatures, Features, FlagFeatures, InstanceFeature, InstanceFeatures, Present};
use capstan_hw::pci;

use super::labels::Labels;

const DOMAIN: &str = "feature.node.kubernetes.io/";
/// PCI classes with labels: network, display, co-processors, accelerators.
const CLASSES: [&str; 4] = ["02", "03", "0b40", "12"];
/// os-release keys with labels.
const OS_KEYS: [&str; 6] =
    ["ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor", "OSTREE_VERSION", "RHEL_VERSION"];
/// Non-alphanumeric characters of a kernel version that a label value may have.
const KERNEL: [char; 3] = ['-', '_', '.'];

/// Features of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFeatures {
    /// Labels by full name.
    pub labels: Labels,
    /// Features for NodeFeatureRules.
    pub features: Features,
}

/// Reads the features of a node from files below `root`.
pub(super) fn read(root: &Path, devices: &[pci::Device]) -> NodeFeatures {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let kernel = kernel(&read("proc/sys/kernel/osrelease"));
    let first = |texts: [String; 2]| texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let os = os_release(&first([read("etc/os-release"), read("usr/lib/os-release")]));
    let cpu = cpu(&read("proc/cpuinfo"));
    let modules = modules(&read("proc/modules"));
    let network = network(root);
    let mut found = NodeFeatures::default();
    let mut say = |name: String, value: &str| drop(found.labels.insert(format!("{DOMAIN}{name}"), value.to_owned()));
    kernel.iter().for_each(|(key, value)| say(format!("kernel-version.{key}"), value));
    cpu.iter().for_each(|(key, value)| say(format!("cpu-model.{key}"), value));
    for key in OS_KEYS {
        if let Some(value) = os.get(key) {
            say(format!("system-os_release.{key}"), value);
        }
    }
    pci_labels(devices).iter().for_each(|name| say(name.clone(), "true"));
    let functions = |key: &str| network.iter().any(|one| one.get(key).is_some_and(|count| count != "0"));
    for (key, name) in [("sriov_totalvfs", "network-sriov.capable"), ("sriov_numvfs", "network-sriov.configured")] {
        if functions(key) {
            say(name.to_owned(), "true");
        }
    }
    if devices.iter().any(|device| device.vendor == pci::MELLANOX) {
        say("rdma.capable".into(), "true");
    }
    if ["ib_uverbs", "rdma_ucm"].iter().all(|module| modules.contains(*module)) {
        say("rdma.available".into(), "true");
    }
    found.labels.retain(|_, value| is_label_value(value));
    found.features = features(
        [("kernel.version", kernel), ("system.osrelease", os), ("cpu.model", cpu)],
        modules,
        [("pci.device", devices.iter().map(attributes).collect()), ("network.device", network)],
    );
    found
}

type Values = BTreeMap<String, String>;

fn features<const A: usize, const I: usize>(
    attributes: [(&str, Values); A],
    modules: BTreeSet<String>,
    instances: [(&str, Vec<Values>); I],
) -> Features {
    let attributes = attributes.map(|(key, elements)| (key.to_owned(), AttributeFeatures { elements }));
    let present = modules.into_iter().map(|name| (name, Present {})).collect();
    let instances = instances.map(|(key, found)| {
        let elements = found.into_iter().map(|attributes| InstanceFeature { attributes }).collect();
        (key.to_owned(), InstanceFeatures { elements })
    });
    Features {
        flags: Some([("kernel.loadedmodule".to_owned(), FlagFeatures { elements: present })].into()),
        attributes: Some(attributes.into()),
        instances: Some(instances.into()),
    }
}

/// Parses a kernel version: `6.8.0-45-generic` is 6, 8, 0, and so is `6.8.0+deb13-amd64`.
pub(super) fn kernel(text: &str) -> Values {
    let plain = |c: char| if c.is_ascii_alphanumeric() || KERNEL.contains(&c) { c } else { '_' };
    let full: String = text.trim().chars().map(plain).collect();
    let full = full.trim_matches(KERNEL).to_owned();
    let mut values = Values::new();
    // What a distribution adds begins at a dash, or at a plus, which is an underscore here.
    let numbers = full.split(['-', '_']).next().unwrap_or_default().split('.');
    let numeric = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    for (key, part) in ["major", "minor", "revision"].iter().zip(numbers).take_while(|(_, part)| numeric(part)) {
        values.insert((*key).to_owned(), part.to_owned());
    }
    if !full.is_empty() {
        values.insert("full".into(), full);
    }
    values
}

/// Parses os-release: unquoted keys, and the parts of the version.
pub(super) fn os_release(text: &str) -> Values {
    let mut values = Values::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once('=') else { continue };
        if key.starts_with('#') || key.is_empty() {
            continue;
        }
        values.insert(key.to_owned(), unquote(value.trim()));
    }
    if let Some(version) = values.get("VERSION_ID").cloned() {
        let mut parts = version.split('.').filter(|part| !part.is_empty()).map(str::to_owned);
        for key in ["VERSION_ID.major", "VERSION_ID.minor"] {
            values.extend(parts.next().map(|part| (key.to_owned(), part)));
        }
    }
    values
}

/// Unquotes a value as a shell does.
fn unquote(text: &str) -> String {
    let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    if let Some(inner) = quoted('\'') {
        return inner.to_owned();
    }
    let mut out = String::new();
    let mut chars = quoted('"').unwrap_or(text).chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

/// CPU vendor and model.
pub(super) fn cpu(text: &str) -> Values {
    let first = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let vendor = match first("vendor_id").as_deref() {
        Some("GenuineIntel") => Some("Intel".to_owned()),
        Some("AuthenticAMD") => Some("AMD".to_owned()),
        Some("HygonGenuine") => Some("Hygon".to_owned()),
        Some(other) => Some(other.to_owned()),
        None => first("CPU implementer").map(|id| match id.as_str() {
            "0x41" => "ARM".to_owned(),
            "0x4e" => "NVIDIA".to_owned(),
            "0xc0" => "Ampere".to_owned(),
            _ => id,
        }),
    };
    let fields =
        [("vendor_id", vendor), ("family", first("cpu family")), ("id", first("model").or_else(|| first("CPU part")))];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Names of loaded modules, from /proc/modules.
pub(super) fn modules(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn pci_labels(devices: &[pci::Device]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for device in devices {
        let class = format!("{:04x}", device.class >> 8);
        if !CLASSES.iter().any(|wanted| class.starts_with(wanted)) {
            continue;
        }
        for fields in [format!("{:04x}", device.vendor), format!("{class}_{:04x}", device.vendor)] {
            names.insert(format!("pci-{fields}.present"));
            if device.sriov.is_some_and(|(total, _)| total > 0) {
                names.insert(format!("pci-{fields}.sriov.capable"));
            }
        }
    }
    names
}

fn attributes(device: &pci::Device) -> Values {
    let mut values: Values = [
        ("class".to_owned(), format!("{:04x}", device.class >> 8)),
        ("vendor".to_owned(), format!("{:04x}", device.vendor)),
        ("device".to_owned(), format!("{:04x}", device.device)),
    ]
    .into();
    values.extend(device.sriov.map(|(total, _)| ("sriov_totalvfs".to_owned(), total.to_string())));
    values
}

/// Physical network devices.
fn network(root: &Path) -> Vec<Values> {
    let dir = root.join("sys/class/net");
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut found: Vec<Values> = entries
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| {
            let read = |path: &str| {
                let text = std::fs::read_to_string(entry.path().join(path)).ok()?;
                Some(text.trim().to_owned()).filter(|text| !text.is_empty())
            };
            let keys = [
                ("operstate", "operstate"),
                ("speed", "speed"),
                ("mtu", "mtu"),
                ("sriov_totalvfs", "device/sriov_totalvfs"),
                ("sriov_numvfs", "device/sriov_numvfs"),
            ];
            let mut values: Values =
                keys.iter().filter_map(|(key, path)| Some(((*key).to_owned(), read(path)?))).collect();
            values.insert("name".into(), entry.file_name().into_string().ok()?);
            Some(values)
        })
        .collect();
    found.sort();
    found
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    let plain = value.chars().all(|c| edge(c) || KERNEL.contains(&c));
    value.is_empty() || (value.len() <= 63 && plain && value.starts_with(edge) && value.ends_with(edge))
}
