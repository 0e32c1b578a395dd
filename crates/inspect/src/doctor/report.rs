//! Report of findings: consequences are separated from causes, and one cause is reported once, however many places it
//! has.

use std::collections::HashMap;
use std::hash::Hash;

use capstan_operands::causes;
use serde::Serialize;

use super::finding::{Finding, Scope, Severity};
use super::index::short;
use super::rule;
use crate::paint::Paint;

/// Number of named places.
const EXAMPLES: usize = 3;
/// Number of evidence lines per cause.
const LINES: usize = 6;

/// A diagnosis.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Summary line.
    pub verdict: String,
    /// Whether no cause was found.
    pub healthy: bool,
    /// Causes, errors first.
    pub causes: Vec<Cause>,
    /// Consequences of the causes.
    pub also_seen: Vec<Consequence>,
    /// Kinds that could not be read and were not checked.
    pub unread: Vec<String>,
}

/// A cause, at all its places.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// The rule that found it.
    pub rule: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Place and cause.
    pub title: String,
    /// Number of places.
    pub count: usize,
    /// Evidence: lines with an object and its message.
    pub evidence: Vec<String>,
    /// A command, or a field to change.
    pub fix: String,
    /// Affected objects.
    pub objects: Vec<String>,
}

/// A finding that a cause explains.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Consequence {
    /// The rule that found it.
    pub rule: &'static str,
    /// Place and finding.
    pub title: String,
    /// Number of places.
    pub count: usize,
    /// The rule that explains it.
    pub explained_by: &'static str,
}

impl Report {
    /// Separates causes from consequences, and merges findings with the same cause.
    pub fn of(findings: Vec<Finding>, unread: Vec<String>) -> Self {
        let index = ByScope::new(&findings);
        let why: Vec<Option<&'static str>> = findings.iter().map(|finding| index.cause_of(finding)).collect();
        let (mut causes, mut also_seen) = (Vec::new(), Vec::new());
        for (finding, why) in findings.into_iter().zip(why) {
            match why {
                Some(cause) => also_seen.push((cause, finding)),
                None if finding.severity == Severity::Note => {}
                None => causes.push(finding),
            }
        }
        let causes = merge(causes);
        let verdict = verdict(&causes, also_seen.len());
        let also_seen = consequences(also_seen);
        Self { verdict, healthy: causes.is_empty(), causes, also_seen, unread }
    }

    /// The report as text.
    pub fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        let verdict = paint.bold(&self.verdict);
        out += &if self.healthy { paint.green(&verdict) } else { paint.red(&verdict) };
        out.push('\n');
        for cause in &self.causes {
            let mark = match cause.severity {
                Severity::Error => paint.red("error"),
                _ => paint.yellow("warning"),
            };
            out += &format!("\n{mark} {}  {}\n", paint.bold(&cause.title), paint.dim(&format!("[{}]", cause.rule)));
            for line in cause.evidence.iter().take(LINES) {
                out += &format!("  {} {line}\n", paint.dim("│"));
            }
            if cause.evidence.len() > LINES {
                let more = format!("and {} more lines, see -o json", cause.evidence.len() - LINES);
                out += &format!("  {} {}\n", paint.dim("│"), paint.dim(&more));
            }
            for line in cause.fix.lines() {
                out += &format!("  {} {line}\n", paint.green("fix:"));
            }
        }
        if !self.also_seen.is_empty() {
            out += &format!("\n{}\n", paint.bold("also seen, and explained by the above:"));
            for one in self.also_seen.iter().take(12) {
                out += &format!("  {} {}\n", short(&one.title), paint.dim(&format!("({})", one.explained_by)));
            }
            if self.also_seen.len() > 12 {
                out += &paint.dim(&format!("  and {} more, see -o json\n", self.also_seen.len() - 12));
            }
        }
        if !self.unread.is_empty() {
            out += &format!("\n{} {}\n", paint.yellow("could not be read:"), self.unread.join(", "));
        }
        out
    }
}

/// Findings by scope: a large cluster may have thousands, of which few affect one node.
#[derive(Default)]
struct ByScope<'a> {
    on_node: HashMap<&'a str, Vec<&'a Finding>>,
    /// One node finding per rule: for objects without a node, any will do.
    anywhere: Vec<&'a Finding>,
    others: Vec<&'a Finding>,
}

impl<'a> ByScope<'a> {
    fn new(findings: &'a [Finding]) -> Self {
        let mut index = Self::default();
        // Notes are not reported, so they explain nothing.
        for finding in findings.iter().filter(|finding| finding.severity != Severity::Note) {
            let Scope::Nodes(nodes) = &finding.scope else {
                index.others.push(finding);
                continue;
            };
            for node in nodes {
                index.on_node.entry(node).or_default().push(finding);
            }
            if index.anywhere.iter().all(|one| one.rule != finding.rule) {
                index.anywhere.push(finding);
            }
        }
        index
    }

    /// The rule whose finding explains this one. The narrowest scope wins.
    fn cause_of(&self, finding: &Finding) -> Option<&'static str> {
        let nodes: Vec<&str> = match &finding.scope {
            Scope::Nodes(nodes) => nodes.iter().map(String::as_str).collect(),
            _ => vec![finding.runs_on.as_str()],
        };
        let on_nodes = nodes.iter().filter_map(|node| self.on_node.get(node)).flatten();
        let all = self.others.iter().chain(on_nodes).chain(&self.anywhere);
        let explains = |cause: &&&Finding| {
            let explains = rule(cause.rule).is_some_and(|rule| rule.explains(finding.rule));
            cause.rule != finding.rule && explains && cause.covers(finding)
        };
        all.filter(explains).min_by_key(|cause| cause.scope.width()).map(|cause| cause.rule)
    }
}

