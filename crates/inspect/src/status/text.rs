//! Status as text: the summary, then a section per product, with progress bars.

use super::gpu::Share;
use super::operator::Operator;
use super::tree::Tree;
use crate::paint::Paint;

/// Width of a progress bar.
pub(super) const BAR: u64 = 10;

/// Style of a piece of a line; determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Default.
    Plain,
    /// A title.
    Strong,
    /// Less important.
    Quiet,
    /// Healthy.
    Good,
    /// In progress.
    Waiting,
    /// Failed.
    Bad,
}

/// A piece of a line.
pub type Piece = (Tone, String);

/// A line.
pub type Line = Vec<Piece>;

/// The status as text.
pub fn draw(tree: &Tree, paint: Paint) -> String {
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

/// The status as lines.
pub fn lines(tree: &Tree) -> Vec<Line> {
    let tone = if tree.verdict.ready { Tone::Good } else { Tone::Bad };
    let mut lines = vec![vec![(tone, tree.verdict.text.clone())], Vec::new()];
    lines.push(operator(&tree.operator));
    for section in super::sections() {
        lines.extend((section.lines)(tree));
    }
    if !tree.unread.is_empty() {
        lines.push(vec![(Tone::Waiting, "could not be read".into())]);
        lines.extend(branches(tree.unread.iter().map(|one| vec![plain(one)]).collect()));
    }
    lines
}

pub(super) fn plain(text: &str) -> Piece {
    (Tone::Plain, text.to_owned())
}

pub(super) fn quiet(text: &str) -> Piece {
    (Tone::Quiet, text.to_owned())
}

/// Indents lines below another, as a tree.
pub(super) fn branches(below: Vec<Line>) -> Vec<Line> {
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

pub(super) fn state(ready: bool, text: &str) -> Piece {
    let text = if text.is_empty() { "not looked at yet" } else { text };
    (if ready { Tone::Good } else { Tone::Waiting }, text.to_owned())
}

pub(super) fn bar(share: Share, ready: bool) -> Piece {
    let full = (share.done.min(share.all) * BAR).checked_div(share.all).unwrap_or(BAR);
    let cells = "█".repeat(full as usize) + &"░".repeat((BAR - full) as usize);
    (if ready { Tone::Good } else { Tone::Waiting }, cells)
}

/// Formats a duration: `40 s`, `12 min`, `3 h 20 min`, `2 d 3 h`.
pub(super) fn duration(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}
