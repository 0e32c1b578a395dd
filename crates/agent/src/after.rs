//! Commands tied to files that other pods write: `after` waits for files, then execs another command; `hold` removes
//! files on shutdown. They replace the shell scripts of other images.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::files::{self, Changes};
use crate::roles::{Entry, entry};
use crate::{Cx, Error, Result};

/// Longest wait between two checks, for directories that do not exist yet.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The `after` command in the agent's list.
pub(crate) const AFTER: Entry =
    entry!("after", "Wait for files, then exec another command of this program", Options, run);

/// The `hold` command in the agent's list.
pub(crate) const HOLD: Entry =
    entry!("hold", "Hold validation files until stopped, then remove them", HoldOptions, hold);

/// Flags of `after`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// File to wait for
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File to wait for, with variables for the command, one NAME=value per line
    #[arg(long, value_name = "FILE")]
    pub variables: Option<PathBuf>,
    /// Variables to set to true if a kernel module is loaded, unless already set: gdrdrv:GDRCOPY_ENABLED
    #[arg(long = "when-loaded", value_name = "MODULE:NAME,…")]
    pub when_loaded: Vec<String>,
    /// Command to exec then, such as: agent device-plugin
    #[arg(last = true, value_name = "WORDS")]
    pub words: Vec<String>,
}

/// Waits until every file exists, then execs the command, if any.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    wait(&options, &cx).await?;
    if options.words.is_empty() {
        return Ok(());
    }
    let variables = variables(&options, &cx)?;
    let error = Command::new("/proc/self/exe").arg0("capstan").args(&options.words).envs(variables).exec();
    Err(Error::Io { what: format!("cannot run {}", options.words.join(" ")), source: error })
}

/// Waits until every file exists.
pub async fn wait(options: &Options, cx: &Cx) -> Result<()> {
    let wanted: Vec<(&PathBuf, PathBuf)> =
        options.files.iter().chain(&options.variables).map(|file| (file, cx.path(file))).collect();
    let dirs: Vec<&Path> = wanted.iter().filter_map(|(_, file)| file.parent()).collect();
    loop {
        // Watch before checking, so that no change in between is missed.
        let mut changes = Changes::of(&dirs);
        let Some((missing, _)) = wanted.iter().find(|(_, file)| !file.exists()) else { return Ok(()) };
        tracing::info!(file = %missing.display(), "waiting");
        tokio::select! {
            () = cx.stop.cancelled() => return Err(Error::Check("stopped before every file existed".into())),
            () = changes.next(POLL_INTERVAL) => {}
        }
    }
}

/// Variables that the command gets in addition to its own environment.
pub fn variables(options: &Options, cx: &Cx) -> Result<BTreeMap<String, String>> {
    let known = |name: &str| cx.variable(name).is_some_and(|value| !value.is_empty());
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|source| Error::Io { what: format!("cannot read {}", path.display()), source })
    };
    let mut variables = match &options.variables {
        Some(file) => lines(&read(&cx.path(file))?),
        None => BTreeMap::new(),
    };
    if options.when_loaded.is_empty() {
        return Ok(variables);
    }
    let modules = read(&cx.root.join("proc/modules"))?;
    for rule in &options.when_loaded {
        let Some((module, names)) = rule.split_once(':') else {
            let why = "write MODULE:NAME, such as gdrdrv:GDRCOPY_ENABLED";
            return Err(Error::Config(format!("--when-loaded '{rule}' names no variable: {why}")));
        };
        if modules.lines().any(|line| line.split_whitespace().next() == Some(module)) {
            for name in names.split(',').filter(|name| !known(name)) {
                variables.entry(name.to_owned()).or_insert_with(|| "true".into());
            }
        }
    }
    Ok(variables)
}

/// Parses `NAME=value` lines as a shell would, without expansion.
fn lines(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
    let named = pairs.filter(|(name, _)| !name.is_empty() && !name.starts_with('#'));
    named.map(|(name, value)| (name.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned())).collect()
}

