//! A guest: a fresh overlay of the tree, the programs that make it run, and the jobs that it is given.
//!
//! The guest has two file systems of this machine: its root, which forgets everything with the run, and `/host`, a folder
//! per job with the script, its output, and what it asks of us. A line over a virtio port starts a job.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::accelerator::Accelerator;
use super::machine::{Hardware, INIT, qemu, virtiofsd};
use super::tools::{self, Tools};
use crate::cluster::{output, until};

/// How long a boot may take: some seconds on a quiet machine, and firmware with Secure Boot is slow under emulation.
const BOOT: Duration = Duration::from_secs(300);
/// How often output and requests of a job are looked for.
const TICK: Duration = Duration::from_millis(20);

/// Where output goes.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// How a job ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With an exit code.
    Code(i32),
    /// The machine went down while the job ran.
    Down,
}

/// A guest, running or not.
pub(crate) struct Guest<'a> {
    tools: &'a Tools,
    hardware: Hardware,
    accelerator: Accelerator,
    folder: PathBuf,
    programs: Vec<Child>,
    control: Option<UnixStream>,
    lines: String,
    jobs: u32,
}

/// Makes the folder of a run: in memory, and seen by nobody else.
pub(crate) fn run_folder() -> Result<PathBuf> {
    let folder = tools::folder()?.join("run");
    std::fs::create_dir_all(&folder)?;
    output("mount", &["-t", "tmpfs", "-o", "mode=755", "capstan-vm", &folder.display().to_string()])?;
    Ok(folder)
}

impl<'a> Guest<'a> {
    /// Prepares a guest in a folder: its root is the tree with layers over it, and a last one that takes all writes.
    pub(crate) fn new(tools: &'a Tools, root: &Path, hardware: Hardware, folder: PathBuf) -> Result<Self> {
        for name in ["upper/usr/sbin", "upper/usr/lib/capstan", "work", "root", "host"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let init = root.join("e2e/vm/init");
        std::fs::copy(&init, folder.join("upper").join(INIT.trim_start_matches('/')))
            .with_context(|| format!("cannot copy {}", init.display()))?;
        output("chmod", &["755", &folder.join("upper").join(INIT.trim_start_matches('/')).display().to_string()])?;
        let layers = [tools.modules.join("layer"), tools.containerd.join("layer"), tools.tree.clone()];
        let layers = layers.map(|layer| layer.display().to_string()).join(":");
        let shown = |name: &str| folder.join(name).display().to_string();
        let options = format!("lowerdir={layers},upperdir={},workdir={}", shown("upper"), shown("work"));
        output("mount", &["-t", "overlay", "capstan-vm", "-o", &options, &shown("root")])?;
        output("mount", &["-o", "bind,ro", &root.display().to_string(), &shown("root/src")])?;
        std::fs::write(folder.join("host/hostname"), "capstan\n")?;
        std::fs::write(folder.join("host/boot"), hardware.boot_script())?;
        if hardware.disk {
            File::create(folder.join("disk.img"))?.set_len(64 << 20)?;
        }
        if hardware.secure_boot {
            std::fs::copy(tools.modules.join("firmware-variables.fd"), folder.join("variables.fd"))?;
        }
        let accelerator = super::accelerator::choose(tools)?;
        let (programs, control, lines) = (Vec::new(), None, String::new());
        Ok(Self { tools, hardware, accelerator, folder, programs, control, lines, jobs: 0 })
    }

    /// Lets the guest see a file of this machine, to be executed: `/usr/lib/capstan/NAME`.
    pub(crate) fn add_program(&self, from: &Path, name: &str) -> Result<()> {
        let to = self.folder.join("root/usr/lib/capstan").join(name);
        File::create(&to)?;
        output("mount", &["--bind", &from.display().to_string(), &to.display().to_string()]).map(drop)
    }

    /// Gives the guest the CNI plugin that calls others.
    pub(crate) fn add_multus(&self) -> Result<()> {
        self.add_program(&self.tools.multus, "multus")
    }

    /// A program without libraries, which can be many.
    pub(crate) fn busybox(&self) -> PathBuf {
        self.tools.tree.join("usr/bin/busybox")
    }

    /// The folder that the guest has as `/host`.
    pub(crate) fn host(&self) -> PathBuf {
        self.folder.join("host")
    }

    /// Boots it, and waits until it takes jobs.
    pub(crate) fn boot(&mut self) -> Result<()> {
        self.stop()?;
        for name in ["root.sock", "host.sock", "control.sock", "root.sock.pid", "host.sock.pid"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        for (name, cache) in [("root", "always"), ("host", "never")] {
            let socket = format!("{name}.sock");
            let command = virtiofsd(self.tools, &socket, &self.folder.join(name), cache);
            self.spawn(command, &format!("{name}.log"))?;
            if !until(Duration::from_secs(10), || self.folder.join(&socket).exists()) {
                bail!("virtiofsd does not start: {}", self.tail(&format!("{name}.log")));
            }
        }
        let mut command = qemu(self.tools);
        command.args(self.hardware.flags(self.tools, self.accelerator)?);
        self.spawn(command, "qemu.log")?;
        let path = self.folder.join("control.sock");
        let mut found = None;
        until(Duration::from_secs(20), || {
            found = UnixStream::connect(&path).ok();
            found.is_some() || self.is_down()
        });
        let control = found.with_context(|| format!("QEMU does not start: {}", self.tail("qemu.log")))?;
        control.set_read_timeout(Some(TICK))?;
        self.control = Some(control);
        self.lines.clear();
        let begin = Instant::now();
        while begin.elapsed() < BOOT {
            match self.line()? {
                Some(line) if line == "ready" => return self.check_boot(),
                _ if self.is_down() => break,
                _ => {}
            }
        }
        bail!("the guest does not boot: {} {}", self.tail("console.log"), self.tail("qemu.log"))
    }

    fn check_boot(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.folder.join("console.log")).unwrap_or_default();
        match log.lines().find_map(|line| line.split_once("capstan: ")) {
            Some((_, fault)) => bail!("the guest did not come up as asked: {}", fault.trim()),
            None => Ok(()),
        }
    }

    fn spawn(&mut self, mut command: Command, log: &str) -> Result<()> {
        let file = File::options().create(true).append(true).open(self.folder.join(log))?;
        let terminal = self.hardware.console && log == "qemu.log";
        let (input, print) = match terminal {
            true => (Stdio::inherit(), Stdio::inherit()),
            false => (Stdio::null(), file.try_clone()?.into()),
        };
        let child = command.current_dir(&self.folder).stdin(input).stdout(print).stderr(file).spawn();
        self.programs.push(child.context("cannot run a program of the tree")?);
        Ok(())
    }

    /// Ends it at once, as a machine whose plug is pulled.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.control = None;
        for mut program in self.programs.drain(..).rev() {
            program.kill()?;
            program.wait()?;
        }
        Ok(())
    }

