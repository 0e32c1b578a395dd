//! Text of GPU resources and nodes.

use super::Share;
use super::nodes::Nodes;
use super::resources::{Resource, Upgrade};
use crate::status::text::{BAR, Line, Tone, bar, branches, duration, plain, quiet, state};
use crate::status::tree::Tree;

/// Resources with their operands, then nodes.
pub(super) fn lines(tree: &Tree) -> Vec<Line> {
    tree.resources.iter().flat_map(resource).chain(nodes(&tree.nodes)).collect()
}

fn resource(one: &Resource) -> Vec<Line> {
    let mut head =
        vec![(Tone::Strong, format!("{} {}", one.kind, one.name)), plain("  "), state(one.ready, &one.state)];
    if !one.message.is_empty() {
        head.push(plain(&format!("  {}", one.message)));
    }
    let width = one.operands.iter().map(|operand| operand.name.len()).max().unwrap_or(0);
    let operands = one.operands.iter().map(|operand| {
        let bar = match operand.nodes {
            Some(share) => bar(share, operand.ready),
            None => (if operand.ready { Tone::Good } else { Tone::Waiting }, " ".repeat(BAR as usize)),
        };
        let words = if operand.message.is_empty() && operand.ready { "ready" } else { &operand.message };
        vec![plain(&format!("{:width$}  ", operand.name)), bar, plain(&format!(" {words}"))]
    });
    let mut below: Vec<Line> = operands.collect();
    below.extend(one.upgrade.as_ref().map(upgrade));
    below.extend(one.remarks.iter().map(|remark| vec![(Tone::Waiting, remark.clone())]));
    [vec![head], branches(below)].concat()
}

fn upgrade(one: &Upgrade) -> Line {
    let tone = match one.state.as_str() {
        "Complete" => Tone::Good,
        "NothingToUpgrade" | "InProgress" | "Canary" => Tone::Waiting,
        _ => Tone::Bad,
    };
    let most = match one.max_parallel {
        0 => format!("at most {} out of use", one.max_unavailable),
        count => format!("{count} at a time, at most {} out of use", one.max_unavailable),
    };
    let all: u64 = one.nodes.values().sum();
    let mut line = vec![plain("driver upgrade  ")];
    if all > 0 {
        let done = one.nodes.get("upgrade-done").copied().unwrap_or(0);
        line.extend([bar(Share { done, all }, one.state == "Complete"), plain(" ")]);
    }
    line.extend([(tone, one.state.clone()), plain(&format!("  {}", one.message)), quiet(&format!("  ({most})"))]);
    line
}

fn nodes(nodes: &Nodes) -> Vec<Line> {
    if nodes.total == 0 {
        return Vec::new();
    }
    let all = Share { done: nodes.working as u64, all: nodes.total as u64 };
    let works = nodes.working == nodes.total;
    let mut head = vec![(Tone::Strong, "GPU nodes".into()), plain("  "), bar(all, works)];
    head.push(plain(&format!(" {} of {} work", nodes.working, nodes.total)));
    let offers: Vec<String> = nodes.offered.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if !offers.is_empty() {
        head.push(quiet(&format!("  {}", offers.join(", "))));
    }
    let mut below: Vec<Line> = Vec::new();
    for one in &nodes.phases {
        let count = if one.nodes == 1 { "1 waits".into() } else { format!("{} wait", one.nodes) };
        below.push(vec![(Tone::Waiting, format!("{count} for {}", one.phase))]);
    }
    for one in &nodes.waiting {
        let time = one.seconds.map(|seconds| format!(" for {}", duration(seconds))).unwrap_or_default();
        below.push(vec![plain(&format!("{}  waits for {}{time}: {}", one.name, one.phase, one.why))]);
    }
    if !nodes.times.is_empty() {
        let times = nodes.times.iter().map(|one| {
            let longest = duration(one.longest_seconds);
            format!("{} {} (longest {longest})", one.phase, duration(one.median_seconds))
        });
        below.push(vec![quiet(&format!("took  {}", times.collect::<Vec<_>>().join(", ")))]);
    }
    [vec![head], branches(below)].concat()
}