/// Flags of `hold`.
#[derive(Debug, Clone, clap::Args)]
pub struct HoldOptions {
    /// Directory of the files
    #[arg(long, default_value = capstan_node::validation::DIR, value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Suffix of the files to remove
    #[arg(long, default_value = capstan_node::validation::READY_SUFFIX, value_name = "TEXT")]
    pub suffix: String,
}

/// Waits for the stop token, then removes the files: their statement no longer holds.
pub async fn hold(options: HoldOptions, cx: Cx) -> Result<()> {
    tracing::info!("every check has passed");
    cx.stop.cancelled().await;
    let folder = cx.path(&options.folder);
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // Dot files belong to the driver pod.
    let ours = names.filter(|name| !name.starts_with('.') && name.ends_with(&options.suffix));
    let mut first = Ok(());
    for name in ours {
        // Try to remove every file; report the first error.
        first = first.and(files::remove(&folder.join(name)));
    }
    first
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_hw::gpu::nvidia::Source;
    use capstan_hw::gpu::nvidia::driver::Roots;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Variables;

    fn cx(root: &Path) -> Cx {
        let hardware = Arc::new(Source::nvml(Roots::local()));
        Cx::new(hardware, Roots::local(), root, CancellationToken::new())
    }

    #[tokio::test]
    async fn it_goes_on_when_the_last_file_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = ["a-ready", "b-ready"].map(|name| dir.path().join(name));
        let options = Options { files: files.to_vec(), ..Options::default() };
        let waiting = tokio::spawn(run(options, cx(dir.path())));
        files::write(&files[0], b"").expect("written");
        assert!(!waiting.is_finished());
        files::write(&files[1], b"").expect("written");
        waiting.await.expect("it ends").expect("all are there");
    }

    #[tokio::test]
    async fn it_can_be_told_to_stop_waiting() {
        let dir = tempfile::tempdir().expect("a directory");
        let cx = cx(dir.path());
        cx.stop.cancel();
        let options = Options { files: vec![dir.path().join("never")], ..Options::default() };
        assert!(run(options, cx).await.is_err());
    }

    #[test]
    fn variables_come_from_the_file_and_from_loaded_modules() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("proc")).expect("made");
        std::fs::write(dir.path().join("proc/modules"), "gdrdrv 1 0\nnvidia_fs_x 1 0\n").expect("written");
        let file = dir.path().join("driver-ready");
        std::fs::write(&file, "# said by the validator\nIS_HOST_DRIVER=true\nROOT=\"/a b\"\n").expect("written");
        let rules = ["gdrdrv:GDRCOPY_ENABLED,SET", "nvidia_fs:GDS_ENABLED"].map(str::to_owned).to_vec();
        let options = Options { variables: Some(file), when_loaded: rules, ..Options::default() };
        let set = [("SET".to_owned(), "x".to_owned()), ("UNSET".to_owned(), String::new())];
        let cx = Cx { variables: Variables::Given(set.into()), ..cx(dir.path()) };
        let variables = variables(&options, &cx).expect("read");
        let list: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(list, ["GDRCOPY_ENABLED=true", "IS_HOST_DRIVER=true", "ROOT=/a b"]);
    }

    #[tokio::test]
    async fn what_was_proved_goes_with_the_holder_and_what_drivers_say_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["driver-ready", "cuda-ready", ".driver-ctr-ready", "workload-type"] {
            files::write(&dir.path().join(name), b"").expect("written");
        }
        let cx = cx(dir.path());
        cx.stop.cancel();
        hold(HoldOptions { folder: dir.path().into(), suffix: "-ready".into() }, cx).await.expect("held");
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .expect("listed")
            .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
            .collect();
        left.sort();
        assert_eq!(left, [".driver-ctr-ready", "workload-type"]);
    }
}
