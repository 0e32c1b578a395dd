//! The crates, what each is for and which of ours it may depend on.
//!
//! One table: tidy enforces it, `cargo xtask gen` writes it into ARCHITECTURE.md. Dependencies point one way.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::Generated;

/// A crate and the crates of ours that it may depend on.
pub(crate) struct Layer {
    /// Its folder, from the root.
    pub(crate) path: &'static str,
    /// What it is for, as ARCHITECTURE.md says it.
    about: &'static str,
    /// Folders of crates that it may depend on, by the last part of their path.
    pub(crate) may_use: &'static [&'static str],
    /// No I/O, no clock, no environment, no async runtime.
    pub(crate) pure: bool,
}

impl Layer {
    /// Name of the package.
    pub(crate) fn name(&self) -> String {
        package(self.path.rsplit('/').next().unwrap_or_default())
    }

    fn row(&self) -> String {
        let may_use = match self.may_use {
            [] => "–".to_owned(),
            list => list.join(", "),
        };
        let pure = if self.pure { " Pure." } else { "" };
        format!("| `{}` | {}{pure} | {may_use} |\n", self.path, self.about)
    }
}

/// Name of the package in a folder.
pub(crate) fn package(folder: &str) -> String {
    match folder {
        "capstan" | "xtask" => folder.to_owned(),
        other => format!("capstan-{other}"),
    }
}

const fn pure(path: &'static str, about: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { path, about, may_use, pure: true }
}

const fn effects(path: &'static str, about: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { path, about, may_use, pure: false }
}

/// A new crate gets a row here first.
pub(crate) const LAYERS: &[Layer] = &[
    pure(
        "crates/semantics",
        "Kubernetes' own rules, shared by the operator and the embedded cluster: names, quantities, selectors, taints, field paths.",
        &[],
    ),
    pure(
        "crates/schema",
        "Kubernetes' built-in types as structural schemas; one table adds the list types, map keys and defaults that k8s-openapi omits.",
        &[],
    ),
    pure(
        "crates/no-schema",
        "A derive of `JsonSchema` that does nothing: the shipped program reads generated CRDs and has no code that makes them.",
        &[],
    ),
    pure(
        "crates/api",
        "Custom resources as Rust types, their CRDs, the fields without effect, and kinds of other projects (`foreign/`).",
        &["no-schema", "schema", "semantics"],
    ),
    pure(
        "crates/plan",
        "Facts, desired objects, the diff between desired and live objects; `kit/`, the builders of every product: DaemonSets, pods, RBAC, operands, storage, exposure, probes. Knows no product.",
        &["api", "semantics"],
    ),
    pure("crates/node", "The contract of a node: labels, validation files, paths, and one row per agent role.", &[]),
    pure(
        "crates/operands",
        "What runs where, a folder per product: one plan function per custom resource. A product uses the kit and itself, never another product.",
        &["api", "node", "plan", "semantics"],
    ),
    effects("crates/http", "A small HTTP server for probes, metrics and webhooks.", &[]),
    effects("crates/workqueue", "Work queues of controllers: each key at most once at a time, delays, backoff.", &[]),
    effects(
        "crates/runtime",
        "Effects around the core: watches and caches, queues, the writer, the leader lease, events, metrics, webhooks.",
        &["api", "http", "plan", "workqueue"],
    ),
    effects(
        "crates/operator",
        "Connects custom resources and plans to the runtime: one `Controller` trait, one reconcile, a folder and a registry entry per product.",
        &["api", "operands", "plan", "runtime"],
    ),
    effects("crates/apiserver", "A Kubernetes API server in one process. Knows no GPUs.", &["schema", "semantics"]),
    effects(
        "crates/sim",
        "The rest of a cluster on it: kube-controller-manager's controllers, scheduler, virtual nodes. Knows no GPUs.",
        &["apiserver", "semantics", "workqueue"],
    ),
    effects(
        "crates/gpu-sim",
        "Virtual GPU nodes: the agent's roles on fake hardware, and imitations of operands for large fleets.",
        &["agent", "api", "hw", "kubelet", "node", "sim"],
    ),
    effects(
        "crates/hw",
        "Hardware of a node by device family: `gpu/nvidia` (NVML, CUDA, MIG), `pci`, `net`, `modules`. Reads return plain data, writes are small traits; `fake/` has recorded GPUs and a fake root whose kernel reacts to writes.",
        &[],
    ),
    pure(
        "crates/cdi",
        "Container Device Interface specs: types, validation, merging, relocation to another root.",
        &[],
    ),
    effects("crates/kubelet", "The kubelet's gRPC APIs over its sockets, and a fake kubelet.", &[]),
    effects(
        "crates/agent",
        "What runs on a node: a folder per role, one list of them (`COMMANDS`), each supervised alone.",
        &["api", "cdi", "http", "hw", "kubelet", "node"],
    ),
    effects(
        "crates/inspect",
        "Snapshots of a cluster, live or from a file, and the views of them: status, doctor, versions, gather.",
        &["api", "node", "operands", "runtime", "semantics"],
    ),
    effects(
        "crates/trial",
        "Trial runs: the operator itself on a copy of a cluster (`capstan plan`) or on a simulated fleet, in virtual time.",
        &["api", "apiserver", "gpu-sim", "inspect", "operands", "operator", "runtime", "semantics", "sim"],
    ),
    effects(
        "crates/capstan",
        "The binary: arguments, calls and printing of every command.",
        &[
            "agent",
            "api",
            "apiserver",
            "gpu-sim",
            "http",
            "hw",
            "inspect",
            "node",
            "operator",
            "runtime",
            "sim",
            "trial",
        ],
    ),
    effects(
        "tests",
        "Stories of the operator on the embedded cluster or a real one, the crash matrix, comparisons with a real API server; `tests/kernel`: the agent's roles on a real kernel.",
        &["agent", "api", "apiserver", "gpu-sim", "operator", "plan", "runtime", "sim"],
    ),
    effects("e2e/model-server", "A model server without a model, for tests on a real cluster.", &[]),
    effects(
        "xtask",
        "`cargo xtask gen`, `check`, `cluster` (a real Kubernetes), `compare` (the embedded API server with a real one), `image`, `vm` (a real kernel), `bench`.",
        &["api", "node", "operator"],
    ),
];

