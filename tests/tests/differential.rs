//! The same requests to the embedded API server and to a real one: codes, bodies and messages must be equal.
//!
//! Needs `TEST_CLUSTER=real` and a kubeconfig of a fresh kube-apiserver; without it only checks that every case runs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;

use capstan_sim::Cluster;
use capstan_tests::exchange::{Answer, Case, differences, send};
use kube::Client;

fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut cases = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let all: Vec<Case> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        cases.extend(all.into_iter().map(|case| (file.clone(), case)));
    }
    cases
}

async fn answers(client: &Client, case: &Case) -> Vec<Answer> {
    let mut answers = Vec::new();
    for step in &case.steps {
        let answer = send(client, step).await.unwrap_or_else(|error| panic!("{}: {}: {error}", case.name, step.send));
        answers.push(answer);
    }
    answers
}

#[tokio::test]
async fn the_embedded_server_answers_as_a_real_one() {
    let real = std::env::var("TEST_CLUSTER").is_ok_and(|kind| kind == "real");
    let real = if real { Some(Client::try_default().await.unwrap()) } else { None };
    let cluster = Cluster::builder().start().await.unwrap();
    let embedded = cluster.client();
    let (mut failed, mut compared) = (Vec::new(), 0);
    for (file, case) in cases() {
        let ours = answers(&embedded, &case).await;
        let Some(real) = &real else { continue };
        let theirs = answers(real, &case).await;
        for ((step, ours), theirs) in case.steps.iter().zip(&ours).zip(&theirs) {
            compared += 1;
            for (path, values) in differences(ours, theirs) {
                if !step.differs.contains_key(&path) {
                    failed.push(format!("{file}: {}: {}\n    {path}: {values}", case.name, step.send));
                }
            }
        }
    }
    println!("compared {compared} answers");
    assert!(failed.is_empty(), "{} differences (ours / theirs):\n{}", failed.len(), failed.join("\n"));
}
