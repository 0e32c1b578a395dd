//! A role of the agent is in three places: its directory, the agent's list (`crates/agent/src/lib.rs`) and its row in
//! `crates/node/src/roles.rs`. All others take its name from that row, so a string literal with the name elsewhere is a
//! fourth.

use std::path::Path;

use capstan_node::ROLES;

/// The only file with literal role names.
const TABLE: &str = "crates/node/src/roles.rs";

/// Homonyms: the end of the path, the word, and what it means there.
const HOMONYMS: &[(&str, &str, &str)] = &[
    ("daemon.rs", "device-plugin", "a volume"),
    ("device_plugin.rs", "device-plugin", "a volume"),
    ("kata_device_plugin.rs", "device-plugin", "a volume"),
    ("sandbox_device_plugin.rs", "device-plugin", "a volume"),
    ("nodes/keys.rs", "device-plugin", "a deploy label"),
    ("nodes/keys.rs", "node-status-exporter", "a deploy label"),
    ("mps.rs", "mps-control-daemon", "a program of another image"),
    ("snippets.rs", "config-manager", "a container, and a program of another image"),
    ("node_agent.rs", "config-manager", "a container"),
    ("gpu-sim/src/faults.rs", "feature-discovery", "a fault"),
    ("doctor/gpu/mod.rs", "feature-discovery", "a rule"),
];

/// Reports errors in one source file.
pub(crate) fn check(path: &Path, text: &str, faults: &mut Vec<String>) {
    if !path.starts_with("crates") || path == Path::new(TABLE) || is_test(path) {
        return;
    }
    for literal in literals(without_tests(text)) {
        let named = ROLES.iter().find(|role| literal.split(',').any(|word| word == role.name));
        let Some(role) = named else { continue };
        if !HOMONYMS.iter().any(|(file, word, _)| path.ends_with(file) && *word == role.name) {
            faults.push(format!(
                "{} spells the role {}: take it from capstan_node::ROLES, so that a role stays in three places",
                path.display(),
                role.name
            ));
        }
    }
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = |part: &str| path.components().any(|component| component.as_os_str() == part);
    ["tests.rs", "testing.rs"].contains(&name) || folder("tests") || folder("examples")
}

/// The part of a file before its test module.
fn without_tests(text: &str) -> &str {
    let starts = text.match_indices("#[cfg(test)]\nmod ");
    let mut bodies = starts.filter(|(start, _)| text[*start..].lines().nth(1).is_some_and(|line| line.ends_with('{')));
    bodies.next().map_or(text, |(start, _)| &text[..start])
}

/// Single-line string literals outside of comments.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split('"').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let mut faults = Vec::new();
        check(Path::new(path), text, &mut faults);
        faults.len()
    }

    #[test]
    fn a_fourth_place_is_found() {
        let elsewhere = "crates/gpu-sim/src/lib.rs";
        assert_eq!(found(elsewhere, r#"if role == "device-plugin" {}"#), 1);
        assert_eq!(found(elsewhere, r#"let roles = "config-manager,exporter";"#), 1);
        assert_eq!(found("crates/agent/src/roles.rs", r#"match name { "exporter" => 1, _ => 0 }"#), 1);
        assert_eq!(found("crates/agent/src/exporter/mod.rs", r#"entry!("exporter", …)"#), 1);
    }

    #[test]
    fn the_table_tests_comments_and_homonyms_are_no_places() {
        let text = r#"if role == "device-plugin" {}"#;
        assert_eq!(found(TABLE, text), 0);
        assert_eq!(found("crates/operands/src/gpu/policy/tests/plugin.rs", text), 0);
        assert_eq!(found("tests/tests/gpu_agents.rs", text), 0);
        assert_eq!(found("crates/a/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}\n}}\n")), 0);
        assert_eq!(found("crates/a/src/lib.rs", &format!("#[cfg(test)]\nmod tests;\n{text}\n")), 1);
        assert_eq!(found("crates/a/src/lib.rs", "// the role \"exporter\"\nlet path = \"/exporter\";"), 0);
        assert_eq!(found("crates/operands/src/gpu/policy/device_plugin.rs", r#"at("device-plugin", DIR)"#), 0);
    }
}