/// Files that may hold `unsafe`, and why.
pub(crate) const UNSAFE: &[(&str, &str)] = &[
    ("crates/hw/src/gpu/nvidia/nvml/raw/", "NVML calls that nvml-wrapper lacks"),
    ("crates/hw/src/gpu/nvidia/cuda/raw.rs", "the CUDA driver API, loaded at run time"),
    ("crates/agent/src/hook/isolate.rs", "`unshare` in an OCI hook"),
    ("crates/capstan/src/memory.rs", "allocator settings and `madvise`"),
    ("xtask/src/image/trace.rs", "`ptrace` of the program, to order its functions"),
    ("tests/src/counting.rs", "an allocator that counts"),
];

/// ARCHITECTURE.md and CONTRIBUTING.md with their generated parts.
pub(crate) fn pages(root: &Path) -> Result<Vec<Generated>> {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let crates: String = LAYERS.iter().map(Layer::row).collect();
    let crates = format!("| Crate | What it is | May use |\n|---|---|---|\n{crates}");
    let files: String = UNSAFE.iter().map(|(path, why)| format!("| `{path}` | {why} |\n")).collect();
    let files = format!("| May contain `unsafe` | For |\n|---|---|\n{files}");
    let map = between(&read("ARCHITECTURE.md")?, "crates", &crates)?;
    let map = between(&map, "unsafe", &files)?;
    let guide = between(&read("CONTRIBUTING.md")?, "retired words", &crate::words::table())?;
    Ok(vec![("ARCHITECTURE.md".into(), map), ("CONTRIBUTING.md".into(), guide)])
}

/// Replaces what stands between the markers `<!-- NAME -->` and `<!-- /NAME -->`.
fn between(text: &str, name: &str, content: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
    let parts = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        bail!("the markers {} and {} are missing", begin.trim(), end.trim());
    };
    Ok(format!("{head}{begin}{content}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::{LAYERS, between, package};

    #[test]
    fn the_table_has_an_order_in_which_dependencies_point_up() {
        for layer in LAYERS {
            for used in layer.may_use {
                assert!(LAYERS.iter().any(|other| other.name() == package(used)), "{}: {used}", layer.path);
                let back = LAYERS.iter().find(|other| other.name() == package(used));
                let own = layer.path.rsplit('/').next().unwrap_or_default();
                assert!(back.is_none_or(|other| !other.may_use.contains(&own)), "{} and {used}", layer.path);
            }
        }
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n";
        assert_eq!(between(text, "x", "new\n").ok().as_deref(), Some("a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"));
        assert!(between(text, "y", "").is_err());
    }
}
