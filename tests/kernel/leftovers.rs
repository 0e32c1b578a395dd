//! A harness that is killed leaves nothing: no process, no mount, no file.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::here::until;

#[test]
fn a_killed_harness_leaves_no_process_no_mount_and_no_file() {
    if std::env::var_os("CAPSTAN_GUEST").is_some() {
        return;
    }
    let (mounts, files) = (mounts(), files());
    let Some(mut harness) = start(&["--gpus=1"]) else { return };
    let started = descendants(harness.id());
    assert!(started.len() >= 4, "a shell, QEMU and two file systems at least: {started:?}");
    harness.kill().expect("killed");
    harness.wait().expect("ended");
    until("its processes are gone", || started.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(self::mounts(), mounts);
    assert_eq!(self::files(), files);
}

/// Starts a command that does not end, and returns when it runs in the guest.
fn start(flags: &[&str]) -> Option<Child> {
    let xtask = || Command::new(env!("CARGO_BIN_EXE_xtask"));
    if let Some(reason) = not_run() {
        eprintln!("kernel story leftovers: NOT RUN: {reason}");
        return None;
    }
    let line = ["--", "sh", "-c", "echo running; sleep 100000"];
    let mut child =
        xtask().args(["vm", "run"]).args(flags).args(line).stdout(Stdio::piped()).spawn().expect("cargo xtask starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("an output")).read_line(&mut first).expect("its output");
    assert_eq!(first, "running\n");
    Some(child)
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

/// Names in the folders that a guest could have written to.
fn files() -> BTreeSet<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).expect("a cache");
    let vm = cache.join("capstan/vm");
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // The folder of runs itself stays, empty; the accelerator that was found is kept on purpose.
    let kept = |path: &PathBuf| !["run", "accelerator", "lock"].iter().any(|name| path.ends_with(name));
    list(&vm).filter(kept).chain(list(&vm.join("run"))).collect()
}
