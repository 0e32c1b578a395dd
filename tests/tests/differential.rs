//! The same requests to the embedded API server and to a real one: codes, bodies, messages and events must be equal.
//!
//! By default the real server's answers come from `cases/recorded`. `cargo xtask compare` starts a fresh kube-apiserver
//! with few controllers and sets `COMPARE=live`: then that one is asked itself, and the record is checked as well; with
//! `RECORD=1` its answers are recorded.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use capstan_tests::exchange::{Answer, Case, Step, play};
use capstan_tests::normal::{covers, differences};
use capstan_tests::recorded::Recorded;
use capstan_tests::servers::{Embedded, Real};

/// A file of cases.
struct File {
    name: String,
    cases: Vec<Case>,
    record: PathBuf,
}

/// All of them, or those whose names contain `CASES`.
fn files() -> Vec<File> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let wanted = std::env::var("CASES").unwrap_or_default();
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let cases = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        File { cases, record: folder.join(format!("recorded/{name}.json")), name }
    };
    paths.into_iter().map(read).filter(|file| file.name.contains(&wanted)).collect()
}

/// What was found.
#[derive(Default)]
struct Findings {
    compared: usize,
    listed: usize,
    wrong: Vec<String>,
}

impl Findings {
    /// Compares one answer with that of the real server.
    fn compare(&mut self, place: &str, step: &Step, ours: &Answer, theirs: &Answer) {
        self.compared += 1;
        let found = differences(ours, theirs);
        for (side, answer) in [("embedded", ours), ("real", theirs)].iter().filter(|(_, answer)| answer.code == 0) {
            self.wrong.push(format!("{place}: {}\n    {side}: {}", step.send, answer.body));
        }
        let unlisted = found.iter().filter(|(path, _)| !step.differs.keys().any(|listed| covers(listed, path)));
        let lines: Vec<String> = unlisted.map(|(path, values)| format!("\n    {path}: {values}")).collect();
        if !lines.is_empty() {
            self.wrong.push(format!("{place}: {}{}", step.send, lines.concat()));
        }
        for listed in step.differs.keys() {
            if found.iter().any(|(path, _)| covers(listed, path)) {
                self.listed += 1;
            } else {
                self.wrong.push(format!("{place}: {}\n    {listed}: is listed but does not differ", step.send));
            }
        }
    }

    /// Notes where the record is not what the real server says.
    fn check_record(&mut self, place: &str, case: &Case, live: &[Answer], recorded: Option<&Vec<Answer>>) {
        let Some(recorded) = recorded.filter(|recorded| recorded.len() == live.len()) else {
            self.wrong.push(format!("{place}: is not recorded: run it with RECORD=1"));
            return;
        };
        for (step, (live, recorded)) in case.steps.iter().zip(live.iter().zip(recorded)) {
            let listed = |path: &str| step.differs.keys().any(|listed| covers(listed, path));
            for (path, values) in differences(live, recorded).into_iter().filter(|(path, _)| !listed(path)) {
                self.wrong.push(format!("{place}: {}\n    {path}: real / recorded: {values}", live.send));
            }
        }
    }
}

async fn compare(real: Option<Real>) -> (Findings, String) {
    let embedded = Embedded::start().await.unwrap();
    let record = std::env::var("RECORD").is_ok_and(|text| text == "1");
    let mut findings = Findings::default();
    let mut server = String::new();
    for file in files() {
        let mut recorded = Recorded::read(&file.record).unwrap();
        for case in &file.cases {
            let place = format!("{}: {}", file.name, case.name);
            let (ours, theirs) = match &real {
                Some(real) => {
                    let (ours, theirs) = tokio::join!(play(&embedded, case), play(real, case));
                    if record {
                        recorded.cases.insert(case.name.clone(), theirs.clone());
                    } else {
                        findings.check_record(&place, case, &theirs, recorded.cases.get(&case.name));
                    }
                    (ours, Some(theirs))
                }
                None => (play(&embedded, case).await, recorded.cases.get(&case.name).cloned()),
            };
            let theirs = theirs.unwrap_or_default();
            if theirs.len() != ours.len() || theirs.iter().zip(&ours).any(|(theirs, ours)| theirs.send != ours.send) {
                findings.wrong.push(format!("{place}: the record is of other requests: run it with RECORD=1"));
                continue;
            }
            for (number, ((step, ours), theirs)) in case.steps.iter().zip(&ours).zip(&theirs).enumerate() {
                findings.compare(&format!("{place} {}", number + 1), step, ours, theirs);
            }
        }
        if let (Some(real), true) = (&real, record) {
            recorded.cases.retain(|name, _| file.cases.iter().any(|case| case.name == *name));
            recorded.server.clone_from(&real.version);
            recorded.write(&file.record).unwrap();
        }
        server = recorded.server;
    }
    let how = if real.is_some() { "live" } else { "recorded" };
    (findings, format!("kube-apiserver {server} ({how})"))
}

#[test]
fn the_embedded_server_answers_as_a_real_one() {
    let live = std::env::var("COMPARE").is_ok_and(|how| how == "live");
    // A real server has its own time; without one there is nothing to wait for.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(!live).build().unwrap();
    let (findings, server) = runtime.block_on(async {
        let real = if live { Some(Real::connect().await.unwrap()) } else { None };
        compare(real).await
    });
    // Past the capture of test output: CI quotes this line.
    let line = format!(
        "compared {} exchanges: embedded server with {server}; {} listed differences, {} others",
        findings.compared,
        findings.listed,
        findings.wrong.len()
    );
    writeln!(std::io::stderr(), "{line}").unwrap();
    assert!(findings.wrong.is_empty(), "{line} (ours / theirs):\n{}", findings.wrong.join("\n"));
}
