//! `capstan up` beside a test, and other commands on its cluster.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A cluster with the lifetime of the test, ended by SIGKILL.
pub(crate) struct Running {
    up: Child,
    lines: BufReader<ChildStdout>,
    /// Its own directory.
    pub(crate) dir: tempfile::TempDir,
}

impl Running {
    /// Starts it, without waiting.
    pub(crate) fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut up = capstan(&["up", "--timeout", "300", "-o", "json", "--kubeconfig"]);
        up.arg(dir.path().join("kubeconfig")).args(args).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut up = up.spawn().unwrap();
        let lines = BufReader::new(up.stdout.take().unwrap());
        Self { up, lines, dir }
    }

    /// Waits for an output line that matches.
    pub(crate) fn until(&mut self, what: impl Fn(&Value) -> bool) {
        let mut said = String::new();
        loop {
            let from = said.len();
            let read = self.lines.read_line(&mut said).unwrap();
            assert!(read > 0, "it ended before: {said}");
            if serde_json::from_str(&said[from..]).is_ok_and(|line: Value| what(&line)) {
                return;
            }
        }
    }

    /// Runs a command on this cluster.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        capstan(args).arg("--kubeconfig").arg(self.file("kubeconfig")).output().unwrap()
    }

    /// A file in its directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

/// The program, without environment variables about clusters and logs.
pub(crate) fn capstan(args: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_capstan")), args)
}

/// The program at another path.
pub(crate) fn program(path: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(path);
    command.args(args).env_remove("RUST_LOG").env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Standard output.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
