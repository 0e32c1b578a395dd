//! Copies the config that the node label selects to the path that programs read, at start and on every change of label
//! or configs.
//!
//! Our own roles watch the file; third-party programs get a signal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{Stream, StreamExt};
use rustix::process::{Pid, Signal, kill_process};

use crate::config::boolean;
use crate::device_plugin::{Fallback, choose, configs};
use crate::files::{self, Changes};
use crate::own_node::{NodeFacts, OwnNode};
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// Configs are re-read at this interval, even without a change event.
const RESYNC_INTERVAL: Duration = Duration::from_secs(3600);

/// Flags of the config manager.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Name of this node
    #[arg(long, env = "NODE_NAME", default_value = "")]
    pub node_name: String,
    /// Label of the node that names its config
    #[arg(long, env = "NODE_LABEL", default_value = capstan_node::labels::DEVICE_PLUGIN_CONFIG)]
    pub node_label: String,
    /// Folder with a config file per name
    #[arg(long, env = "CONFIG_FILE_SRCDIR", default_value = "/available-configs")]
    pub config_file_srcdir: PathBuf,
    /// Destination of the config
    #[arg(long, env = "CONFIG_FILE_DST", default_value = "/config/config.yaml")]
    pub config_file_dst: PathBuf,
    /// Name of the config of a node without the label
    #[arg(long, env = "DEFAULT_CONFIG", default_value = "")]
    pub default_config: String,
    /// Fallbacks for a node without label and default config, in this order: named, single, empty
    #[arg(long, env = "FALLBACK_STRATEGIES", value_delimiter = ',')]
    pub fallback_strategies: Vec<String>,
    /// Copy once, then exit
    #[arg(long, env = "ONESHOT", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub oneshot: Option<bool>,
    /// Signal a program with SIGHUP after a change
    #[arg(long, env = "SEND_SIGNAL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub send_signal: Option<bool>,
    /// The program to signal: its path or file name
    #[arg(long, env = "PROCESS_TO_SIGNAL", default_value = "")]
    pub process_to_signal: String,
}

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry = entry!(
    capstan_node::CONFIG_MANAGER.name,
    "Copy the config that the node label selects to where programs read it",
    Options,
    run
);

/// Copies configs until stopped, or once with `--oneshot`.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    let options = Options {
        config_file_srcdir: cx.path(&options.config_file_srcdir),
        config_file_dst: cx.path(&options.config_file_dst),
        ..options
    };
    let node = OwnNode::connect(&options.node_name, &cx).await?;
    if options.oneshot == Some(true) {
        let facts = node.facts().await?;
        return copy(&options, facts.label(&options.node_label)).map(drop);
    }
    follow(&options, node.watch(), &cx).await
}

async fn follow(options: &Options, facts: impl Stream<Item = Result<NodeFacts>>, cx: &Cx) -> Result<()> {
    let mut facts = std::pin::pin!(facts.fuse());
    let mut label = None;
    let mut known = false;
    loop {
        let mut changes = Changes::of(&[&options.config_file_srcdir]);
        if known {
            match copy(options, label.as_deref()) {
                Ok(true) => signal(options, &cx.root),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "config not applied; keeping the previous one"),
            }
        }
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(()),
            () = changes.next(RESYNC_INTERVAL) => {}
            Some(facts) = facts.next() => match facts {
                Ok(facts) => (label, known) = (facts.label(&options.node_label).map(str::to_owned), true),
                Err(error) => tracing::warn!(%error, "node label not read"),
            },
        }
    }
}

/// Copies the config; returns whether it changed.
fn copy(options: &Options, label: Option<&str>) -> Result<bool> {
    let dir = &options.config_file_srcdir;
    let fallbacks = Fallback::parse(&options.fallback_strategies)?;
    let content = match choose(dir, &configs(dir)?, label, &options.default_config, &fallbacks)? {
        Some(file) => std::fs::read(&file)
            .map_err(|source| Error::Io { what: format!("cannot read the config {}", file.display()), source })?,
        None => Vec::new(),
    };
    if std::fs::read(&options.config_file_dst).is_ok_and(|there| there == content) {
        return Ok(false);
    }
    files::write(&options.config_file_dst, &content)?;
    tracing::info!(label, "config written");
    Ok(true)
}

