//! Plans as text: for a terminal, and for a pull request.

use std::fmt::Write;

use serde_json::Value;

use super::changes::{Action, Change, Field};
use super::{Plan, twin};
use capstan_inspect::Paint;

/// Maximum number of named nodes and pods; the others are counted.
const EXAMPLES: usize = 10;
/// Maximum length of a value.
const LONGEST: usize = 100;

/// Renders a plan for a terminal.
pub fn text(plan: &Plan, paint: Paint) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", paint.bold(&verdict(plan)));
    for change in &plan.changes {
        let line = format!("{} {}", sign(change.action), what(change));
        let line = match change.action {
            Action::Create => paint.green(&line),
            Action::Change => paint.yellow(&line),
            Action::Delete => paint.red(&line),
        };
        let _ = writeln!(out, "  {line}");
        for field in &change.fields {
            let _ = writeln!(out, "      {}", field.path);
            if let Some(before) = &field.before {
                let _ = writeln!(out, "        {}", paint.red(&format!("- {}", short(before))));
            }
            if let Some(after) = &field.after {
                let _ = writeln!(out, "        {}", paint.green(&format!("+ {}", short(after))));
            }
        }
    }
    for (title, lines) in sections(plan) {
        let _ = writeln!(out, "\n{}", paint.bold(&title));
        for line in lines {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// Renders a plan as Markdown for a pull request.
pub fn markdown(plan: &Plan) -> String {
    let mut out = format!("### Capstan plan: {}\n", verdict(plan));
    if !plan.changes.is_empty() {
        out += "\n```diff\n";
        for change in &plan.changes {
            let _ = writeln!(out, "{} {}", sign(change.action), what(change));
            for Field { path, before, after } in &change.fields {
                for (sign, value) in [("-", before), ("+", after)] {
                    if let Some(value) = value {
                        let _ = writeln!(out, "{sign}   {path}: {}", short(value));
                    }
                }
            }
        }
        out += "```\n";
    }
    for (title, lines) in sections(plan) {
        let _ = writeln!(out, "\n**{title}**\n");
        for line in lines {
            let _ = writeln!(out, "- {line}");
        }
    }
    out
}

/// The summary line.
fn verdict(plan: &Plan) -> String {
    if plan.changes.is_empty() {
        return "nothing would change".into();
    }
    let count = |action| plan.changes.iter().filter(|change| change.action == action).count();
    let (create, change, delete) = (count(Action::Create), count(Action::Change), count(Action::Delete));
    let mut text = format!("{create} to create, {change} to change, {delete} to delete");
    if !plan.pods.is_empty() {
        let _ = write!(text, "; {} running pods would go, on {} nodes", plan.pods.len(), plan.nodes.len());
    }
    let _ = write!(text, "; about {}", duration(plan.seconds));
    text
}

/// The sections below the changes.
fn sections(plan: &Plan) -> Vec<(String, Vec<String>)> {
    let some = |all: &[String]| {
        let more = all.len().saturating_sub(EXAMPLES);
        let rest = (more > 0).then(|| format!("and {more} more"));
        all.iter().take(EXAMPLES).cloned().chain(rest).collect::<Vec<_>>()
    };
    let mut sections = Vec::new();
    let mut add = |title: String, lines: Vec<String>| {
        if !lines.is_empty() {
            sections.push((title, lines));
        }
    };
    add(format!("Nodes touched: {}", plan.nodes.len()), some(&plan.nodes));
    let pods: Vec<String> =
        plan.pods.iter().map(|gone| format!("after {:>8}  {}", duration(gone.after), gone.pod)).collect();
    add(format!("Pods that go, in this order: {}", pods.len()), some(&pods));
    add("Would still wait at the end".into(), some(&plan.waiting));
    let mut notes = plan.notes.clone();
    if !plan.changes.is_empty() {
        notes.push(format!(
            "times assume {} for a driver, {} for a toolkit and 30 s for an image",
            duration(twin::PACE.driver.as_secs()),
            duration(twin::PACE.toolkit.as_secs()),
        ));
    }
    if !plan.settled {
        notes.push("at the end something was tried again and again: see what waits".into());
    }
    add("Notes".into(), notes);
    sections
}

fn sign(action: Action) -> &'static str {
    match action {
        Action::Create => "+",
        Action::Change => "~",
        Action::Delete => "-",
    }
}

fn what(change: &Change) -> String {
    let place = if change.namespace.is_empty() { String::new() } else { format!("{}/", change.namespace) };
    format!("{} {place}{}", change.kind, change.name)
}

fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned).replace('\n', "\\n");
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}… ({} characters)", &text[..at], text.chars().count()),
        None => text,
    }
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::DeletedPod;

    fn example() -> Plan {
        let field = Field { path: "spec.image".into(), before: Some(json!("a:1")), after: Some(json!("a:2")) };
        let change = |action, name: &str, fields| Change {
            action,
            kind: "DaemonSet.apps".into(),
            namespace: "gpu".into(),
            name: name.into(),
            fields,
        };
        Plan {
            changes: vec![change(Action::Change, "driver", vec![field]), change(Action::Create, "plugin", vec![])],
            nodes: vec!["node-1".into()],
            pods: vec![DeletedPod { after: 95, pod: "gpu/driver-x on node-1".into() }],
            seconds: 3720,
            settled: true,
            waiting: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_first_line_says_how_much() {
        let text = text(&example(), Paint::Plain);
        assert_eq!(
            text.lines().next(),
            Some("1 to create, 1 to change, 0 to delete; 1 running pods would go, on 1 nodes; about 1 h 2 min")
        );
        assert!(
            text.contains("  ~ DaemonSet.apps gpu/driver\n      spec.image\n        - a:1\n        + a:2\n"),
            "{text}"
        );
        assert!(text.contains("after 1 min 35 s  gpu/driver-x on node-1"), "{text}");
    }

    #[test]
    fn a_pull_request_gets_a_diff() {
        let text = markdown(&example());
        assert!(
            text.contains("```diff\n~ DaemonSet.apps gpu/driver\n-   spec.image: a:1\n+   spec.image: a:2\n"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_said_in_one_line() {
        let plan = Plan { changes: Vec::new(), nodes: Vec::new(), pods: Vec::new(), ..example() };
        assert_eq!(text(&plan, Paint::Plain), "nothing would change\n");
    }
}
