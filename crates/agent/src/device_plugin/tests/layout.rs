//! Which devices are offered, under which names.

use proptest::prelude::*;

use super::*;
use crate::device_plugin::devices::split;

/// Names with the number of devices, as the kubelet sees them.
fn counts(inventory: &Inventory, text: &str) -> Vec<(String, usize)> {
    let set = advertised(inventory, text).expect("resources");
    set.resources.iter().map(|resource| (resource.name.to_string(), resource.advertised().count())).collect()
}

type Counts<'a> = &'a [(&'a str, usize)];

fn named(pairs: Counts<'_>) -> Vec<(String, usize)> {
    pairs.iter().map(|&(name, count)| (name.into(), count)).collect()
}

const SINGLE: &str = "flags: {migStrategy: single}";
const MIXED: &str = "flags: {migStrategy: mixed}";

#[test]
fn mig_strategies_offer_gpus_or_their_parts() {
    let plain = gpus(2).inventory;
    let alike = gpus(2).with_mig(0, &["3g.71gb", "3g.71gb"]).with_mig(1, &["3g.71gb"]).inventory;
    let cut = gpus(2).with_mig(0, &["1g.18gb", "1g.18gb+me", "2g.35gb"]).inventory;
    let cases: [(&Inventory, &str, Counts<'_>); 6] = [
        (&plain, "", &[("nvidia.com/gpu", 2)]),
        (&alike, "", &[("nvidia.com/gpu", 2)]),
        (&plain, SINGLE, &[("nvidia.com/gpu", 2)]),
        (&alike, SINGLE, &[("nvidia.com/gpu", 3)]),
        (&alike, MIXED, &[("nvidia.com/mig-3g.71gb", 3)]),
        (
            &cut,
            MIXED,
            &[
                ("nvidia.com/gpu", 1),
                ("nvidia.com/mig-1g.18gb", 1),
                ("nvidia.com/mig-1g.18gb.me", 1),
                ("nvidia.com/mig-2g.35gb", 1),
            ],
        ),
    ];
    for (inventory, text, wanted) in cases {
        assert_eq!(counts(inventory, text), named(wanted), "{text}");
    }
}

#[test]
fn a_layout_that_does_not_fit_is_refused_with_the_way_out() {
    let cases = [
        (gpus(2).with_mig(0, &["3g.71gb"]), "all GPUs or on none"),
        (gpus(1).with_mig_empty(0), "create them"),
        (gpus(1).with_mig(0, &["3g.71gb", "1g.18gb"]), "use mixed"),
    ];
    for (recording, said) in cases {
        let error = advertised(&recording.inventory, SINGLE).expect_err("refused").to_string();
        assert!(error.contains(said) && error.contains("migStrategy: single"), "{error}");
    }
    let empty = advertised(&gpus(1).with_mig_empty(0).inventory, MIXED).expect("only a warning");
    assert_eq!((empty.resources.len(), empty.warnings.len()), (0, 1));
}

#[test]
fn parts_of_a_shared_instance_have_no_resource_of_their_own() {
    let recording = Recording::h200_mig_shared();
    let set = advertised(&recording.inventory, MIXED).expect("resources");
    assert!(set.resources.is_empty() && !set.warnings.is_empty(), "{set:?}");
}

#[test]
fn shared_devices_are_offered_many_times() {
    let text = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}";
    assert_eq!(counts(&gpus(2).inventory, text), named(&[("nvidia.com/gpu.shared", 8)]));
    let other = "sharing: {timeSlicing: {resources: [{name: mig-1g.18gb, replicas: 4}]}}";
    assert_eq!(counts(&gpus(2).inventory, other), named(&[("nvidia.com/gpu", 2)]));
}

#[test]
fn windows_and_tegra_have_one_device() {
    let one = |platform| {
        let inventory = gpus(2).inventory;
        let set = build_resources(platform, &inventory, &settings(""), &KernelFiles::default()).expect("resources");
        let device = &set.resources[0].devices[..];
        (device.len(), device[0].id.clone(), device[0].index.clone(), device[0].paths.clone())
    };
    assert_eq!(one(Platform::Wsl), (1, "all".into(), "all".into(), vec!["/dev/dxg".into()]));
    assert_eq!(one(Platform::Tegra), (1, "tegra".into(), "0".into(), Vec::new()));
}

#[test]
fn a_device_knows_its_nodes_and_its_numa_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let recording = gpus(8).with_mig(7, &["1g.18gb"]);
    capstan_hw::fake::Root::write(dir.path(), &recording.inventory).expect("files");
    let kernel = KernelFiles::read(dir.path(), &recording.inventory);
    let set = build_resources(Platform::Nvml, &recording.inventory, &settings(MIXED), &kernel).expect("resources");
    let gpu = &set.resources[0].devices[0];
    assert_eq!((gpu.numa, &gpu.paths[..]), (Some(0), &["/dev/nvidia0".to_owned()][..]));
    let part = &set.resources[1].devices[0];
    assert_eq!((part.numa, part.paths.len()), (Some(1), 3));
    assert!(part.paths[1..].iter().all(|path| dir.path().join(&path[1..]).exists()), "{:?}", part.paths);
}

#[test]
fn a_numa_node_is_a_number_none_or_a_mistake() {
    let inventory = gpus(1).inventory;
    let numa = |text: &str| {
        let numa = [(inventory.gpus[0].pci.to_string(), text.to_owned())].into();
        let kernel = KernelFiles { numa, minors: String::new() };
        build_resources(Platform::Nvml, &inventory, &settings(""), &kernel).map(|set| set.resources[0].devices[0].numa)
    };
    assert_eq!(numa("1\n"), Ok(Some(1)));
    assert_eq!(numa("-1\n"), Ok(None));
    assert!(numa("near\n").expect_err("a mistake").to_string().contains("near"));
}

proptest! {
    #[test]
    fn an_id_is_split_as_it_was_made(id in "(GPU|MIG)-[0-9a-f-]{4,20}", replica in 0u32..1000) {
        let made = format!("{id}::{replica}");
        prop_assert_eq!(split(&made), (id.as_str(), Some(replica)));
        prop_assert_eq!(split(&id), (id.as_str(), None));
    }

    #[test]
    fn any_id_is_answered(id in "\\PC{0,40}") {
        let (real, _) = split(&id);
        prop_assert!(id.starts_with(real));
    }
}
