//! The GPU device plugin: advertises GPUs to the kubelet and allocates them to containers.
//!
//! `devices` builds the resources, `allocate` the Allocate response, `prefer` the preferred allocation, `health` judges
//! devices: pure functions. `Node` is the shared state, replaced as a whole; each resource has a plugin that serves
//! from it (`plugin`). `reconciler` is the main loop, triggered by the kubelet, the config, the node label, the
//! hardware and its events. Start reading there.

mod allocate;
mod cdi;
mod choose;
mod devices;
mod health;

mod node;
mod options;
mod platform;
mod plugin;
mod prefer;
mod probe;
mod reconciler;
mod settings;
mod specs;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;

pub use allocate::CDI_VENDOR;
pub use cdi::{CdiSpecs, SpecRequest};
pub(crate) use choose::{Fallback, choose, configs};
pub(crate) use devices::{Device, KernelFiles, Resource, ResourceSet, build_resources};
pub(crate) use node::Node;
pub use options::Options;
pub(crate) use options::word;
pub(crate) use platform::Platform;
pub use settings::Settings;

use crate::own_node::OwnNode;
use crate::roles::{Entry, entry};
use crate::{Cx, Result};

/// This role's entry in the agent's list.
pub(crate) const ROLE: Entry = entry!(
    capstan_node::DEVICE_PLUGIN.name,
    "Advertise GPUs to the kubelet and allocate them to containers",
    Options,
    run
);

/// Runs the device plugin until stopped.
pub async fn run(options: Options, cx: Cx) -> Result<()> {
    let options = options.within(&cx);
    let specs = specs::Generator::new(&options, &cx.root)?;
    let label = match &options.config_file_srcdir {
        None => watch::channel(Label::Known(None)).1,
        Some(_) => label(&OwnNode::connect(&options.node_name, &cx).await?, options.node_label.clone(), &cx),
    };
    let edges = Edges {
        label,
        cdi: Arc::new(specs),
        timing: Timing::healthy_after(Duration::from_secs(options.healthy_after_seconds)),
    };
    reconciler::run(options, cx, edges).await
}

/// The node label that selects the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// Not read yet.
    Unknown,
    /// Its value, if set.
    Known(Option<String>),
}

/// External dependencies besides files and hardware.
pub(crate) struct Edges {
    label: watch::Receiver<Label>,
    cdi: Arc<dyn CdiSpecs>,
    timing: Timing,
}

/// Intervals and delays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Maximum backoff.
    max_backoff: Duration,
    /// Interval between two probes, for changes without an event.
    recheck: Duration,
    /// How long a device must be without events to be healthy again.
    recovery_delay: Duration,
}

impl Timing {
    /// Timing with this recovery delay, which also bounds the probe interval.
    fn healthy_after(recovery_delay: Duration) -> Self {
        let interval = Duration::from_secs(30);
        Self { max_backoff: interval, recheck: interval.min(recovery_delay), recovery_delay }
    }
}

/// Watches a label of the node.
fn label(node: &OwnNode, key: String, cx: &Cx) -> watch::Receiver<Label> {
    let (sender, label) = watch::channel(Label::Unknown);
    let (mut facts, stop) = (Box::pin(node.watch()), cx.stop.clone());
    tokio::spawn(async move {
        loop {
            let facts = tokio::select! {
                () = stop.cancelled() => return,
                facts = facts.next() => facts,
            };
            match facts {
                None => return,
                Some(Err(error)) => tracing::warn!(%error, "node label not read"),
                Some(Ok(facts)) => {
                    let value = Label::Known(facts.label(&key).map(str::to_owned));
                    sender.send_if_modified(|known| {
                        *known != value && {
                            *known = value.clone();
                            true
                        }
                    });
                }
            }
        }
    });
    label
}

#[cfg(test)]
mod tests;
