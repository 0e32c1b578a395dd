//! Programs that some tests need beside Rust: where they are, and what is said of tests that go without.

use std::io::Write;
use std::path::PathBuf;

/// A program from `$KUBEBUILDER_ASSETS`, `PATH` or the cache of `cargo xtask cluster tools`.
///
/// Without it the test that asks is left out. That is said on the standard error of the run itself, which cargo does not
/// hide as it hides the output of tests that pass; `.ci/run` repeats these lines at its end. With `TEST_CLUSTER=real` or
/// `REQUIRE_PROGRAMS=1` the test fails instead.
pub fn find(name: &str, test: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    let assets = variable("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = variable("PATH").unwrap_or_default();
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
    let built = cache.and_then(|cache| std::fs::read_dir(cache.join("capstan/tools")).ok());
    let built = built.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut folders = assets.into_iter().chain(std::env::split_paths(&path)).chain(built);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    if found.is_none() {
        let why = format!(
            "no {name} in $KUBEBUILDER_ASSETS, PATH or the tools' cache: `cargo xtask cluster tools` builds it"
        );
        let required =
            variable("TEST_CLUSTER").is_some_and(|kind| kind == "real") || variable("REQUIRE_PROGRAMS").is_some();
        assert!(!required, "{why}");
        let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {why}");
    }
    found
}