fn signal(options: &Options, root: &Path) {
    let name = &options.process_to_signal;
    if options.send_signal != Some(true) || name.is_empty() {
        return;
    }
    for pid in processes(root, name) {
        if let Err(error) = kill_process(pid, Signal::HUP) {
            tracing::warn!(%error, process = name, "reload signal not sent");
        }
    }
}

/// PIDs of processes whose executable has this path or file name.
fn processes(root: &Path, program: &str) -> Vec<Pid> {
    let is = |first: &str| first == program || Path::new(first).file_name().is_some_and(|name| name == program);
    let entries = std::fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let running = numbered.filter(|(_, dir)| {
        let words = std::fs::read(dir.join("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).next().and_then(|first| std::str::from_utf8(first).ok()).is_some_and(is)
    });
    running.filter_map(|(number, _)| Pid::from_raw(number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dir: &Path) -> Options {
        let src = dir.join("available");
        std::fs::create_dir(&src).expect("made");
        for (name, text) in [("plain", "version: v1\n"), ("shared", "version: v1 # shared\n")] {
            std::fs::write(src.join(name), text).expect("written");
        }
        Options {
            config_file_srcdir: src,
            config_file_dst: dir.join("config.yaml"),
            fallback_strategies: vec!["empty".into()],
            ..Options::default()
        }
    }

    #[test]
    fn the_label_chooses_then_the_default_then_nothing_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = options(dir.path());
        let now = |options: &Options| std::fs::read_to_string(&options.config_file_dst).expect("a config");
        assert!(copy(&options, None).expect("copied"));
        assert_eq!(now(&options), "");
        assert!(copy(&options, Some("shared")).expect("copied"));
        assert_eq!(now(&options), "version: v1 # shared\n");
        assert!(!copy(&options, Some("shared")).expect("copied"), "it is the same");
        options.default_config = "plain".into();
        copy(&options, None).expect("copied");
        assert_eq!(now(&options), "version: v1\n");
    }

    #[test]
    fn a_label_that_names_no_config_leaves_the_one_of_before() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = options(dir.path());
        copy(&options, Some("plain")).expect("copied");
        let error = copy(&options, Some("palin")).expect_err("no such config").to_string();
        assert!(error.contains("'palin' is no config in"), "{error}");
        assert_eq!(std::fs::read_to_string(&options.config_file_dst).expect("a config"), "version: v1\n");
    }

    #[test]
    fn processes_are_found_by_path_or_name() {
        let dir = tempfile::tempdir().expect("a directory");
        for (pid, words) in [("7", "/usr/bin/mps-control-daemon\0--flag"), ("8", "sh\0-c\0mps-control-daemon")] {
            let process = dir.path().join("proc").join(pid);
            std::fs::create_dir_all(&process).expect("made");
            std::fs::write(process.join("cmdline"), words).expect("written");
        }
        let found = |name: &str| -> Vec<i32> {
            processes(dir.path(), name).iter().map(|pid| pid.as_raw_nonzero().get()).collect()
        };
        assert_eq!([found("mps-control-daemon"), found("/usr/bin/mps-control-daemon")], [[7], [7]]);
        assert!(found("nothing").is_empty());
    }

    #[tokio::test]
    async fn a_changed_label_brings_another_config() {
        let dir = tempfile::tempdir().expect("a directory");
        let options = options(dir.path());
        let key = &options.node_label;
        let named = |name: &str| NodeFacts { labels: [(key.clone(), name.to_owned())].into(), ..NodeFacts::default() };
        let roots = capstan_hw::gpu::nvidia::driver::Roots::local();
        let hardware = std::sync::Arc::new(capstan_hw::gpu::nvidia::Source::nvml(roots.clone()));
        let cx = Cx::new(hardware, roots, dir.path(), tokio_util::sync::CancellationToken::new());
        let (stop, dst) = (cx.stop.clone(), options.config_file_dst.clone());
        let facts = futures::stream::iter([Ok(named("plain")), Ok(named("shared"))]).chain(futures::stream::pending());
        let watched = async {
            let mut changes = Changes::of(&[dir.path()]);
            while std::fs::read_to_string(&dst).unwrap_or_default() != "version: v1 # shared\n" {
                changes.next(RESYNC_INTERVAL).await;
            }
            stop.cancel();
        };
        let (followed, ()) = tokio::join!(follow(&options, facts, &cx), watched);
        followed.expect("told to stop");
    }
}
