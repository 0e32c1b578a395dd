//! Two guests with a wire between them: what needs two hosts, such as RDMA in software.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::guest::{Ended, Guest, Stream, run_folder};
use super::machine::Hardware;
use super::tools::Tools;

/// Runs a command in both at once; the exit code is the first that is not 0. Lines say which guest printed them.
pub(crate) fn run(tools: &Tools, root: &Path, hardware: &Hardware, command: &[String], limit: Duration) -> Result<i32> {
    let folder = run_folder()?;
    let end = |number: usize| folder.join(format!("wire{number}")).display().to_string();
    let mut guests = Vec::new();
    for number in 0..2 {
        let wire = Some((end(number), end(1 - number)));
        let hardware = Hardware { wire, ..hardware.clone() };
        guests.push(Guest::new(tools, root, hardware, folder.join(number.to_string()))?);
    }
    let ended = std::thread::scope(|scope| {
        let started: Vec<_> = guests
            .iter_mut()
            .enumerate()
            .map(|(number, guest)| scope.spawn(move || run_one(guest, number, command, limit)))
            .collect();
        let joined =
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread panicked"))));
        joined.collect::<Vec<_>>()
    });
    let codes: Vec<i32> = ended.into_iter().collect::<Result<_>>()?;
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

fn run_one(guest: &mut Guest<'_>, number: usize, command: &[String], limit: Duration) -> Result<i32> {
    guest.boot()?;
    let script = super::session::script(command, &[("GUEST".into(), number.to_string())], "");
    let mut rest = Vec::new();
    let mut print = |_: Stream, text: &[u8]| {
        rest.extend_from_slice(text);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let _ = write!(std::io::stdout(), "{number}: {}", String::from_utf8_lossy(&line));
        }
    };
    match guest.job(&script, limit, &mut print, &mut |_| Ok(false))? {
        Ended::Code(code) => Ok(code),
        Ended::Down => Err(anyhow!("guest {number} went down: {}", guest.tail("console.log"))),
    }
}
