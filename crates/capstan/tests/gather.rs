//! `capstan gather`: no secrets, below its size limit, readable by other commands.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/running.rs"]
mod running;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use running::{Running, capstan, said};

/// Every file of an archive.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), text)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn an_archive_has_everything_but_secrets_and_tells_the_same_as_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("service.yaml");
    std::fs::write(&manifest, SERVICE).unwrap();
    let mut cluster = Running::start(&["--nodes", "1", "--gpus", "1", "-f", manifest.to_str().unwrap()]);
    cluster.until(|line| line["event"] == "ready");
    let archive = cluster.file("case.tar.gz");
    let output = cluster.run(&["gather", "-o", archive.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said(&output), format!("{}\n", archive.display()));

    let files = files(&archive);
    for (name, text) in &files {
        for secret in ["hush-hush-1", "aHVzaC1odXNoLTE=", "hush-hush-2"] {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }
    for name in [
        "README.txt",
        "doctor.txt",
        "status.txt",
        "versions.txt",
        "timeline.txt",
        "objects/cluster/ClusterPolicy.nvidia.com/cluster-policy.yaml",
        "objects/default/NIMService.apps.nvidia.com/llama.yaml",
        "objects/default/Secret/ngc.yaml",
    ] {
        assert!(files.contains_key(&format!("capstan-gather/{name}")), "{name} is missing: {:?}", files.keys());
    }
    let timeline = &files["capstan-gather/timeline.txt"];
    let times: Vec<&str> = timeline.lines().map(|line| &line[..20]).collect();
    assert!(timeline.contains("ClusterPolicy cluster-policy") && times.is_sorted(), "{timeline}");

    let live = cluster.run(&["status", "-o", "json"]);
    let kept = capstan(&["status", "-o", "json", "--snapshot", archive.to_str().unwrap()]).output().unwrap();
    assert_eq!((said(&kept), kept.status.code()), (said(&live), live.status.code()));
}

const SERVICE: &str = "
apiVersion: v1
kind: Secret
metadata: {name: ngc}
stringData: {NGC_API_KEY: hush-hush-1}
---
apiVersion: apps.nvidia.com/v1alpha1
kind: NIMService
metadata: {name: llama}
spec:
  image: {repository: nvcr.io/nim/meta/llama, tag: '1.0', pullSecrets: [ngc]}
  authSecret: ngc
  env: [{name: UPSTREAM_PASSWORD, value: hush-hush-2}]
  storage: {emptyDir: {}}
  expose: {service: {port: 8000}}
";

#[test]
fn a_size_that_makes_no_sense_is_refused_with_an_example() {
    let output = capstan(&["gather", "--max-size", "much"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("\"much\" is no size: write one such as 50MiB"), "{text}");
}
