//! Retired words: names that this project once coined where the field has a term.
//!
//! Tidy rejects them in code and docs; CONTRIBUTING.md shows the table, which `cargo xtask gen` writes there.

/// A retired word or phrase, and what to write instead. Upper and lower case count; a word is not part of a longer one.
pub(crate) const RETIRED: &[(&str, &str)] = &[
    ("Crew", "`DrainingPods`"),
    ("Rulers", "`GoverningPolicies`"),
    ("rulers", "governing policies"),
    ("Follows =>", "`PropagationPolicy::Background`"),
    ("Stays =>", "`PropagationPolicy::Orphan`"),
    ("Leads =>", "`PropagationPolicy::Foreground`"),
    ("PATIENCE", "what times out: `REQUEST_TIMEOUT`, `POD_TIMEOUT`"),
    ("LOOK", "`POLL_INTERVAL`, `RESYNC_INTERVAL`"),
    ("fn look", "the verb: `probe`, `discover`, `reconcile`, `sync`"),
    ("struct Seen", "what was observed: `ObservedLease`, `UnhealthyPod`"),
    ("enum Seen", "the same"),
    ("Told", "what it holds: `RecordedEvent`, `RegistryAnswer`"),
    ("Whom", "`Scope`"),
    ("Scene", "`Fixture`"),
    ("CROWD", "`DEBOUNCE`"),
    ("IN_THE_WAY", "the conflict: `FOREIGN_OWNER`"),
    ("at_leisure", "`debounced`"),
    ("Scribe", "`EventWriter`"),
    ("Janitor", "`NamespaceController`"),
    ("Mould", "a copy of a pod template"),
    ("trying on", "retrying"),
    ("of before goes on", "keeping the previous one"),
    ("of before go on", "keeping the previous ones"),
    ("for whoever", "for support"),
];

/// Reports retired words in a file.
pub(crate) fn check(path: &str, text: &str, faults: &mut Vec<String>) {
    // The table itself, and the pages that show it.
    if path == "xtask/src/words.rs" || path == "CONTRIBUTING.md" || path == "CHANGELOG.md" {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        for (word, instead) in RETIRED.iter().filter(|(word, _)| has_word(line, word)) {
            let number = number + 1;
            faults.push(format!("{path}:{number}: `{word}` is retired: write {instead}"));
        }
    }
}

/// Whether a line has a word that is not part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |end: Option<char>| end.is_some_and(|end| end.is_alphanumeric() || end == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}

/// The table for CONTRIBUTING.md.
pub(crate) fn table() -> String {
    let row = |(word, instead): &(&str, &str)| format!("| {word} | {instead} |\n");
    let rows: String = RETIRED.iter().map(row).collect();
    format!("| Retired | Write |\n|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_retired_word_is_found_and_part_of_a_word_is_not() {
        for (text, expected) in [
            ("struct Seen {", 1),
            ("struct SeenBefore {", 0),
            ("columns: Last Seen", 0),
            ("const LOOK: u8 = 1;", 1),
            ("const LOOKUP: u8 = 1;", 0),
            ("warn!(\"cannot watch, trying on\")", 1),
        ] {
            let mut faults = Vec::new();
            check("a.rs", text, &mut faults);
            assert_eq!(faults.len(), expected, "{text}");
        }
    }
}
