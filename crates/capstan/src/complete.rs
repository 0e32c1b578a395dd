//! `capstan completions` and `capstan man`: shell completions and man pages.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::show;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(capstan completions bash)
  capstan completions zsh > \"${fpath[1]}/_capstan\"
  capstan completions fish > ~/.config/fish/completions/capstan.fish")]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  capstan man | man -l -
  capstan man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write one page per command into this directory, instead of one page to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints a completion script.
pub(crate) fn completions(args: &Completions) -> Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "capstan", &mut out);
    show::print(&String::from_utf8_lossy(&out))
}

/// Prints the man page, or writes all of them.
pub(crate) fn man(args: &Man) -> Result<()> {
    let command = crate::Cli::command();
    match &args.dir {
        None => {
            let mut out = Vec::new();
            clap_mangen::Man::new(command).render(&mut out)?;
            show::print(&String::from_utf8_lossy(&out))
        }
        Some(dir) => clap_mangen::generate_to(command, dir)
            .map_err(|error| anyhow!("cannot write pages into {}: {error}", dir.display())),
    }
}
