//! Pages of the docs: every page is in the book, and every link to a file resolves.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let pages = pages(root)?;
    let read = |page: &Path| {
        std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {}", page.display()))
    };
    let summary = read(Path::new(SUMMARY))?;
    let listed: Vec<PathBuf> = links(&summary).map(|link| Path::new("docs").join(link)).collect();
    for page in &pages {
        let in_book = page.starts_with("docs") && page != Path::new(SUMMARY);
        if in_book && !listed.contains(page) {
            faults.push(format!("{} is not in {SUMMARY}", page.display()));
        }
        let text = read(page)?;
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { beside(page, file) };
            if !root.join(&target).exists() {
                faults.push(format!("{}: the link to {link} leads nowhere", page.display()));
            } else if !heading.is_empty() && target.extension().is_some_and(|kind| kind == "md") {
                let there = read(&target)?;
                if !headings(&there).any(|one| one == heading) {
                    faults.push(format!(
                        "{}: {} has no heading for the link to {link}",
                        page.display(),
                        target.display()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// All documentation pages.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "docs/*.md", ":(top,glob)*.md"])
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    let text = String::from_utf8(output.stdout).context("file names are not UTF-8")?;
    Ok(text.lines().map(PathBuf::from).filter(|page| root.join(page).is_file()).collect())
}

/// Relative link targets of a page. Links in code are skipped.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.starts_with("    "));
    let prose = lines.flat_map(|line| line.split('`').step_by(2));
    let targets = prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
}

/// Resolves a link relative to its page.
fn beside(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Anchors of a page's headings: lower case, dashes for spaces, letters and digits only.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|one| one.is_alphanumeric() || [' ', '-', '_'].contains(one));
        kept.map(|one| if one == ' ' { '-' } else { one }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_are_found_and_others_are_not() {
        let text = "see [a](a.md#b), [c](https://c.example/) and `[x](y)`\n    [code](no.md)\n[`d`](../d.yaml)";
        assert_eq!(links(text).collect::<Vec<_>>(), ["a.md#b", "../d.yaml"]);
        assert_eq!(beside(Path::new("docs/gpu.md"), "../examples/x.yaml"), Path::new("examples/x.yaml"));
    }

    #[test]
    fn headings_are_named_as_links_name_them() {
        let names: Vec<_> = headings("# Your old values.yaml\ntext\n## A node, phase by phase").collect();
        assert_eq!(names, ["your-old-valuesyaml", "a-node-phase-by-phase"]);
    }
}
