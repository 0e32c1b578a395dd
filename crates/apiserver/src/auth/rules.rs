//! Policy rules: matching of requests, and coverage of rules by others.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::Attributes;

/// A `PolicyRule` of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Allowed verbs.
    pub verbs: Vec<String>,
    /// API groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Object names; empty for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Non-resource paths, with an optional trailing `*`.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Whether this rule allows the request.
    pub fn allows(&self, request: &Attributes) -> bool {
        if !has(&self.verbs, &request.verb) {
            return false;
        }
        if !request.is_resource {
            return self.non_resource_urls.iter().any(|url| url_covers(url, &request.path));
        }
        has(&self.api_groups, &request.group)
            && self.resources.iter().any(|resource| resource_matches(resource, request))
            && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
    }

    /// Whether this rule alone allows everything that `other` allows.
    fn covers(&self, other: &Rule) -> bool {
        let resource = |wanted: &String| {
            has(&self.resources, wanted)
                || wanted.split_once('/').is_some_and(|(_, sub)| {
                    self.resources.iter().any(|mine| mine.strip_prefix("*/").is_some_and(|mine| mine == sub))
                })
        };
        let url = |wanted: &String| self.non_resource_urls.iter().any(|mine| url_covers(mine, wanted));
        let names = self.resource_names.is_empty()
            || !other.resource_names.is_empty()
                && other.resource_names.iter().all(|name| self.resource_names.contains(name));
        names
            && other.verbs.iter().all(|verb| has(&self.verbs, verb))
            && other.api_groups.iter().all(|group| has(&self.api_groups, group))
            && other.resources.iter().all(resource)
            && other.non_resource_urls.iter().all(url)
    }

    /// Splits the rule into rules of one verb, group, resource and name each.
    fn atoms(&self) -> Vec<Rule> {
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        atoms.push(atom);
                    } else {
                        let named = self.resource_names.iter();
                        atoms.extend(named.map(|name| Rule { resource_names: vec![name.clone()], ..atom.clone() }));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Rule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Rule::default()
            }));
        }
        atoms
    }

    /// The rule as errors print it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let mut text = String::from("{");
        for (name, list) in parts.into_iter().filter(|(_, list)| !list.is_empty()) {
            let comma = if text.len() > 1 { ", " } else { "" };
            let _ = write!(text, "{comma}{name}:{}", quoted(list));
        }
        text + "}"
    }
}

/// A list as Go prints it with `%q`.
pub(crate) fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

/// What `wanted` allows and `owned` does not, one line each; empty if all is covered.
pub(crate) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut rest: Vec<Rule> = Vec::new();
    let uncovered = wanted.iter().flat_map(Rule::atoms).filter(|atom| !owned.iter().any(|mine| mine.covers(atom)));
    for atom in uncovered {
        let same = |rule: &&mut Rule| {
            rule.non_resource_urls.is_empty()
                && atom.non_resource_urls.is_empty()
                && (&rule.api_groups, &rule.resources, &rule.resource_names)
                    == (&atom.api_groups, &atom.resources, &atom.resource_names)
        };
        match rest.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(atom.verbs),
            None => rest.push(atom),
        }
    }
    let mut lines: Vec<String> = rest.iter().map(Rule::compact).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn resource_matches(rule: &str, request: &Attributes) -> bool {
    if rule == "*" {
        return true;
    }
    if request.subresource.is_empty() {
        return rule == request.resource;
    }
    match rule.split_once('/') {
        Some((resource, subresource)) => {
            subresource == request.subresource && (resource == "*" || resource == request.resource)
        }
        None => false,
    }
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Rule {
        let strings = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Rule {
            verbs: strings(verbs),
            api_groups: strings(groups),
            resources: strings(resources),
            resource_names: strings(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn request(verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
        Attributes {
            verb: verb.into(),
            is_resource: true,
            group: group.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let cases = [
            (rule(&[""], &["pods"], &[], &["get"]), request("get", "", "pods", "", "a"), true),
            (rule(&[""], &["pods"], &[], &["get"]), request("get", "", "pods", "log", "a"), false),
            (rule(&[""], &["pods/log"], &[], &["get"]), request("get", "", "pods", "log", "a"), true),
            (
                rule(&["*"], &["*/scale"], &[], &["update"]),
                request("update", "apps", "deployments", "scale", "a"),
                true,
            ),
            (rule(&["*"], &["*/scale"], &[], &["update"]), request("update", "apps", "deployments", "", "a"), false),
            (rule(&[""], &["pods"], &["b"], &["*"]), request("get", "", "pods", "", "a"), false),
            (rule(&[""], &["pods"], &["a"], &["*"]), request("get", "", "pods", "", "a"), true),
            (rule(&[""], &["pods"], &["a"], &["*"]), request("create", "", "pods", "", ""), false),
            (rule(&["apps"], &["*"], &[], &["get"]), request("get", "", "pods", "", "a"), false),
        ];
        for (rule, request, allowed) in cases {
            assert_eq!(rule.allows(&request), allowed, "{rule:?} {request:?}");
        }
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let some = |of: &'static [&'static str]| prop::sample::subsequence(of.to_vec(), 0..=of.len());
        let verbs = some(&["get", "list", "*"]);
        let groups = some(&["", "apps", "*"]);
        let resources = some(&["pods", "pods/log", "*/scale", "deployments/scale", "*"]);
        let names = some(&["a", "b"]);
        (groups, resources, names, verbs)
            .prop_map(|(groups, resources, names, verbs)| rule(&groups, &resources, &names, &verbs))
    }

    proptest! {
        /// A rule covered by a user's own rules allows nothing new.
        #[test]
        fn whoever_covers_a_rule_may_do_all_that_it_allows(
            owned in prop::collection::vec(any_rule(), 0..4),
            wanted in any_rule(),
            verb in prop::sample::select(vec!["get", "list", "watch"]),
            group in prop::sample::select(vec!["", "apps", "batch"]),
            resource in prop::sample::select(vec![("pods", ""), ("pods", "log"), ("deployments", "scale")]),
            name in prop::sample::select(vec!["", "a", "b"]),
        ) {
            let request = request(verb, group, resource.0, resource.1, name);
            if missing(&owned, std::slice::from_ref(&wanted)).is_empty() && wanted.allows(&request) {
                prop_assert!(owned.iter().any(|rule| rule.allows(&request)));
            }
        }
    }

    #[test]
    fn what_is_missing_is_named_once_with_all_verbs() {
        let owned = [rule(&[""], &["pods"], &[], &["get"])];
        let wanted = [rule(&[""], &["pods", "secrets"], &[], &["get", "list"])];
        assert_eq!(
            missing(&owned, &wanted),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}"#
            ]
        );
        assert!(missing(&wanted, &owned).is_empty());
    }
}
