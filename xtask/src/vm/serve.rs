//! A guest for tests: a line of JSON in, a line of JSON out. It ends with its input, so also when whoever asks is killed.
//!
//! The first line says `{"ready":true}` or, where no guest can run, `{"not_run":"reason"}`. Then each
//! `{"command":[…],"limit":60}` is answered with `{"code":0,"output":"…"}`, or `{"error":"…"}`.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::machine::Hardware;
use super::session::Session;
use super::tools::Tools;
use super::{may_run, namespace, node};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    hardware: Hardware,
    /// A program that the guest has as /usr/lib/capstan/story
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// With a kubelet that has joined a control plane on this machine
    #[arg(long)]
    kubelet: bool,
    /// With an empty disk
    #[arg(long)]
    disk: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if let Err(reason) = possible(root, args) {
        return say(&json!({ "not_run": format!("{reason:#}") }));
    }
    namespace::enter()?;
    let requests = requests();
    let tools = Tools::find(root)?;
    let hardware = Hardware { disk: args.disk, network: args.kubelet, ..args.hardware.clone() };
    let mut session = Session::prepare(&tools, root, &hardware)?;
    if let Some(program) = &args.program {
        session.guest.add_program(program, "story")?;
    }
    if args.kubelet {
        node::join(&mut session, &node::Programs::find(root)?)?;
    } else {
        session.guest.boot()?;
    }
    say(&json!({ "ready": true }))?;
    let mut failed = false;
    for request in requests {
        // A command that failed may have left anything behind. A node keeps its guest: joining takes too long.
        if failed && !args.kubelet {
            session.guest.boot()?;
        }
        let answer = run_one(&mut session, &request)?;
        failed = answer["code"] != 0;
        say(&answer)?;
    }
    Ok(())
}

/// Fails with the reason why there can be no guest. It must be quick: all stories of a machine without tools ask.
fn possible(root: &Path, args: &Args) -> Result<()> {
    may_run()?;
    Tools::find(root)?;
    if args.kubelet { node::Programs::present(root) } else { Ok(()) }
}

/// What is asked, until nobody is there to ask: then everything ends at once, whatever is being done.
fn requests() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0)
    });
    receiver
}

fn run_one(session: &mut Session<'_>, request: &str) -> Result<Value> {
    let request: Value = serde_json::from_str(request).context("this is no JSON")?;
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let limit = Duration::from_secs(request["limit"].as_u64().unwrap_or(120));
    let mut output = Vec::new();
    let code = session.run(&words(&request["command"]), &[], limit, &mut |_, text| output.extend_from_slice(text));
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(match code {
        Ok(code) => json!({ "code": code, "output": output }),
        Err(error) => json!({ "error": format!("{error:#}"), "output": output }),
    })
}

fn say(answer: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}
