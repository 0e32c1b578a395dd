//! `cargo xtask protocol`: records the kubelet's published gRPC messages as a table that tests compare ours with.
//!
//! The table holds facts only: message, number, label, type and name of each field, and the calls. The published files come
//! from the Go module `k8s.io/kubelet`, in the version that the real cluster's kubelet has (`e2e/tools/go.mod`).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Files of ours, and the published ones that they speak.
const FILES: &[(&str, &str)] = &[
    ("device_plugin", "pkg/apis/deviceplugin/v1beta1/api.proto"),
    ("pod_resources", "pkg/apis/podresources/v1/api.proto"),
    ("registration", "pkg/apis/pluginregistration/v1/api.proto"),
];

const TABLE: &str = "crates/kubelet/tests/protocol.txt";

pub(crate) fn run(root: &Path) -> Result<()> {
    let (version, module) = download(root)?;
    let mut table = format!("# k8s.io/kubelet {version}: written by `cargo xtask protocol`\n");
    for (ours, published) in FILES {
        let text =
            std::fs::read_to_string(module.join(published)).with_context(|| format!("cannot read {published}"))?;
        table += &facts(ours, &text)?;
    }
    std::fs::write(root.join(TABLE), table)?;
    println!("protocol: {TABLE} is of {version}");
    Ok(())
}

/// The module's version and folder.
fn download(root: &Path) -> Result<(String, PathBuf)> {
    let tools = std::fs::read_to_string(root.join("e2e/tools/go.mod"))?;
    let version = tools.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubelet "));
    let version =
        version.and_then(|rest| rest.split_whitespace().next()).context("e2e/tools/go.mod lacks the kubelet")?;
    let module = format!("k8s.io/kubelet@{version}");
    let output = Command::new("go").args(["mod", "download", "-json", &module]).output().context("cannot run go")?;
    let answer: Value = serde_json::from_slice(&output.stdout).context("cannot read what go says")?;
    match answer["Dir"].as_str() {
        Some(folder) => Ok((version.to_owned(), folder.into())),
        None => bail!("go cannot download {module}: {}", answer["Error"].as_str().unwrap_or_default()),
    }
}

/// One line for each field and each call.
fn facts(ours: &str, text: &str) -> Result<String> {
    let (mut out, mut package, mut block) = (String::new(), "", String::new());
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let words: Vec<&str> = line.split([' ', '(', ')', ';', '{', '}']).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            ["package", name] => package = name,
            ["message" | "service", name] => block = (*name).to_owned(),
            ["rpc", call, request, "returns", response @ ..] => {
                writeln!(out, "{ours} rpc /{package}.{block}/{call} {request} {}", response.join(" "))?;
            }
            [label @ ("repeated" | "optional"), kind, name, "=", number, ..] => {
                writeln!(out, "{ours} field {block} {number} {label} {kind} {name}")?;
            }
            ["map<string,", value, name, "=", number, ..] => {
                writeln!(out, "{ours} field {block} {number} map {} {name}", value.trim_end_matches('>'))?;
            }
            [kind, name, "=", number, ..] if !["syntax", "option"].contains(kind) && number.parse::<u32>().is_ok() => {
                writeln!(out, "{ours} field {block} {number} single {kind} {name}")?;
            }
            _ => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #[test]
    fn fields_and_calls_become_lines() {
        let text = "package v1;\nservice S {\n rpc Get(A) returns (stream B) {}\n}\nmessage A {\n  // no\n  string id = 1;\n  repeated B all = 2;\n  map<string, string> envs = 3;\n}\n";
        let expected = "x rpc /v1.S/Get A stream B\nx field A 1 single string id\nx field A 2 repeated B all\nx field A 3 map string envs\n";
        assert_eq!(super::facts("x", text).ok().as_deref(), Some(expected));
    }
}
