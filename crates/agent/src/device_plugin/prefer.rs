//! Which of the free devices go well together.
//!
//! GPUs are scored pair by pair: the nearer on PCIe the better, and NVLinks above all. The free ones are cut into
//! groups of the wanted size in every way there is, and the best group of the best cut is taken, so that what is left
//! over still makes good groups. Replicas of shared devices are spread or packed instead.

use std::collections::{BTreeMap, BTreeSet};

use capstan_hw::gpu::nvidia::{Relation, Topology};

use super::devices::split;
use crate::config::AllocationPolicy;

/// Up to so many free GPUs every cut is tried: for eight there are 280 at most.
const EXHAUSTIVE: usize = 8;

/// What two GPUs next to each other are worth.
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

/// What a group is worth: all its pairs.
fn worth(topology: &Topology, group: &[&str]) -> u64 {
    let pairs = group.iter().enumerate().flat_map(|(place, a)| group[place + 1..].iter().map(move |b| (*a, *b)));
    pairs.map(|(a, b)| score(topology, a, b)).sum()
}

/// GPUs that are near to each other; none when that cannot be.
pub(crate) fn aligned(topology: &Topology, available: &[String], required: &[String], size: usize) -> Vec<String> {
    let available: BTreeSet<&str> = available.iter().map(String::as_str).collect();
    let required: BTreeSet<&str> = required.iter().map(String::as_str).collect();
    if size == 0 || available.len() < size || required.len() > size || !required.is_subset(&available) {
        return Vec::new();
    }
    let free: Vec<&str> = available.into_iter().collect();
    let chosen = if free.len() <= EXHAUSTIVE {
        best_cut(topology, &free, &required, size)
    } else {
        best_grown(topology, &free, &required, size)
    };
    chosen.into_iter().map(str::to_owned).collect()
}

struct Search<'a> {
    topology: &'a Topology,
    required: &'a BTreeSet<&'a str>,
    size: usize,
    /// The best cut so far: its worth, and its best group with all that is required.
    best: Option<(u64, Vec<&'a str>)>,
}

fn best_cut<'a>(
    topology: &'a Topology,
    free: &[&'a str],
    required: &'a BTreeSet<&'a str>,
    size: usize,
) -> Vec<&'a str> {
    let mut search = Search { topology, required, size, best: None };
    let left_over = free.len() % size;
    cut(&mut search, free, left_over, &mut Vec::new());
    search.best.map(|(_, group)| group).unwrap_or_default()
}

/// Takes the first free GPU and every group that it can be in; `left_over` is the size of the one group that may be
/// smaller, until that was made.
fn cut<'a>(search: &mut Search<'a>, free: &[&'a str], left_over: usize, groups: &mut Vec<Vec<&'a str>>) {
    let Some((&first, rest)) = free.split_first() else { return finish(search, groups) };
    let mut sizes = vec![search.size];
    if left_over > 0 {
        sizes.push(left_over);
    }
    for size in sizes.into_iter().filter(|&size| size <= free.len()) {
        // With the small group made, what remains must divide evenly.
        let left_over = if size == search.size { left_over } else { 0 };
        if (free.len() - size) % search.size != left_over {
            continue;
        }
        for others in combinations(rest, size - 1) {
            let remaining: Vec<&str> = rest.iter().copied().filter(|gpu| !others.contains(gpu)).collect();
            groups.push(std::iter::once(first).chain(others).collect());
            cut(search, &remaining, left_over, groups);
            groups.pop();
        }
    }
}

fn finish<'a>(search: &mut Search<'a>, groups: &[Vec<&'a str>]) {
    let fits =
        |group: &&Vec<&'a str>| group.len() == search.size && search.required.iter().all(|gpu| group.contains(gpu));
    let worths = groups.iter().map(|group| worth(search.topology, group));
    let total: u64 = worths.sum();
    if search.best.as_ref().is_some_and(|(best, _)| *best >= total) {
        return;
    }
    // The first of equal ones: groups are in the order of their ids.
    let mut chosen: Option<(u64, &Vec<&'a str>)> = None;
    for group in groups.iter().filter(fits) {
        let worth = worth(search.topology, group);
        if chosen.is_none_or(|(best, _)| worth > best) {
            chosen = Some((worth, group));
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

/// For more GPUs than can be tried in every way: grows a group from each start by the GPU that adds most.
fn best_grown<'a>(topology: &Topology, free: &[&'a str], required: &BTreeSet<&'a str>, size: usize) -> Vec<&'a str> {
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
        let worth = worth(topology, &group);
        if best.as_ref().is_none_or(|(most, _)| worth > *most) {
            best = Some((worth, group));
        }
    }
    best.map(|(_, group)| group).unwrap_or_default()
}

/// Replicas of shared devices: spread over devices, or packed on few. `total` is how many replicas each device has.
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
