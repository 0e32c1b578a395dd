//! A status as lines: the verdict, then the tree, with bars.

use super::models::Model;
use super::nodes::Nodes;
use super::operator::Operator;
use super::resources::{Resource, Share, Upgrade};
use super::tree::Tree;
use crate::show::Paint;

/// Cells of a bar.
const BAR: u64 = 10;

/// How a piece of a line is meant; colours follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Quiet,
    Good,
    Waiting,
    Bad,
}

/// A piece of a line.
pub(super) type Piece = (Tone, String);

/// A line.
pub(super) type Line = Vec<Piece>;

/// The whole status as text.
pub(super) fn draw(tree: &Tree, paint: Paint) -> String {
    let mut out = String::new();
    for line in lines(tree) {
        let painted = line.iter().map(|(tone, text)| match tone {
            Tone::Plain => text.clone(),
            Tone::Strong => paint.bold(text),
            Tone::Quiet => paint.dim(text),
            Tone::Good => paint.green(text),
            Tone::Waiting => paint.yellow(text),
            Tone::Bad => paint.red(text),
        });
        out += painted.collect::<String>().trim_end();
        out.push('\n');
    }
    out
}

/// The same as lines.
pub(super) fn lines(tree: &Tree) -> Vec<Line> {
    let tone = if tree.verdict.ready { Tone::Good } else { Tone::Bad };
    let mut lines = vec![vec![(tone, tree.verdict.text.clone())], Vec::new()];
    lines.push(operator(&tree.operator));
    for one in &tree.resources {
        lines.extend(resource(one));
    }
    lines.extend(nodes(&tree.nodes));
    if !tree.models.is_empty() {
        lines.push(vec![(Tone::Strong, "models".into())]);
        lines.extend(branches(tree.models.iter().map(model).collect()));
    }
    if !tree.unread.is_empty() {
        lines.push(vec![(Tone::Waiting, "could not be read".into())]);
        lines.extend(branches(tree.unread.iter().map(|one| vec![plain(one)]).collect()));
    }
    lines
}

fn plain(text: &str) -> Piece {
    (Tone::Plain, text.to_owned())
}

fn quiet(text: &str) -> Piece {
    (Tone::Quiet, text.to_owned())
}

/// Lines below another.
fn branches(below: Vec<Line>) -> Vec<Line> {
    let last = below.len().saturating_sub(1);
    let lines = below.into_iter().enumerate().map(|(index, mut line)| {
        line.insert(0, quiet(if index == last { "└─ " } else { "├─ " }));
        line
    });
    lines.collect()
}

fn operator(operator: &Operator) -> Line {
    let mut line = vec![(Tone::Strong, "operator".into()), plain("  ")];
    if let Some(trouble) = &operator.trouble {
        line.push((Tone::Bad, trouble.clone()));
        return line;
    }
    let mut parts = Vec::new();
    if operator.namespace.is_empty() {
        parts.push("in no pod of this cluster".to_owned());
    } else {
        parts.push(format!("{} of {} pods ready in {}", operator.ready, operator.wanted, operator.namespace));
    }
    parts.extend(Some(format!("version {}", operator.version)).filter(|_| !operator.version.is_empty()));
    parts.extend(operator.leader.as_ref().map(|leader| format!("{leader} leads")));
    line.push(plain(&parts.join(", ")));
    line
}

fn state(ready: bool, text: &str) -> Piece {
    let text = if text.is_empty() { "not looked at yet" } else { text };
    (if ready { Tone::Good } else { Tone::Waiting }, text.to_owned())
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

fn model(one: &Model) -> Line {
    let mut line = vec![plain(&format!("{} {}/{}  ", one.kind, one.namespace, one.name)), state(one.ready, &one.state)];
    let place = if one.external.is_empty() { &one.endpoint } else { &one.external };
    if one.ready && !place.is_empty() {
        let served = if one.model.is_empty() { String::new() } else { format!("{} ", one.model) };
        line.push(plain(&format!("  {served}at {place}")));
    }
    if !one.message.is_empty() {
        line.push(plain(&format!("  {}", one.message)));
    }
    line
}

fn bar(share: Share, ready: bool) -> Piece {
    let full = (share.done.min(share.all) * BAR).checked_div(share.all).unwrap_or(BAR);
    let cells = "█".repeat(full as usize) + &"░".repeat((BAR - full) as usize);
    (if ready { Tone::Good } else { Tone::Waiting }, cells)
}

/// `40 s`, `12 min`, `3 h 20 min`, `2 d 3 h`.
pub(super) fn duration(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}
