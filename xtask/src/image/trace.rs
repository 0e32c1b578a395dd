//! Traces which functions of the program run while an operator works on an embedded cluster.
//!
//! The first instruction of every function is replaced by a breakpoint. When it is hit, the function is recorded and
//! the instruction restored: after that there is no overhead.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Timeout until everything on the embedded cluster is Ready, in seconds.
const READY_TIMEOUT: &str = "300";
/// Timeout until the embedded cluster serves its API.
const SERVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The `int3` instruction.
const BREAKPOINT: u8 = 0xcc;

/// The executed functions, in order of first execution.
pub(super) fn functions(program: &Path, folder: &Path) -> Result<Vec<String>> {
    let kubeconfig = folder.join("trace.kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let mut cluster = serve(program, &kubeconfig)?;
    let ran = watch(program, &kubeconfig, process_of(&cluster));
    if ran.is_err() {
        // Without an operator it would wait for Ready in vain.
        let _ = cluster.kill();
    }
    ran
}

/// Traces an operator on the cluster until the cluster ends.
fn watch(program: &Path, kubeconfig: &Path, cluster: Pid) -> Result<Vec<String>> {
    let mut operator = Command::new(program);
    operator.args(["operator", "--leader-elect", "--health-probe-bind-address=127.0.0.1:0"]);
    operator.env("KUBECONFIG", kubeconfig).env("CAPSTAN_IMAGE", super::TAG).stdout(Stdio::null()).stderr(Stdio::null());
    let code = Code::of(program)?;
    Traced::start(operator, &code)?.until_ended(cluster)
}

/// Starts a cluster that ends when everything on it is Ready, which needs an operator.
fn serve(program: &Path, kubeconfig: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command
        .args(["up", "--no-operator", "--exit-when-ready", "--timeout", READY_TIMEOUT, "--kubeconfig"])
        .arg(kubeconfig);
    let mut cluster = command.stdout(Stdio::null()).spawn().context("cannot start an embedded cluster")?;
    let begin = Instant::now();
    while !kubeconfig.exists() {
        if let Some(status) = cluster.try_wait()? {
            bail!("the embedded cluster ended at once: {status}");
        }
        ensure!(
            begin.elapsed() < SERVE_TIMEOUT,
            "the embedded cluster does not serve after {} s",
            SERVE_TIMEOUT.as_secs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(cluster)
}

fn process_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// The code section of a program, and its function symbols.
struct Code {
    /// Its offset in the program.
    begin: u64,
    bytes: Vec<u8>,
    /// Symbols by offset in the code. One function may have several.
    names: HashMap<usize, Vec<String>>,
}

impl Code {
    fn of(program: &Path) -> Result<Self> {
        let content = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        let file = object::File::parse(&*content).context("the program is not one that we can read")?;
        let text = file.section_by_name(".text").context("the program has no code")?;
        let (begin, bytes) = (text.address(), text.data()?.to_vec());
        let mut names: HashMap<usize, Vec<String>> = HashMap::new();
        let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        for function in functions {
            let place = function.address().checked_sub(begin).and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place.filter(|place| *place < bytes.len()) {
                names.entry(place).or_default().push(function.name()?.to_owned());
            }
        }
        ensure!(!names.is_empty(), "the program says nothing of its functions");
        Ok(Self { begin, bytes, names })
    }
}

/// A traced process.
struct Traced<'a> {
    process: Pid,
    memory: File,
    /// Address of the code in its memory.
    begin: u64,
    code: &'a Code,
    /// Executed functions, in order.
    ran: Vec<usize>,
    known: HashSet<usize>,
}

impl<'a> Traced<'a> {
    #[allow(unsafe_code, reason = "a process has to ask for it between its making and its program")]
    fn start(mut command: Command, code: &'a Code) -> Result<Self> {
        // SAFETY: one system call, which is async-signal-safe.
        unsafe {
            command.pre_exec(|| Ok(ptrace::traceme()?));
        }
        let process = process_of(&command.spawn().context("cannot start an operator to watch")?);
        // It stops before the first instruction of its program.
        let stopped = waitpid(process, None)?;
        ensure!(matches!(stopped, WaitStatus::Stopped(..)), "the operator did not begin: {stopped:?}");
        ptrace::setoptions(process, Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
        let begin = first_address(&maps).context("the operator has no memory")? + code.begin;
        let mut marked = code.bytes.clone();
        for place in code.names.keys() {
            marked[*place] = BREAKPOINT;
        }
        memory.write_all_at(&marked, begin).context("cannot set breakpoints")?;
        ptrace::cont(process, None)?;
        Ok(Self { process, memory, begin, code, ran: Vec::new(), known: HashSet::new() })
    }

    /// Runs it until the cluster has ended. Returns the executed functions.
    fn until_ended(mut self, cluster: Pid) -> Result<Vec<String>> {
        loop {
            match waitpid(None, Some(WaitPidFlag::__WALL))? {
                WaitStatus::Exited(process, code) if process == cluster => {
                    ensure!(code == 0, "not everything became Ready on the embedded cluster");
                    kill(self.process, Signal::SIGTERM)?;
                }
                WaitStatus::Exited(process, 0) if process == self.process => break,
                ended @ (WaitStatus::Exited(process, _) | WaitStatus::Signaled(process, ..))
                    if process == self.process || process == cluster =>
                {
                    bail!("what is watched ended badly: {ended:?}")
                }
                WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                    self.note(thread)?;
                    go_on(thread, None);
                }
                // A new thread starts with SIGSTOP.
                WaitStatus::Stopped(thread, Signal::SIGSTOP) => go_on(thread, None),
                WaitStatus::Stopped(thread, signal) => go_on(thread, Some(signal)),
                WaitStatus::PtraceEvent(thread, ..) => go_on(thread, None),
                _ => {}
            }
        }
        Ok(self.ran.iter().flat_map(|place| self.code.names[place].iter().cloned()).collect())
    }

    /// Records the function of a thread, and restarts the function.
    fn note(&mut self, thread: Pid) -> Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        let at = registers.rip - 1;
        let place = at.checked_sub(self.begin).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|place| self.code.names.contains_key(place)) else { return Ok(()) };
        // Two threads may hit the same breakpoint before it is removed.
        if self.known.insert(place) {
            self.ran.push(place);
            self.memory.write_all_at(&self.code.bytes[place..=place], at)?;
        }
        registers.rip = at;
        Ok(ptrace::setregs(thread, registers)?)
    }
}

/// Continues a thread; one that was killed meanwhile is ignored.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::cont(thread, signal);
}

/// Load address of a process, from the text of `/proc/PID/maps`.
fn first_address(maps: &str) -> Option<u64> {
    u64::from_str_radix(maps.split_once('-')?.0, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_begins_where_its_first_part_does() {
        let maps = "55d0c0000000-55d0c0800000 r--p 00000000 fe:00 1 /usr/bin/capstan\n7f00-7f10 r-xp 0 0 0\n";
        assert_eq!(first_address(maps), Some(0x55d0_c000_0000));
        assert_eq!(first_address(""), None);
    }

    #[test]
    fn functions_of_a_program_have_names() {
        let code = Code::of(&std::env::current_exe().unwrap()).unwrap();
        let names = code.names.values().flatten();
        assert!(names.into_iter().any(|name| name.contains("functions_of_a_program_have_names")));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let error = Code::of(Path::new("/proc/self/status")).err().unwrap();
        assert_eq!(error.to_string(), "the program is not one that we can read");
    }
}
