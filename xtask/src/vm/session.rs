//! Commands in a guest that boots as often as they want: what a command asks of this machine is done here.
//!
//! A command asks by a file `request` in its job's folder, written whole: to go down and go on after the next boot, with
//! the rest of it flushed (`reboot`) or lost (`power_loss`), or for `kubectl` on this machine, which is much faster.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::guest::{Ended, Guest, Stream, run_folder};
use super::machine::Hardware;
use super::tools::Tools;

/// How many times a command may go down: one that does at every stage would never end.
const BOOTS: usize = 10;

/// A guest, and what it may ask for.
pub(crate) struct Session<'a> {
    pub(crate) guest: Guest<'a>,
    /// The folder of the run, in memory.
    pub(crate) folder: PathBuf,
    /// `kubectl` and the administrator's kubeconfig, where there is a cluster.
    pub(crate) kubectl: Option<(PathBuf, PathBuf)>,
}

impl<'a> Session<'a> {
    /// Prepares a guest, which does not run yet.
    pub(crate) fn prepare(tools: &'a Tools, root: &Path, hardware: &Hardware) -> Result<Self> {
        let folder = run_folder()?;
        let guest = Guest::new(tools, root, hardware.clone(), folder.join("guest"))?;
        Ok(Self { guest, folder, kubectl: None })
    }

    /// Starts a guest.
    pub(crate) fn open(tools: &'a Tools, root: &Path, hardware: &Hardware) -> Result<Self> {
        let mut session = Self::prepare(tools, root, hardware)?;
        session.guest.boot()?;
        Ok(session)
    }

    /// Runs a command to its end, over as many boots as it asks for.
    pub(crate) fn run(
        &mut self,
        command: &[String],
        variables: &[(String, String)],
        limit: Duration,
        print: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<i32> {
        let mut stage = String::new();
        for _ in 0..BOOTS {
            let (mut next, kubectl) = (None, self.kubectl.clone());
            let mut look = |job: &Path| match take_request(job)? {
                Some(request) => answer(&request, job, kubectl.as_ref(), &mut next),
                None => Ok(false),
            };
            let script = script(command, variables, &stage);
            let ended = self.guest.job(&script, limit, print, &mut look)?;
            match (ended, next) {
                (Ended::Code(code), None) => return Ok(code),
                (Ended::Down, Some(next)) => stage = next,
                (Ended::Down, None) => bail!("the guest went down: {}", self.guest.tail("console.log")),
                (Ended::Code(code), Some(next)) => {
                    bail!("the command ended with {code} instead of going down before '{next}'")
                }
            }
            self.guest.boot()?;
        }
        bail!("the command went down {BOOTS} times: its stages do not end")
    }

    /// Runs a command with its output on ours.
    pub(crate) fn run_printing(&mut self, command: &[String], limit: Duration) -> Result<i32> {
        let mut print = |stream: Stream, text: &[u8]| {
            let _ = match stream {
                Stream::Out => std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush()),
                Stream::Err => std::io::stderr().write_all(text),
            };
        };
        self.run(command, &[], limit, &mut print)
    }

    /// A shell on this terminal, which QEMU owns meanwhile.
    pub(crate) fn shell(&mut self) -> Result<i32> {
        let before = terminal(&["-g"]);
        // The terminal has to be the standard input before it can be the controlling one.
        let line = "exec setsid --wait --ctty bash -i <>/dev/ttyS1 >&0 2>&1";
        let command = ["sh", "-c", line];
        let ended = self.run_printing(&command.map(str::to_owned), Duration::from_secs(24 * 3600));
        self.guest.stop()?;
        if let Some(before) = before {
            terminal(&[before.trim()]);
        }
        ended
    }
}

/// Asks or sets the terminal's modes, if there is one.
fn terminal(args: &[&str]) -> Option<String> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    let output = Command::new("stty").args(args).stdin(Stdio::inherit()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a job asks for, once.
fn take_request(job: &Path) -> Result<Option<Value>> {
    let path = job.join("request");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    std::fs::remove_file(&path)?;
    Ok(Some(serde_json::from_str(&text).with_context(|| format!("the guest asks for '{text}'"))?))
}

/// Does what was asked for; whether the plug is to be pulled.
fn answer(
    request: &Value,
    job: &Path,
    kubectl: Option<&(PathBuf, PathBuf)>,
    next: &mut Option<String>,
) -> Result<bool> {
    if let Some(stage) = request["power_loss"].as_str() {
        *next = Some(stage.to_owned());
        return Ok(true);
    }
    if let Some(stage) = request["reboot"].as_str() {
        *next = Some(stage.to_owned());
        return Ok(false);
    }
    let words: Vec<&str> = request["kubectl"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (program, config) = kubectl.context("the guest asks for kubectl, and there is no cluster")?;
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(config)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run kubectl")?;
    let mut input = child.stdin.take().context("kubectl has no input")?;
    input.write_all(request["input"].as_str().unwrap_or_default().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer = json!({
        "code": output.status.code().unwrap_or(1), "out": text(&output.stdout), "err": text(&output.stderr),
    });
    let part = job.join("answer.part");
    std::fs::write(&part, answer.to_string())?;
    std::fs::rename(part, job.join("answer"))?;
    Ok(false)
}

/// A script that becomes the command, in the checkout.
pub(super) fn script(command: &[String], variables: &[(String, String)], stage: &str) -> String {
    let mut text = format!("cd /src\nexport CAPSTAN_GUEST=1 CAPSTAN_STAGE={} CAPSTAN_JOB=${{0%/run}}\n", quoted(stage));
    for (name, value) in variables {
        text += &format!("export {name}={}\n", quoted(value));
    }
    let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    text + &format!("exec {}\n", words.join(" "))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_as_they_are() {
        let words = ["printf", "%s|", "it's", "a b", "$HOME", "", "\\"].map(str::to_owned);
        let script = script(&words, &[("NAME".into(), "x 'y'".into())], "");
        let shell = script.replace("cd /src", "cd /").replace("exec ", "printf '%s;' \"$NAME\"; exec ");
        let output = Command::new("sh").args(["-c", &shell]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x 'y';it's|a b|$HOME||\\|");
    }

    #[test]
    fn a_request_is_taken_once_and_tells_where_to_go_on() {
        let job = std::env::temp_dir().join(format!("capstan-request-{}", std::process::id()));
        std::fs::create_dir_all(&job).expect("a folder");
        std::fs::write(job.join("request"), r#"{"power_loss":"after"}"#).expect("written");
        let request = take_request(&job).expect("read").expect("one");
        let mut next = None;
        assert!(answer(&request, &job, None, &mut next).expect("answered"), "the plug is pulled");
        assert_eq!(next.as_deref(), Some("after"));
        assert!(take_request(&job).expect("read").is_none());
        std::fs::remove_dir_all(&job).expect("removed");
    }
}
