//! A harness that is killed leaves nothing: no process, no mount, no file.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::here::until;

#[test]
fn a_killed_harness_leaves_no_process_no_mount_and_no_file() {
    if let Some(reason) = not_run() {
        return say_not_run(&reason);
    }
    let line = ["--gpus=1", "--", "sh", "-c", "echo running; sleep 100000"];
    let harness = start(&["vm", "run"], &line, "running\n");
    leaves_nothing(harness, |harness| harness.kill().expect("killed"));
}

#[test]
fn a_guest_for_stories_ends_with_whoever_asked_for_it() {
    if let Some(reason) = not_run() {
        return say_not_run(&reason);
    }
    let harness = start(&["vm", "serve"], &[], "{\"ready\":true}\n");
    // What the kernel does to the pipe when a test is killed.
    leaves_nothing(harness, |harness| drop(harness.stdin.take()));
}

fn leaves_nothing(mut harness: Child, end: impl FnOnce(&mut Child)) {
    let started = descendants(harness.id());
    assert!(started.len() >= 6, "unshare, a shell, QEMU and two file systems at least: {started:?}");
    end(&mut harness);
    harness.wait().expect("ended");
    until("its processes are gone", || started.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(mounts(), Vec::<String>::new());
    assert_eq!(files(), BTreeSet::new());
}

fn say_not_run(reason: &str) {
    let _ = writeln!(std::io::stderr(), "kernel story leftovers: NOT RUN: {reason}");
}

/// Starts a harness, and returns when it has said `first`: the guest runs then.
fn start(command: &[&str], flags: &[&str], first: &str) -> Child {
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(command).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = xtask.spawn().expect("cargo xtask starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("an output")).read_line(&mut line).expect("its output");
    assert_eq!(line, first);
    child
}

/// Why no guest can run here: what the harness says first, before it makes one.
fn not_run() -> Option<String> {
    if std::env::var("KERNEL_STORIES").is_ok_and(|value| value == "0") {
        return Some("KERNEL_STORIES=0 leaves it out".into());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["vm", "possible"]).output().expect("cargo xtask runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Processes below one, and below those.
fn descendants(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([pid]);
    loop {
        let before = found.len();
        for process in processes() {
            if parent(process).is_some_and(|parent| found.contains(&parent)) {
                found.insert(process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The fourth word of `stat`; the second is a name in brackets, which may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok()
}

fn mounts() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    text.lines().filter(|line| line.contains("capstan-vm")).map(str::to_owned).collect()
}

/// What a run left in its folder, which is all that it writes to on this machine.
fn files() -> BTreeSet<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).expect("a cache");
    let entries = std::fs::read_dir(cache.join("capstan/vm/run")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