fn verdict(causes: &[Cause], consequences: usize) -> String {
    let count = |number: usize, one: &str| {
        if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
    };
    match (causes.len(), consequences) {
        (0, _) => "healthy".into(),
        (found, 0) => count(found, "cause"),
        (found, more) => format!("{}, {}", count(found, "cause"), count(more, "consequence")),
    }
}

/// Consequences, each once.
fn consequences(all: Vec<(&'static str, Finding)>) -> Vec<Consequence> {
    let groups = grouped(all, |(cause, finding)| (*cause, finding.rule, finding.what.clone()));
    let one = |group: Vec<(&'static str, Finding)>| {
        let (explained_by, rule) = group.first().map(|(cause, finding)| (*cause, finding.rule))?;
        let findings: Vec<Finding> = group.into_iter().map(|(_, finding)| finding).collect();
        let (title, count) = title(&findings);
        Some(Consequence { rule, title, count, explained_by })
    };
    groups.into_iter().filter_map(one).collect()
}

/// Groups items by key, in the order of first occurrence.
fn grouped<T, K: Eq + Hash>(all: Vec<T>, key: impl Fn(&T) -> K) -> Vec<Vec<T>> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in all {
        let place = *places.entry(key(&one)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Merges findings by cause.
fn merge(findings: Vec<Finding>) -> Vec<Cause> {
    let groups = grouped(findings, |finding| (finding.rule, finding.what.clone()));
    let mut causes: Vec<Cause> = groups.into_iter().filter_map(cause).collect();
    causes.sort_by_key(|cause| cause.severity);
    causes
}

/// Common title of findings with one cause, and the number of places.
fn title(group: &[Finding]) -> (String, usize) {
    let mut places: Vec<&str> = group.iter().map(|finding| finding.at.as_str()).collect();
    places.sort_unstable();
    places.dedup();
    let (what, count) = (group.first().map_or("", |first| first.what.as_str()), places.len());
    let nodes: Option<Vec<&str>> = places.iter().map(|place| place.strip_prefix("node ")).collect();
    let title = match (nodes, places.as_slice()) {
        (Some(nodes), _) => causes::title(what, &nodes),
        (None, [place]) => format!("{place}: {what}"),
        (None, places) => {
            let names = places.iter().take(EXAMPLES).copied().collect::<Vec<_>>().join(", ");
            let such = if count > EXAMPLES { "such as " } else { "" };
            format!("{what}: {count} places, {such}{names}")
        }
    };
    (title, count)
}

fn cause(group: Vec<Finding>) -> Option<Cause> {
    let first = group.first()?.clone();
    let (title, count) = title(&group);
    let mut evidence: Vec<String> = Vec::new();
    let mut objects: Vec<String> = Vec::new();
    for finding in &group {
        objects.extend(finding.objects.iter().cloned());
    }
    for finding in group.iter().take(EXAMPLES) {
        evidence.extend(finding.evidence.iter().cloned());
    }
    objects.sort();
    objects.dedup();
    evidence.dedup();
    Some(Cause { rule: first.rule, severity: first.severity, title, count, evidence, fix: first.fix, objects })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(rule: &'static str, node: &str) -> Finding {
        Finding { rule, ..Finding::on_node(node, "broken").evidence(format!("Node {node} says so")).fix("mend it") }
    }

    #[test]
    fn one_cause_on_many_nodes_is_told_once_with_three_of_them() {
        let findings = (0..5).map(|index| on("driver-headers-missing", &format!("gpu-{index}"))).collect();
        let report = Report::of(findings, Vec::new());
        assert_eq!(report.verdict, "1 cause");
        assert_eq!(report.causes[0].title, "broken: 5 nodes, such as gpu-0, gpu-1, gpu-2");
        assert_eq!((report.causes[0].count, report.causes[0].evidence.len()), (5, 3));
    }

    #[test]
    fn a_consequence_is_not_told_beside_its_cause() {
        let findings =
            vec![on("init-barrier", "gpu-1"), on("driver-headers-missing", "gpu-1"), on("init-barrier", "gpu-2")];
        let report = Report::of(findings, Vec::new());
        assert_eq!(report.verdict, "2 causes, 1 consequence");
        let titles: Vec<&str> = report.causes.iter().map(|cause| cause.title.as_str()).collect();
        assert_eq!(titles, ["node gpu-1: broken", "node gpu-2: broken"]);
        assert_eq!(report.also_seen[0].explained_by, "driver-headers-missing");
    }

    #[test]
    fn a_consequence_at_many_places_is_one_line() {
        let nodes = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"];
        let findings = nodes.iter().flat_map(|node| [on("driver-headers-missing", node), on("init-barrier", node)]);
        let report = Report::of(findings.collect(), Vec::new());
        assert_eq!(report.verdict, "1 cause, 4 consequences");
        assert_eq!((report.also_seen.len(), report.also_seen[0].count), (1, 4));
        assert_eq!(report.also_seen[0].title, "broken: 4 nodes, such as gpu-1, gpu-2, gpu-3");
    }

    #[test]
    fn what_only_follows_is_no_cause_and_no_news() {
        let report = Report::of(vec![on("not-ready", "gpu-1").severity(Severity::Note)], Vec::new());
        assert!(report.healthy && report.also_seen.is_empty());
        assert_eq!(report.text(Paint::Plain), "healthy\n");
    }

    #[test]
    fn people_read_the_verdict_first_then_cause_evidence_and_fix() {
        let report = Report::of(vec![on("driver-headers-missing", "gpu-1")], Vec::new());
        let expected =
            "1 cause\n\nerror node gpu-1: broken  [driver-headers-missing]\n  │ Node gpu-1 says so\n  fix: mend it\n";
        assert_eq!(report.text(Paint::Plain), expected);
    }
}
