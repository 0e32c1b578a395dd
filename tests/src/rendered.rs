//! Golden tests: the objects that the operator applies for every example, compared with the files in `tests/rendered`.
//! A change of a rendered object is a change in users' clusters, and is reviewed as such.
//!
//! `UPDATE_RENDERED=1 cargo test --workspace --test nim_examples --test gpu_examples --test nemo_examples` updates the
//! files.

use std::path::PathBuf;

use serde_json::Value;

use crate::world::Operator;

/// Asserts that the applied objects equal the file of that name.
pub fn assert_rendered(name: &str, operator: &Operator) {
    let applied = operator.wire.applied();
    assert!(!applied.is_empty(), "{name} applies nothing");
    let documents = applied.into_iter().map(|(path, mut body)| {
        without_identities(&mut body);
        format!("# {path}\n{}", serde_saphyr::to_string(&body).expect("an object is YAML").trim_end())
    });
    let text = documents.collect::<Vec<_>>().join("\n---\n") + "\n";
    let file = PathBuf::from(format!("{}/rendered/{name}.yaml", env!("CARGO_MANIFEST_DIR")));
    if std::env::var_os("UPDATE_RENDERED").is_some() {
        return std::fs::write(&file, text).expect("the file is written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = expected.lines().zip(text.lines()).position(|(one, other)| one != other);
    let line = differs.unwrap_or(expected.lines().count().min(text.lines().count()));
    let around = |text: &str| text.lines().skip(line.saturating_sub(8)).take(12).collect::<Vec<_>>().join("\n");
    assert!(
        expected == text,
        "{} differs from line {}:\n{}\n-- is rendered now as --\n{}",
        file.display(),
        line + 1,
        around(&expected),
        around(&text)
    );
}

/// Drops what differs between clusters: UIDs, versions, keys, and hashes over them.
fn without_identities(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["uid", "resourceVersion", "nvidia.com/last-applied-hash", "nvidia.com/pvc-uid"] {
                fields.remove(name);
            }
            if fields.get("kind").is_some_and(|kind| kind == "Secret") {
                fields.remove("data");
                fields.remove("stringData");
            }
            fields.values_mut().for_each(without_identities);
        }
        Value::Array(items) => items.iter_mut().for_each(without_identities),
        _ => {}
    }
}
