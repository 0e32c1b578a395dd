//! Messages for unschedulable pods, as kube-scheduler words them.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum length of an event message.
const LONGEST: usize = 1024;

/// Number of nodes per reason.
#[derive(Clone, Debug, Default)]
pub struct Histogram(BTreeMap<Cow<'static, str>, usize>);

impl Histogram {
    /// Adds the reasons of a node.
    pub fn add(&mut self, reasons: impl IntoIterator<Item = Cow<'static, str>>) {
        for reason in reasons {
            *self.0.entry(reason).or_default() += 1;
        }
    }

    /// Adds one reason for many nodes.
    pub fn add_many(&mut self, reason: impl Into<Cow<'static, str>>, count: usize) {
        if count > 0 {
            *self.0.entry(reason.into()).or_default() += count;
        }
    }
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`
pub fn unavailable(nodes: usize, reasons: &Histogram) -> String {
    let mut lines: Vec<String> = reasons.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort_unstable();
    let reasons = if lines.is_empty() { String::new() } else { format!(" {}.", lines.join(", ")) };
    format!("0/{nodes} nodes are available:{reasons}")
}

/// The message for a pod that cannot run on any node.
pub fn blocked(nodes: usize, reason: &str) -> String {
    format!("0/{nodes} nodes are available: {reason}.")
}

/// Truncates a message to the maximum length of an event.
pub fn cut(message: &str) -> String {
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let mut end = LONGEST - 4;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &message[..end])
}
