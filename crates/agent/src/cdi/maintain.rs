//! Maintains the CDI spec: regenerates it when the driver, its libraries, device nodes or the MIG layout change, and
//! removes it with the driver, so that no container starts with files of a driver that is gone.

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

/// Flags of the role that maintains the CDI spec.
#[derive(Debug, Clone, clap::Args)]
pub struct MaintainOptions {
    /// Path of the spec.
    #[arg(long, env = "CDI_OUTPUT", default_value = "/var/run/cdi/nvidia.yaml")]
    pub output: PathBuf,
    /// Resync interval, for changes without a file event.
    #[arg(long, env = "CDI_RESYNC_SECONDS", default_value_t = 60)]
    pub resync_seconds: u64,
    /// Content of the spec.
    #[command(flatten)]
    pub generate: GenerateOptions,
}

/// Debounce interval: changes come in bursts, as when an installer unpacks libraries.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(300);

/// Maintains the spec until stopped. It is left in place then: containers may start while the agent does not run.
pub async fn maintain(options: MaintainOptions, cx: Cx) -> Result<()> {
    let settings = Settings { root: cx.root.clone(), ..options.generate.settings()? };
    settings.kind()?;
    let resync = Duration::from_secs(options.resync_seconds.max(1));
    let mut before: Option<Inventory> = None;
    loop {
        // Watch before reading, so that no change in between is missed.
        let dirs = watched(&cx.roots, &settings);
        let mut changes = Changes::of_names(&dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        before = refresh(before, &options.output, &settings, &cx).await;
        let change = async {
            changes.next(resync).await;
            tokio::time::sleep(DEBOUNCE_INTERVAL).await;
        };
        tokio::select! {
            () = cx.stop.cancelled() => return Ok(()),
            () = change => {}
        }
    }
}

/// Regenerates the spec if needed; returns the inventory it is for.
async fn refresh(before: Option<Inventory>, output: &Path, settings: &Settings, cx: &Cx) -> Option<Inventory> {
    let (source, roots) = (cx.hardware.clone(), cx.roots.clone());
    let (output, settings) = (output.to_owned(), settings.clone());
    let result = tokio::task::spawn_blocking(move || {
        let made = source.get().map_err(Error::from).and_then(|hardware| {
            let inventory = hardware.inventory()?;
            // Always regenerate: reading the driver's files is cheap and shows whether they still exist.
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
    result.await.unwrap_or_default()
}

/// Handles a failed refresh.
fn failed(
    error: &Error,
    before: Option<Inventory>,
    output: &Path,
    source: &capstan_hw::gpu::nvidia::Source,
) -> Option<Inventory> {
    let gone = match error {
        Error::Hardware(error) => {
            // Reload the driver library on the next attempt.
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
    // A transient error of one GPU is no reason to remove the others.
    tracing::warn!(%error, "CDI spec not regenerated; keeping the previous one");
    before
}

/// Path of an additional spec, next to the main one.
fn beside(output: &Path, kind: &str) -> PathBuf {
    let class = kind.rsplit('.').next().unwrap_or_default();
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let extension = output.extension().map_or("yaml".into(), |extension| extension.to_string_lossy());
    output.with_file_name(format!("{stem}-{class}.{extension}"))
}

/// Directories to watch for changes that affect the spec.
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
