//! The preferred allocation: which free devices to allocate together.
//!
//! GPU pairs are scored by PCIe distance and, above all, NVLinks. The free GPUs are partitioned into groups of the
//! requested size in every way, and the best group of the best partition is taken, so that the remaining GPUs still
//! form good groups. Replicas of shared devices are distributed or packed instead.

use std::collections::{BTreeMap, BTreeSet};

use capstan_hw::gpu::nvidia::{Relation, Topology};

use super::devices::split;
use crate::config::AllocationPolicy;

/// Up to this many free GPUs all partitions are tried: 280 at most for eight.
const EXHAUSTIVE: usize = 8;

/// Score of a pair of GPUs.
pub(crate) fn score(topology: &Topology, a: &str, b: &str) -> u64 {
    let (relation, links) = topology.between(a, b);
    let near = match relation {
        Relation::System => 10,
        Relation::Socket => 20,
        Relation::HostBridge => 30,
        Relation::Switches => 40,
        Relation::Switch => 50,
        Relation::Board => 60,
    };
    near + 100 * u64::from(links.min(18))
}

/// Score of a group: the sum over its pairs.
fn group_score(topology: &Topology, group: &[&str]) -> u64 {
    let pairs = group.iter().enumerate().flat_map(|(place, a)| group[place + 1..].iter().map(move |b| (*a, *b)));
    pairs.map(|(a, b)| score(topology, a, b)).sum()
}

/// GPUs with the best interconnects; empty when the request cannot be met.
pub(crate) fn aligned(topology: &Topology, available: &[String], required: &[String], size: usize) -> Vec<String> {
    let available: BTreeSet<&str> = available.iter().map(String::as_str).collect();
    let required: BTreeSet<&str> = required.iter().map(String::as_str).collect();
    if size == 0 || available.len() < size || required.len() > size || !required.is_subset(&available) {
        return Vec::new();
    }
    let free: Vec<&str> = available.into_iter().collect();
    let chosen = if free.len() <= EXHAUSTIVE {
        best_partition(topology, &free, &required, size)
    } else {
        grow_best_group(topology, &free, &required, size)
    };
    chosen.into_iter().map(str::to_owned).collect()
}

struct Search<'a> {
    topology: &'a Topology,
    required: &'a BTreeSet<&'a str>,
    size: usize,
    /// The best partition so far: its score, and its best group with all required GPUs.
    best: Option<(u64, Vec<&'a str>)>,
}

fn best_partition<'a>(
    topology: &'a Topology,
    free: &[&'a str],
    required: &'a BTreeSet<&'a str>,
    size: usize,
) -> Vec<&'a str> {
    let mut search = Search { topology, required, size, best: None };
    let left_over = free.len() % size;
    partition(&mut search, free, left_over, &mut Vec::new());
    search.best.map(|(_, group)| group).unwrap_or_default()
}

/// Tries every group with the first free GPU; `left_over` is the size of the one smaller group, zero once it was
/// formed.
fn partition<'a>(search: &mut Search<'a>, free: &[&'a str], left_over: usize, groups: &mut Vec<Vec<&'a str>>) {
    let Some((&first, rest)) = free.split_first() else { return finish(search, groups) };
    let mut sizes = vec![search.size];
    if left_over > 0 {
        sizes.push(left_over);
    }
    for size in sizes.into_iter().filter(|&size| size <= free.len()) {
        // With the smaller group formed, the rest must divide evenly.
        let left_over = if size == search.size { left_over } else { 0 };
        if (free.len() - size) % search.size != left_over {
            continue;
        }
        for others in combinations(rest, size - 1) {
            let remaining: Vec<&str> = rest.iter().copied().filter(|gpu| !others.contains(gpu)).collect();
            groups.push(std::iter::once(first).chain(others).collect());
            partition(search, &remaining, left_over, groups);
            groups.pop();
        }
    }
}

fn finish<'a>(search: &mut Search<'a>, groups: &[Vec<&'a str>]) {
    let fits =
        |group: &&Vec<&'a str>| group.len() == search.size && search.required.iter().all(|gpu| group.contains(gpu));
    let scores = groups.iter().map(|group| group_score(search.topology, group));
    let total: u64 = scores.sum();
    if search.best.as_ref().is_some_and(|(best, _)| *best >= total) {
        return;
    }
    // On a tie the first group wins: groups are ordered by ID.
    let mut chosen: Option<(u64, &Vec<&'a str>)> = None;
    for group in groups.iter().filter(fits) {
        let score = group_score(search.topology, group);
        if chosen.is_none_or(|(best, _)| score > best) {
            chosen = Some((score, group));
        }
    }
    if let Some((_, group)) = chosen {
        search.best = Some((total, group.clone()));
    }
}

/// Every choice of `size` items, in order.
fn combinations<'a>(items: &[&'a str], size: usize) -> Vec<Vec<&'a str>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut found = Vec::new();
    for (place, &item) in items.iter().enumerate() {
        for mut rest in combinations(&items[place + 1..], size - 1) {
            rest.insert(0, item);
            found.push(rest);
        }
    }
    found
}

/// For more GPUs than can be tried exhaustively: grows a group from each GPU by the one with the highest gain.
fn grow_best_group<'a>(
    topology: &Topology,
    free: &[&'a str],
    required: &BTreeSet<&'a str>,
    size: usize,
) -> Vec<&'a str> {
    let starts: Vec<Vec<&str>> = if required.is_empty() {
        free.iter().map(|&gpu| vec![gpu]).collect()
    } else {
        vec![required.iter().copied().collect()]
    };
    let mut best: Option<(u64, Vec<&str>)> = None;
    for mut group in starts {
        while group.len() < size {
            let gain = |gpu: &str| group.iter().map(|other| score(topology, gpu, other)).sum::<u64>();
            let mut next: Option<(u64, &str)> = None;
            for &gpu in free.iter().filter(|gpu| !group.contains(gpu)) {
                let gain = gain(gpu);
                if next.is_none_or(|(most, _)| gain > most) {
                    next = Some((gain, gpu));
                }
            }
            let Some((_, gpu)) = next else { return Vec::new() };
            group.push(gpu);
        }
        group.sort_unstable();
        let score = group_score(topology, &group);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, group));
        }
    }
    best.map(|(_, group)| group).unwrap_or_default()
}

/// Replicas of shared devices: distributed over devices or packed on few. `total` is the replica count of each device.
pub(crate) fn greedy(
    policy: AllocationPolicy,
    total: &BTreeMap<String, usize>,
    available: &[String],
    required: &[String],
    size: usize,
) -> Result<Vec<String>, String> {
    let mut chosen: Vec<String> = required.to_vec();
    let mut free: Vec<&String> = available.iter().filter(|id| !required.contains(id)).collect();
    free.sort();
    let needed = size.saturating_sub(required.len());
    if free.len() < needed {
        return Err(format!("not enough available devices: {needed} wanted, {} free", free.len()));
    }
    let mut picked: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..needed {
        let candidates = |device: &str| free.iter().filter(|id| split(id).0 == device).count();
        let order = |id: &&String| {
            let device = split(id).0;
            let used = total.get(device).copied().unwrap_or(0).saturating_sub(candidates(device));
            let used = match policy {
                AllocationPolicy::Distributed => used,
                AllocationPolicy::Packed => usize::MAX - used,
            };
            (used, picked.get(device).copied().unwrap_or(0), (*id).clone())
        };
        let Some(next) = free.iter().copied().min_by_key(order) else { break };
        free.retain(|id| *id != next);
        *picked.entry(split(next).0).or_default() += 1;
        chosen.push(next.clone());
    }
    Ok(chosen)
}
