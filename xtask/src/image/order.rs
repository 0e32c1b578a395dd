//! Function order of the program (symbol ordering file).
//!
//! Of 37 MB of code an operator runs 6, in functions all over the file, and the kernel maps 64 kB around each page
//! fault. Laid out in the order of first execution, they need only their own size. So the program is linked, its
//! functions are traced while an operator runs on an embedded cluster, and it is linked again.
//!
//! All of that is one linker call for the compiler, which takes minutes and is not repeated.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::trace;

/// Breakpoints are implemented for x86-64 only; elsewhere this is not called.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod trace {
    pub(super) fn functions(_: &std::path::Path, _: &std::path::Path) -> anyhow::Result<Vec<String>> {
        anyhow::bail!("there are no breakpoints for this processor")
    }
}

/// Function order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// By first execution, from a trace.
    Traced,
    /// From a file. The program is reproducible for the same file.
    Listed(PathBuf),
    /// As compiled.
    Unordered,
}

impl Layout {
    /// Compiler flags.
    pub(super) fn flags(&self, folder: &Path) -> Result<Vec<String>> {
        match self {
            // Breakpoints are implemented for this architecture only.
            Self::Traced if cfg!(all(target_arch = "x86_64", target_os = "linux")) => {
                Ok(vec!["-C".into(), format!("linker={}", linker(folder)?.display())])
            }
            Self::Listed(list) => {
                let list = std::fs::canonicalize(list).with_context(|| format!("no list {}", list.display()))?;
                Ok(list_flags(&list).into_iter().flat_map(|flag| ["-C".into(), format!("link-arg={flag}")]).collect())
            }
            Self::Traced | Self::Unordered => Ok(Vec::new()),
        }
    }
}

fn list_flags(list: &Path) -> [String; 2] {
    // Symbols in the list that no longer exist are expected.
    [format!("-Wl,--symbol-ordering-file={}", list.display()), "-Wl,--no-warn-symbol-ordering".into()]
}

/// Writes the linker wrapper for the compiler: it calls [`link`]. Its name implies no linker flavour.
fn linker(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let script = format!("#!/bin/sh\nexec {} link {} -- \"$@\"\n", quoted(&std::env::current_exe()?), quoted(folder));
    let path = folder.join("laid");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// `cargo xtask link`: called by the compiler.
#[derive(clap::Args)]
pub(crate) struct Link {
    /// Directory of the function list
    folder: PathBuf,
    /// Linker arguments
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Links, traces the program, and links again.
pub(crate) fn link(task: &Link) -> Result<()> {
    cc(&task.args, &[])?;
    let program = output(&task.args).context("the linker was not told where the program goes")?;
    let hint = "cannot watch the program run: `cargo xtask image --as-it-comes` does without";
    let functions = trace::functions(&program, &task.folder).context(hint)?;
    let list = task.folder.join("order.txt");
    std::fs::write(&list, functions.join("\n") + "\n")?;
    cc(&task.args, &list_flags(&list))
}

fn cc(args: &[OsString], more: &[String]) -> Result<()> {
    if !Command::new("cc").args(args).args(more).status().context("cannot run cc")?.success() {
        bail!("cc failed: see above");
    }
    Ok(())
}

/// Output path of the program.
fn output(args: &[OsString]) -> Option<PathBuf> {
    let at = args.iter().position(|arg| arg == "-o")?;
    args.get(at + 1).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_given_to_the_linker_of_the_program() {
        let list = std::env::temp_dir().join(format!("xtask-order-{}.txt", std::process::id()));
        std::fs::write(&list, "main\n").unwrap();
        let flags = Layout::Listed(list.clone()).flags(Path::new("unused")).unwrap();
        let path = std::fs::canonicalize(&list).unwrap();
        std::fs::remove_file(list).unwrap();
        assert_eq!(flags[..2], ["-C".to_owned(), format!("link-arg=-Wl,--symbol-ordering-file={}", path.display())]);
    }

    #[test]
    fn a_list_that_is_not_there_is_named() {
        let error = Layout::Listed("/nonexistent/order.txt".into()).flags(Path::new("unused")).unwrap_err();
        assert_eq!(error.to_string(), "no list /nonexistent/order.txt");
    }

    #[test]
    fn the_program_is_where_the_linker_was_told_to_put_it() {
        assert_eq!(output(&["-pie", "-o", "target/capstan", "main.o"].map(Into::into)), Some("target/capstan".into()));
        assert_eq!(output(&["-pie".into()]), None);
    }
}
