//! Versions as tables; differences from the desired version are marked.

use std::collections::BTreeMap;

use super::Versions;
use crate::paint::Paint;

/// Marker of a line with a difference.
const MARK: &str = "! ";

/// Tables of versions.
pub fn draw(versions: &Versions, paint: Paint) -> String {
    let mut out = format!("capstan     {}\n", versions.client);
    if let Some(version) = &versions.operator {
        let differs = *version != versions.client;
        let note =
            if differs { paint.yellow(&format!("{MARK}this program is {}", versions.client)) } else { String::new() };
        out += format!("operator    {version}  {note}").trim_end();
        out.push('\n');
    }
    out += &format!("Kubernetes  {}\n", versions.kubernetes);
    out += &counted("kubelet", &versions.kubelets);
    out += &counted("runtime", &versions.runtimes);
    out += &components(versions, paint);
    for table in super::tables() {
        out += &(table.draw)(versions, paint);
    }
    out += &crds(versions, paint);
    out
}

fn counted(what: &str, counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = counts.iter().map(|(version, nodes)| format!("{version} ({nodes} nodes)")).collect();
    format!("{what:<11} {}\n", parts.join(", "))
}

fn components(versions: &Versions, paint: Paint) -> String {
    let mut rows = vec![Row::head(&[
        "NAMESPACE",
        "WORKLOAD",
        "CONTAINER",
        "REPOSITORY",
        "IMAGE",
        "WANTED",
        "RUNNING",
        "PODS",
        "DIGEST",
    ])];
    for one in &versions.components {
        let cell = |text: &str| text.to_owned();
        let mut start = [
            cell(&one.namespace),
            cell(&one.workload),
            cell(&one.container),
            cell(&one.wanted.repository),
            cell(&one.wanted.image),
            cell(&one.wanted.version),
        ]
        .to_vec();
        if one.running.is_empty() {
            rows.push(Row { differs: false, cells: [start, vec![cell("-"), cell("0"), String::new()]].concat() });
            continue;
        }
        for running in &one.running {
            let version = running.image.as_deref().unwrap_or(&running.version);
            let end = vec![cell(version), running.pods.to_string(), short(&running.digest)];
            rows.push(Row {
                differs: one.differs && (running.image.is_some() || one.running.len() > 1),
                cells: [start.clone(), end].concat(),
            });
            // Repeated cells are left empty.
            start.iter_mut().for_each(String::clear);
        }
    }
    table("components", rows, paint)
}

fn crds(versions: &Versions, paint: Paint) -> String {
    let differ = versions.crds.iter().filter_map(|crd| crd.differs.as_ref());
    let lines: Vec<String> = differ.map(|why| paint.yellow(&format!("{MARK}{why}")) + "\n").collect();
    let same = versions.crds.len() - lines.len();
    format!(
        "\n{}\n  {same} of {} as this build knows them\n{}",
        paint.bold("CRDs"),
        capstan_api::kinds().count(),
        lines.concat()
    )
}

/// A line of a table.
pub(super) struct Row {
    pub(super) differs: bool,
    pub(super) cells: Vec<String>,
}

impl Row {
    pub(super) fn head(cells: &[&str]) -> Self {
        Self { differs: false, cells: cells.iter().map(ToString::to_string).collect() }
    }
}

/// Only the title if there are no rows.
pub(super) fn table(title: &str, rows: Vec<Row>, paint: Paint) -> String {
    let mut out = format!("\n{}\n", paint.bold(title));
    if rows.len() == 1 {
        return out + "  none\n";
    }
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = format!("{}{}", if row.differs { MARK } else { "  " }, line.trim_end());
        out += &match (index, row.differs) {
            (0, _) => paint.dim(&line),
            (_, true) => paint.yellow(&line),
            _ => line,
        };
        out.push('\n');
    }
    out
}

/// The first characters of a digest.
fn short(digest: &str) -> String {
    match digest.split_once(':') {
        Some((kind, hex)) => format!("{kind}:{}", hex.chars().take(12).collect::<String>()),
        None => String::new(),
    }
}
