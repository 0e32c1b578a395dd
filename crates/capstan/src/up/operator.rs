//! Operator of the cluster: in this process, or an external one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use capstan_trial::manifests::{self, Manifest};
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::faults::Faults;

use super::progress::View;

/// Poll interval for the CRDs of an external operator.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Our operator, until it is stopped; nothing for an external one.
#[derive(Default)]
pub(super) struct Operator {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), capstan_operator::Error>>>,
}

impl Operator {
    /// Starts the operator, and waits until it is the leader.
    pub(super) async fn start(client: &Client, faults: &Faults, view: View) -> Result<Self> {
        let stage = view.stage("operator");
        faults.before(client).await?;
        let stop = CancellationToken::new();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let mut options = capstan_operator::Options::in_process();
        options.apply_crds = faults.skips_crds();
        // Virtual nodes pull nothing; the name is that of the release image.
        options.gpu.agent.image = crate::own_image();
        let task = tokio::spawn(capstan_operator::run(client.clone(), options, stop.clone(), ready));
        if is_ready.await.is_err() {
            match task.await.context("the operator panicked")? {
                Ok(()) => bail!("the operator ended before it was ready"),
                Err(error) => bail!("the operator did not start: {error}"),
            }
        }
        stage.done("CRDs installed, caches filled, leading");
        Ok(Self { stop, task: Some(task) })
    }

    /// Waits until an external operator has installed the CRDs of the manifests.
    pub(super) async fn wait_for_external(
        client: &Client,
        wanted: &[Manifest],
        kubeconfig: &Path,
        view: View,
    ) -> Result<Self> {
        let mut stage = view.stage("operator");
        for manifest in wanted {
            // Discovery lists a kind shortly before it is served, so request it.
            while !manifests::is_served(client, manifest).await {
                stage.waiting(&format!(
                    "nobody has brought the kind {} of {} yet: start an operator, such as \
                     `KUBECONFIG={} CAPSTAN_IMAGE={} capstan operator`",
                    manifest.kind.kind,
                    manifest.kind.group,
                    kubeconfig.display(),
                    crate::own_image()
                ));
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        stage.done("another one has installed its CRDs");
        Ok(Self::default())
    }

    /// Stops our operator.
    pub(super) async fn end(self) -> Result<()> {
        self.stop.cancel();
        let Some(task) = self.task else { return Ok(()) };
        let ended = task.await.context("the operator panicked")?;
        ended.map_err(|error| anyhow!("the operator ended badly: {error}"))
    }
}
