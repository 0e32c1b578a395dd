//! Tidy counts the places where a kind with a controller is registered: CONTRIBUTING.md promises how many.
//!
//! Five files register a kind: its type, the list of its domain, its plan, its controller, the list of its product.
//! Code shared by all products may not name any kind: each such file is one more place. Other products, and other kinds
//! of the same product, may use a kind.

use std::path::Path;

use anyhow::{Context, Result};
use capstan_api::crd::Entry;

/// Maximum number of places of a kind with a controller.
const MAX_PLACES: usize = 5;

/// Shared directories and files; with a trailing slash only the files directly in the directory.
const SHARED: &[&str] = &[
    "crates/api/src/",
    "crates/plan/src",
    "crates/runtime/src",
    "crates/operands/src/",
    "crates/operator/src/",
    "charts/capstan/templates",
    "xtask/src/",
];

/// Files that may name kinds for another reason than to register them.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/api/src/ignored.rs", "lists fields without effect, of which a new kind has none"),
    ("charts/capstan/templates/gpu.yaml", "makes objects of users"),
    ("charts/capstan/templates/NOTES.txt", "tells users about their objects"),
    ("charts/capstan/templates/rbac.yaml", "is generated"),
    ("xtask/src/values.rs", "makes values of the chart of the fields of a kind"),
];

/// Reports kinds with too many or missing places.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let mut files = Vec::new();
    for path in crate::tidy::tracked(root, &["*.rs", "charts/capstan/templates/*"])? {
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        files.push((path, code(&text)));
    }
    let kinds = capstan_api::kinds().filter(|kind| kind.handling.has_controller());
    faults.extend(kinds.flat_map(|kind| faults_of(kind, &files)));
    Ok(())
}

/// The text without tests and comment lines.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let comment = |line: &&str| ["//", "# "].iter().any(|mark| line.trim_start().starts_with(mark));
    text.lines().filter(|line| !comment(line)).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Errors in the places of one kind.
fn faults_of(kind: &Entry, files: &[(String, String)]) -> Vec<String> {
    let files: Vec<_> = files.iter().filter(|(path, _)| !is_test(path)).collect();
    let holding = |folder: &str, needle: &str| -> Vec<&str> {
        let hit = |(path, text): &&&(String, String)| path.starts_with(folder) && has_word(text, needle);
        files.iter().filter(hit).map(|(path, _)| path.as_str()).collect()
    };
    let mut faults = Vec::new();
    let mut one = |what: &str, found: Vec<&str>| -> String {
        if let [place] = found.as_slice() {
            return (*place).to_owned();
        }
        faults.push(format!("{} is to have one {what}, and has {found:?}", kind.kind));
        String::new()
    };
    let type_file = one("type", holding("crates/api/src/", &format!("const KIND: &'static str = {:?};", kind.kind)));
    let text = files.iter().find(|(path, _)| *path == type_file).map_or("", |(_, text)| text);
    let name = between(text, "pub type ", " = Resource<").unwrap_or_default();
    let list = one("line in the list of its domain", holding("crates/api/src/", &format!("Entry::of::<{name}Spec>()")));
    let planned = |(path, text): &&&(String, String)| {
        let signature = text.split("pub fn plan(").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or_default();
        path.starts_with("crates/operands/src/") && signature.trim_end().ends_with(&format!(": &{name}"))
    };
    let plan = one("plan", files.iter().filter(planned).map(|(path, _)| path.as_str()).collect());
    let controller = one("controller", holding("crates/operator/src/", &format!("type Object = {name};")));
    let text = files.iter().find(|(path, _)| *path == controller).map_or("", |(_, text)| text);
    let type_ = between(text, "impl Controller for ", " {").unwrap_or_default();
    let mut started = holding("crates/operator/src/", type_);
    started.retain(|path| *path != controller);
    let product = one("line in the list of its product", started);

    let mut places = vec![type_file, list, plan, controller, product];
    let names =
        [name.to_owned(), format!("{name}Spec"), kind.kind.into(), kind.kind.to_lowercase(), kind.plural.to_owned()];
    for (path, text) in files.iter().filter(|(path, _)| is_shared(path)) {
        if !places.contains(path) && names.iter().any(|name| has_word(text, name)) {
            places.push(path.clone());
        }
    }
    if places.len() > MAX_PLACES {
        faults.push(format!(
            "{} takes {} places, more than {MAX_PLACES}: what products share may not name it: {}",
            kind.kind,
            places.len(),
            places.join(", ")
        ));
    }
    faults
}

fn is_shared(path: &str) -> bool {
    let exempt = EXEMPT.iter().any(|(exempt, _)| *exempt == path);
    let within = |folder: &&str| match path.strip_prefix(*folder) {
        Some(rest) if folder.ends_with('/') => !rest.contains('/'),
        Some(rest) => rest.starts_with('/'),
        None => false,
    };
    !exempt && SHARED.iter().any(within)
}

/// Whether a text contains `word` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let bytes = text.as_bytes();
            !part(at.checked_sub(1).and_then(|before| bytes.get(before))) && !part(bytes.get(at + word.len()))
        })
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use capstan_api::nim::NimBuildSpec;

    use super::*;

    /// A kind in its five places, and a sixth file.
    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [
            (
                "crates/api/src/nim/build.rs",
                "pub type NimBuild = Resource<NimBuildSpec>;\nconst KIND: &'static str = \"NIMBuild\";",
            ),
            ("crates/api/src/nim/mod.rs", "&[Entry::of::<NimBuildSpec>()]"),
            ("crates/operands/src/nim/nim_build/mod.rs", "pub fn plan(build: &NimBuild, facts: &Facts) {}"),
            ("crates/operator/src/nim/build.rs", "impl Controller for NimBuilds {\n    type Object = NimBuild;"),
            ("crates/operator/src/nim/mod.rs", "launch.controller(build::NimBuilds);"),
            (path, text),
        ];
        let files: Vec<_> = files.into_iter().map(|(path, text)| (path.to_owned(), code(text))).collect();
        faults_of(&Entry::of::<NimBuildSpec>(), &files)
    }

    #[test]
    fn a_kind_may_be_used_by_its_product_and_not_be_named_by_what_all_share() {
        let none: [String; 0] = [];
        assert_eq!(found("crates/operator/src/nim/cache.rs", "change.is::<NimBuild>()"), none);
        assert_eq!(found("crates/runtime/src/kinds.rs", "// NimBuild\n#[cfg(test)]\nmod tests { NimBuild }"), none);
        for (path, text) in [
            ("crates/runtime/src/kinds.rs", "row(\"NIMBuild\")"),
            ("crates/operator/src/lib.rs", "use capstan_api::nim::NimBuild;"),
            ("charts/capstan/templates/webhook.yaml", "list \"nimbuild\""),
        ] {
            let faults = found(path, text);
            assert!(
                faults.len() == 1 && faults[0].contains("takes 6 places") && faults[0].contains(path),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn a_place_that_is_missing_or_twice_is_a_fault() {
        let twice = found("crates/operator/src/nim/other.rs", "type Object = NimBuild;");
        assert!(twice.iter().any(|fault| fault.starts_with("NIMBuild is to have one controller")), "{twice:?}");
    }
}
