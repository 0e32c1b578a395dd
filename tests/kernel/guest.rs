//! This machine's side of a story: guests by kind, each started by the first story that needs it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::here::Here;

/// How long a story may take in the guest, in seconds: under emulation, on a machine that does other work.
const LIMIT: u64 = 300;

/// What a guest is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A host with eight GPUs on its bus, and a disk.
    Host,
    /// A node of a cluster whose control plane is on this machine.
    Node,
    /// A host that boots only what is signed, with a GPU.
    Secure,
}

impl Kind {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Host => &["--gpus=8", "--disk"],
            Self::Node => &["--gpus=8", "--kubelet", "--cpus=2", "--memory=3072"],
            Self::Secure => &["--secure-boot", "--gpus=1"],
        }
    }

    fn session(self) -> &'static Mutex<Option<Session>> {
        static HOST: Mutex<Option<Session>> = Mutex::new(None);
        static NODE: Mutex<Option<Session>> = Mutex::new(None);
        static SECURE: Mutex<Option<Session>> = Mutex::new(None);
        match self {
            Self::Host => &HOST,
            Self::Node => &NODE,
            Self::Secure => &SECURE,
        }
    }
}

/// In the guest: what a story works with. On this machine the story runs in the guest, and there is nothing to do here.
macro_rules! here {
    ($kind:ident) => {
        match crate::guest::enter(crate::guest::Kind::$kind, std::any::type_name_of_val(&|| ())) {
            Some(here) => here,
            None => return,
        }
    };
}
pub(crate) use here;

/// What `here!` does, for the story that a closure in it names.
pub(crate) fn enter(kind: Kind, closure: &str) -> Option<Here> {
    if let Some(here) = Here::in_guest() {
        return Some(here);
    }
    // `kernel::pci::story::{{closure}}`, of which the test's name is the middle.
    let path: Vec<&str> = closure.split("::").collect();
    let name = path[1..path.len() - 1].join("::");
    if let Some(reason) = run(kind, &name) {
        // Not a print, which a test that passes keeps to itself.
        let _ = writeln!(std::io::stderr(), "kernel story {name}: NOT RUN: {reason}");
    }
    None
}

/// Runs a story in the guest of its kind; returns why it cannot be run.
fn run(kind: Kind, name: &str) -> Option<String> {
    if std::env::var("KERNEL_STORIES").is_ok_and(|value| value == "0") {
        return Some("KERNEL_STORIES=0 leaves it out".into());
    }
    // A story that failed is no reason to fail the others.
    let mut session = kind.session().lock().unwrap_or_else(PoisonError::into_inner);
    let session = session.get_or_insert_with(|| Session::start(kind));
    if let Some(reason) = &session.not_run {
        return Some(reason.clone());
    }
    let command = ["/usr/lib/capstan/story", "--exact", name, "--nocapture", "--test-threads=1"];
    let answer = session.ask(&json!({ "command": command, "limit": LIMIT }));
    let output = answer["output"].as_str().unwrap_or_default();
    let ran = output.contains("test result: ok. 1 passed");
    assert!(answer["code"] == 0 && ran, "in the guest: {}\n{output}", answer["error"].as_str().unwrap_or("failed"));
    None
}

/// A guest that waits for commands. It ends when this process does, however that ends: its input ends then.
struct Session {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    not_run: Option<String>,
}

impl Session {
    fn start(kind: Kind) -> Self {
        let own = std::env::current_exe().expect("the path of this program");
        let mut process = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["vm", "serve", "--program"])
            .arg(own)
            .args(kind.flags())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo xtask starts");
        let input = process.stdin.take().expect("an input");
        let output = BufReader::new(process.stdout.take().expect("an output"));
        let mut session = Self { _process: process, input, output, not_run: None };
        let first = session.answer();
        session.not_run = first["not_run"].as_str().map(str::to_owned);
        assert!(session.not_run.is_some() || first["ready"] == true, "no guest: {first}");
        session
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.input, "{request}").expect("the guest is asked");
        self.answer()
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer");
        assert!(!line.is_empty(), "the guest ended: its last words are above");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}
