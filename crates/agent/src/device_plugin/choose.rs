//! Selects the node's config: one file, or the one of several that the node label names.

use std::path::{Path, PathBuf};

use crate::config::InvalidValue;
use crate::{Error, Result};

/// Fallback for a node without a config of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// The file called `default`.
    Named,
    /// The only file.
    Single,
    /// An empty config.
    Empty,
}

impl Fallback {
    /// Parses fallback names.
    pub(crate) fn parse(names: &[String]) -> Result<Vec<Self>, InvalidValue> {
        let words = names.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
        let choices = &[("named", Self::Named), ("single", Self::Single), ("empty", Self::Empty)];
        words.map(|word| crate::config::one_of("--fallback-strategies", word, choices)).collect()
    }
}

/// The selected file in `dir`; `None` for an empty config.
pub(crate) fn choose(
    dir: &Path,
    names: &[String],
    label: Option<&str>,
    default: &str,
    fallbacks: &[Fallback],
) -> Result<Option<PathBuf>, InvalidValue> {
    let exists = |name: &str| names.iter().any(|known| known == name);
    let selected = match label.filter(|label| !label.is_empty()) {
        Some(label) => Some(("the node's label", label)),
        None => Some(("--default-config", default)).filter(|(_, name)| !name.is_empty()),
    };
    if let Some((place, name)) = selected {
        let why = format!("is no config in {}; there are {}", dir.display(), names.join(", "));
        return if exists(name) {
            Ok(Some(dir.join(name)))
        } else {
            Err(InvalidValue::new(place, format!("'{name}'"), why))
        };
    }
    for fallback in fallbacks {
        match (fallback, names) {
            (Fallback::Named, _) if exists("default") => return Ok(Some(dir.join("default"))),
            (Fallback::Single, [only]) => return Ok(Some(dir.join(only))),
            (Fallback::Empty, _) => return Ok(None),
            _ => {}
        }
    }
    let why = "names no config, and there is no default; label the node, or set --default-config";
    Err(InvalidValue::new("the node's label", "''", why))
}

/// Names of the configs in a directory. Names that begin with `..` are the kubelet's links of a mounted ConfigMap.
pub(crate) fn configs(dir: &Path) -> Result<Vec<String>> {
    let failed = |source| Error::Io { what: format!("cannot list {}", dir.display()), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?.flatten();
    let named = entries.filter(|entry| entry.path().is_file());
    let mut names: Vec<String> = named.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with(".."));
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_is_asked_first_and_the_fallbacks_last() {
        use Fallback::{Empty, Named, Single};
        let chosen = |names: &[&str], label: &str, default: &str, fallbacks: &[Fallback]| {
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            let chosen = choose(Path::new("/c"), &names, Some(label), default, fallbacks);
            chosen.map(|file| file.map(|file| file.display().to_string())).map_err(|wrong| wrong.to_string())
        };
        let file = |name: &str| Ok(Some(format!("/c/{name}")));
        assert_eq!(chosen(&["a", "b"], "b", "a", &[]), file("b"));
        assert_eq!(chosen(&["a", "b"], "", "a", &[]), file("a"));
        assert_eq!(chosen(&["a", "default"], "", "", &[Named]), file("default"));
        assert_eq!(chosen(&["a"], "", "", &[Named, Single]), file("a"));
        assert_eq!(chosen(&["a", "b"], "", "", &[Named, Single, Empty]), Ok(None));
        for (names, label, default, part) in [
            (&["a"][..], "x", "", "'x'"),
            (&["a"], "", "y", "--default-config: 'y'"),
            (&["a", "b"], "", "", "label the node"),
        ] {
            let error = chosen(names, label, default, &[Named, Single]);
            let error =
                if label.is_empty() && default.is_empty() { chosen(names, "", "", &[Named, Single]) } else { error };
            assert!(error.as_ref().is_err_and(|error| error.contains(part)), "{error:?}");
        }
    }

    #[test]
    fn unknown_fallbacks_are_named() {
        let error = Fallback::parse(&["named".into(), "first".into()]).expect_err("unknown").to_string();
        assert!(error.contains("'first'") && error.contains("named, single, empty"), "{error}");
    }
}
