//! `cargo xtask vm`: a stock Debian kernel in a virtual machine, with emulated NICs, fake GPUs and a node's programs.
//!
//! Everything of a run lives in namespaces of its own ([`namespace`]): however it ends, no process, mount or file is
//! left. Start reading at `guest.rs`; `tools/` makes what a guest needs, `serve.rs` is how stories talk to one.

mod accelerator;
mod guest;
mod machine;
mod namespace;
mod node;
mod pair;
mod serve;
mod session;
mod tools;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;

use machine::Hardware;
use session::Session;
use tools::Tools;

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Fetch and build what guests need into the cache
    Tools,
    /// Run a command in a fresh guest: its output, its exit code, and nothing left behind
    Run(RunArgs),
    /// A shell in a fresh guest
    Shell(ShellArgs),
    /// Fail with the reason where no guest can run
    #[command(hide = true)]
    Possible,
    /// A guest for tests, driven by lines of JSON
    #[command(hide = true)]
    Serve(serve::Args),
}

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    hardware: Hardware,
    /// Two guests with a wire between them; the command runs in both, with GUEST set to 0 and 1
    #[arg(long)]
    pair: bool,
    /// How long the command may take, in seconds
    #[arg(long, default_value_t = 900, value_name = "SECONDS")]
    limit: u64,
    /// The command; the checkout is the working directory, read only
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    hardware: Hardware,
    /// With a kubelet that has joined a control plane on this machine; `kubectl` in the guest reaches it
    #[arg(long)]
    kubelet: bool,
}

pub(crate) fn run(root: &Path, action: &Action) -> Result<()> {
    if let Action::Serve(args) = action {
        return serve::run(root, args);
    }
    may_run()?;
    match action {
        Action::Tools => return tools::make(root),
        Action::Possible => return Tools::find(root).map(drop),
        _ => namespace::enter()?,
    }
    let tools = Tools::find(root)?;
    match action {
        Action::Run(args) if args.pair => {
            std::process::exit(pair::run(&tools, root, &args.hardware, &args.command, limit(args))?)
        }
        Action::Run(args) => {
            let mut session = Session::open(&tools, root, &args.hardware)?;
            std::process::exit(session.run_printing(&args.command, limit(args))?)
        }
        Action::Shell(args) => {
            let hardware = Hardware { console: true, network: args.kubelet, ..args.hardware.clone() };
            let mut session = Session::prepare(&tools, root, &hardware)?;
            if args.kubelet {
                node::join(&mut session, &node::Programs::find(root)?)?;
            } else {
                session.guest.boot()?;
            }
            std::process::exit(session.shell()?)
        }
        Action::Tools | Action::Possible | Action::Serve(_) => Ok(()),
    }
}

fn limit(args: &RunArgs) -> Duration {
    Duration::from_secs(args.limit)
}

/// Fails where no guest can run, with the reason.
fn may_run() -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        anyhow::bail!("the guest is an x86_64 machine, and this one is not: emulating it would take too long");
    }
    namespace::available()
}