    fn is_down(&mut self) -> bool {
        self.programs.last_mut().is_none_or(|qemu| !matches!(qemu.try_wait(), Ok(None)))
    }

    /// The next line of the guest, if there is one within a tick.
    fn line(&mut self) -> Result<Option<String>> {
        if !self.lines.contains('\n') {
            let mut buffer = [0; 256];
            match self.control.as_mut().context("the guest does not run")?.read(&mut buffer) {
                // Nobody is there any more: whoever asks looks after QEMU.
                Ok(0) => std::thread::sleep(TICK),
                Ok(count) => self.lines += &String::from_utf8_lossy(&buffer[..count]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {}
                Err(error) if matches!(error.kind(), std::io::ErrorKind::ConnectionReset) => std::thread::sleep(TICK),
                Err(error) => return Err(error).context("the guest cannot be heard"),
            }
        }
        let Some((line, rest)) = self.lines.split_once('\n') else { return Ok(None) };
        let (line, rest) = (line.trim().to_owned(), rest.to_owned());
        self.lines = rest;
        Ok(Some(line))
    }

    /// Runs a script. `look` is called again and again with new output and the job's folder, and says whether the
    /// plug is to be pulled.
    pub(crate) fn job(
        &mut self,
        script: &str,
        limit: Duration,
        print: &mut dyn FnMut(Stream, &[u8]),
        look: &mut dyn FnMut(&Path) -> Result<bool>,
    ) -> Result<Ended> {
        self.jobs += 1;
        let (number, folder) = (self.jobs, self.host().join(self.jobs.to_string()));
        std::fs::create_dir(&folder)?;
        for name in ["out", "err"] {
            File::create(folder.join(name))?;
        }
        std::fs::write(folder.join("run"), script)?;
        writeln!(self.control.as_mut().context("the guest does not run")?, "run {number}")?;
        let mut logs =
            [(Stream::Out, "out"), (Stream::Err, "err")].map(|(stream, name)| (stream, folder.join(name), 0));
        let begin = Instant::now();
        let ended = loop {
            let line = self.line()?;
            follow(&mut logs, print)?;
            let code = line.as_deref().and_then(|line| line.strip_prefix(&format!("done {number} ")));
            if let Some(code) = code {
                break Ended::Code(code.parse().with_context(|| format!("'{code}' is no exit code"))?);
            }
            if look(&folder)? {
                self.stop()?;
                break Ended::Down;
            }
            if self.is_down() {
                break Ended::Down;
            }
            if begin.elapsed() > limit {
                bail!("the command did not end within {} s: {}", limit.as_secs(), self.tail("console.log"));
            }
        };
        follow(&mut logs, print)?;
        Ok(ended)
    }

    /// The last lines of a log.
    pub(crate) fn tail(&self, name: &str) -> String {
        let text = std::fs::read(self.folder.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(8)..].join(" | ")
    }
}

/// Prints what was added to logs since the last time.
fn follow(logs: &mut [(Stream, PathBuf, u64); 2], print: &mut dyn FnMut(Stream, &[u8])) -> Result<()> {
    for (stream, path, from) in logs {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(*from))?;
        let mut text = Vec::new();
        *from += file.read_to_end(&mut text)? as u64;
        if !text.is_empty() {
            print(*stream, &text);
        }
    }
    Ok(())
}
