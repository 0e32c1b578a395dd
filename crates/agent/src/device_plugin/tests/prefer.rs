//! Which devices are chosen.

use std::collections::BTreeMap;

use capstan_hw::gpu::nvidia::{Relation, Topology};
use proptest::prelude::*;

use crate::config::AllocationPolicy::{self, Distributed, Packed};
use crate::device_plugin::devices::split;
use crate::device_plugin::prefer::{aligned, greedy, score};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|gpu| format!("GPU-{gpu:02}")).collect()
}

/// How many replicas of each device were chosen, most first.
fn spread(
    policy: AllocationPolicy,
    gpus: usize,
    replicas: usize,
    taken: &[&str],
    size: usize,
) -> Result<Vec<usize>, String> {
    let total: BTreeMap<String, usize> = names(gpus).into_iter().map(|gpu| (gpu, replicas)).collect();
    let all = names(gpus).into_iter().flat_map(|gpu| (0..replicas).map(move |replica| format!("{gpu}::{replica}")));
    let free: Vec<String> = all.filter(|id| !taken.contains(&id.as_str())).collect();
    let chosen = greedy(policy, &total, &free, &[], size)?;
    assert_eq!(chosen.len(), size);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    chosen.iter().for_each(|id| *counts.entry(split(id).0).or_default() += 1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    Ok(counts)
}

#[test]
fn replicas_are_spread_or_packed() {
    let cases: [(AllocationPolicy, usize, usize, usize, &[usize]); 8] = [
        (Distributed, 2, 4, 2, &[1, 1]),
        (Distributed, 3, 2, 3, &[1, 1, 1]),
        (Distributed, 2, 4, 4, &[2, 2]),
        (Distributed, 1, 1, 1, &[1]),
        (Packed, 2, 4, 2, &[2]),
        (Packed, 3, 2, 3, &[2, 1]),
        (Packed, 2, 4, 4, &[4]),
        (Packed, 2, 4, 5, &[4, 1]),
    ];
    for (policy, gpus, replicas, size, wanted) in cases {
        assert_eq!(spread(policy, gpus, replicas, &[], size).as_deref(), Ok(wanted), "{policy:?} {size}");
    }
    for policy in [Distributed, Packed] {
        assert!(spread(policy, 1, 2, &[], 3).expect_err("too many").contains("not enough available devices"));
    }
}

#[test]
fn the_least_used_device_comes_first() {
    let taken = ["GPU-00::0", "GPU-00::1"];
    assert_eq!(spread(Distributed, 3, 4, &taken, 2), Ok(vec![1, 1]));
    let total = [("GPU-00".to_owned(), 2), ("GPU-01".to_owned(), 2)].into();
    let free = ["GPU-00::1", "GPU-01::0", "GPU-01::1"].map(str::to_owned);
    assert_eq!(greedy(Distributed, &total, &free, &[], 1), Ok(vec!["GPU-01::0".into()]));
    assert_eq!(greedy(Packed, &total, &free, &[], 1), Ok(vec!["GPU-00::1".into()]));
}

#[test]
fn required_replicas_count_as_used() {
    let total = [("GPU-00".to_owned(), 2), ("GPU-01".to_owned(), 2)].into();
    let free = ["GPU-00::0", "GPU-00::1", "GPU-01::0", "GPU-01::1"].map(str::to_owned);
    let chosen = greedy(Distributed, &total, &free, &["GPU-00::1".into()], 2);
    assert_eq!(chosen, Ok(vec!["GPU-00::1".into(), "GPU-01::0".into()]));
}

/// Two quads whose GPUs are joined by NVLinks, numbered so that a quad is not a run.
fn quads() -> Topology {
    let mut topology = Topology::default();
    let gpus = names(8);
    for (place, a) in gpus.iter().enumerate() {
        for (other, b) in gpus.iter().enumerate().skip(place + 1) {
            let (relation, links) = if place % 2 == other % 2 { (Relation::Socket, 4) } else { (Relation::System, 0) };
            topology.set(a, b, relation, links);
        }
    }
    topology
}

#[test]
fn gpus_that_are_joined_go_together() {
    let topology = quads();
    let chosen = aligned(&topology, &names(8), &[], 4);
    assert_eq!(chosen, ["GPU-00", "GPU-02", "GPU-04", "GPU-06"]);
    let with = aligned(&topology, &names(8), &["GPU-03".into()], 4);
    assert_eq!(with, ["GPU-01", "GPU-03", "GPU-05", "GPU-07"]);
    let left = aligned(&topology, &names(8)[1..], &[], 4);
    assert_eq!(left, ["GPU-01", "GPU-03", "GPU-05", "GPU-07"]);
}

#[test]
fn what_cannot_be_is_answered_with_nothing() {
    let topology = quads();
    assert!(aligned(&topology, &names(8), &[], 0).is_empty());
    assert!(aligned(&topology, &names(2), &[], 3).is_empty());
    assert!(aligned(&topology, &names(8), &names(3), 2).is_empty());
    assert!(aligned(&topology, &names(2), &["GPU-07".into()], 1).is_empty());
}

#[test]
fn many_gpus_are_answered_too() {
    let mut topology = Topology::default();
    let gpus = names(16);
    for (place, a) in gpus.iter().enumerate() {
        for (other, b) in gpus.iter().enumerate().skip(place + 1) {
            topology.set(a, b, if place / 4 == other / 4 { Relation::Switch } else { Relation::System }, 0);
        }
    }
    assert_eq!(aligned(&topology, &gpus, &["GPU-09".into()], 4), ["GPU-08", "GPU-09", "GPU-10", "GPU-11"]);
}

/// The best cut in the plainest way: every order of the GPUs, cut one group after the other.
fn brute(topology: &Topology, free: &[String], required: &[String], size: usize) -> Option<u64> {
    fn orders(items: &[String]) -> Vec<Vec<String>> {
        if items.is_empty() {
            return vec![Vec::new()];
        }
        (0..items.len())
            .flat_map(|place| {
                let mut rest = items.to_vec();
                let first = rest.remove(place);
                orders(&rest).into_iter().map(move |mut order| {
                    order.insert(0, first.clone());
                    order
                })
            })
            .collect()
    }
    let worth = |group: &[String]| -> u64 {
        let pairs = group.iter().enumerate().flat_map(|(place, a)| group[place + 1..].iter().map(move |b| (a, b)));
        pairs.map(|(a, b)| score(topology, a, b)).sum()
    };
    let cuts = orders(free).into_iter().filter_map(|order| {
        let groups: Vec<&[String]> = order.chunks(size).collect();
        let fits = |group: &&&[String]| group.len() == size && required.iter().all(|gpu| group.contains(gpu));
        let best = groups.iter().filter(fits).map(|group| worth(group)).max()?;
        Some((groups.iter().map(|group| worth(group)).sum::<u64>(), best))
    });
    // Cuts that are worth the same may have different best groups: the total decides.
    cuts.map(|(total, _)| total).max()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_chosen_group_is_part_of_a_best_cut(
        count in 1usize..6, size in 1usize..5, pairs in proptest::collection::vec((0usize..6, 0u32..4), 15), must in 0usize..7,
    ) {
        let gpus = names(count);
        let relations =
            [Relation::System, Relation::Socket, Relation::HostBridge, Relation::Switches, Relation::Switch, Relation::Board];
        let (mut topology, mut pairs) = (Topology::default(), pairs.into_iter());
        for (place, a) in gpus.iter().enumerate() {
            for b in &gpus[place + 1..] {
                let (relation, links) = pairs.next().expect("enough pairs");
                topology.set(a, b, relations[relation], links);
            }
        }
        let required: Vec<String> = gpus.get(must).cloned().into_iter().collect();
        let chosen = aligned(&topology, &gpus, &required, size);
        prop_assert_eq!(chosen.is_empty(), size > count);
        if size <= count {
            prop_assert_eq!(chosen.len(), size);
            prop_assert!(required.iter().all(|gpu| chosen.contains(gpu)));
            // With the chosen group fixed, the best cut is as good as the best of all.
            let best = brute(&topology, &gpus, &required, size);
            prop_assert_eq!(brute(&topology, &gpus, &chosen, size), best);
        }
    }
}
