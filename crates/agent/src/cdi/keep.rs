//! Keeps a spec true: made again when the driver, its libraries, the device nodes or the MIG layout change, and taken
//! away when the driver goes, so that no container is started with files of a driver that is not there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan_cdi::split_coherent;
use capstan_hw::gpu::nvidia::Inventory;
use capstan_hw::gpu::nvidia::driver::Roots;

use super::cli::GenerateOptions;
use super::files::Driver;
use super::{Settings, generate, remove, write};
use crate::files::Changes;
use crate::{Cx, Error, Result};

/// How the specs of a node are kept.
#[derive(Debug, Clone, clap::Args)]
pub struct KeepOptions {
    /// File of the spec.
    #[arg(long, env = "CDI_OUTPUT", default_value = "/var/run/cdi/nvidia.yaml")]
    pub output: PathBuf,
    /// Longest time between two looks at the hardware, for changes that no file tells.
    #[arg(long, env = "CDI_RESYNC_SECONDS", default_value_t = 60)]
    pub resync_seconds: u64,
    /// What the spec holds.
    #[command(flatten)]
    pub generate: GenerateOptions,
}

/// Changes come in bunches, as when an installer unpacks libraries: so long is waited for the rest.
const QUIET: Duration = Duration::from_millis(300);

/// Keeps the spec true until told to stop. The spec stays then: containers may start while the agent does not run.
pub async fn keep(options: KeepOptions, cx: Cx) -> Result<()> {
    let settings = Settings { root: cx.root.clone(), ..options.generate.settings()? };
    settings.kind()?;
    let longest = Duration::from_secs(options.resync_seconds.max(1));
    let mut before: Option<Inventory> = None;
    loop {
        // Listen before looking: what happens in between is not lost.
        let dirs = watched(&cx.roots, &settings);
        let mut changes = Changes::of_names(&dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        before = refresh(before, &options.output, &settings, &cx).await;
        let change = async {
            changes.next(longest).await;
            tokio::time::sleep(QUIET).await;
        };
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(()),
            () = change => {}
        }
    }
}

/// Looks once, and returns the hardware that the spec is now for.
async fn refresh(before: Option<Inventory>, output: &Path, settings: &Settings, cx: &Cx) -> Option<Inventory> {
    let (source, roots) = (cx.hardware.clone(), cx.roots.clone());
    let (output, settings) = (output.to_owned(), settings.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let made = source.get().map_err(Error::from).and_then(|hardware| {
            let inventory = hardware.inventory()?;
            // Reading a driver's files again is cheap, and tells whether they are there.
            let spec = generate(&inventory, &roots, &settings)?;
            let mut changed = write(&spec, &output)?;
            for part in split_coherent(&spec) {
                changed |= write(&part, &beside(&output, &part.kind))?;
            }
            Ok((inventory, changed))
        });
        match made {
            Ok((inventory, changed)) => {
                if changed {
                    tracing::info!(path = %output.display(), driver = inventory.driver, "CDI spec written");
                }
                Some(inventory)
            }
            Err(error) => failed(&error, before, &output, &source),
        }
    });
    looked.await.unwrap_or_default()
}

/// What is left after a look that failed.
fn failed(
    error: &Error,
    before: Option<Inventory>,
    output: &Path,
    source: &capstan_hw::gpu::nvidia::Source,
) -> Option<Inventory> {
    let gone = match error {
        Error::Hardware(error) => {
            // The next one shall load the library that is there then.
            source.forget();
            matches!(error, capstan_hw::Error::NoLibrary { .. } | capstan_hw::Error::NoDriver(_))
        }
        Error::Check(_) => true,
        _ => false,
    };
    if gone {
        tracing::warn!(%error, path = %output.display(), "driver not found; CDI spec removed");
        if let Err(error) = remove(output) {
            tracing::warn!(%error, "CDI spec of a removed driver not deleted");
        }
        return None;
    }
    // A GPU that does not answer for a moment is no reason to take the others away.
    tracing::warn!(%error, "CDI spec not regenerated; keeping the previous one");
    before
}

/// The file of a further spec, next to the first one.
fn beside(output: &Path, kind: &str) -> PathBuf {
    let class = kind.rsplit('.').next().unwrap_or_default();
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let extension = output.extension().map_or("yaml".into(), |extension| extension.to_string_lossy());
    output.with_file_name(format!("{stem}-{class}.{extension}"))
}

/// Directories in which something appears or goes when the spec has to change.
fn watched(roots: &Roots, settings: &Settings) -> Vec<PathBuf> {
    let dev = roots.dev_here.join("dev");
    let mut dirs = vec![dev.join("nvidia-caps"), dev, roots.here.clone()];
    let driver = Driver::find(roots, settings, "");
    dirs.extend(driver.into_iter().flat_map(|driver| driver.dirs).map(|dir| dir.path));
    if let Some(parent) = roots.here.parent() {
        dirs.push(parent.to_owned());
    }
    dirs
}
