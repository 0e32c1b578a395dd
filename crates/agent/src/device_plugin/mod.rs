//! Tells the kubelet about GPUs and hands them to containers.
//!
//! `devices` decides what is offered, `allocate` what a container gets, `prefer` which devices go together, `health`
//! who is fit: plain functions. `Node` holds what they decided, replaced as a whole; a plugin per resource answers
//! from it (`plugin`). `life` waits for whatever can change it: the kubelet, the config, the node's label, the
//! hardware and its faults. Start reading there.

mod allocate;
mod cdi;
mod choose;
mod devices;
mod health;
mod life;
mod node;
mod options;
mod platform;
mod plugin;
mod prefer;
mod probe;
mod settings;
mod specs;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;

pub use allocate::CDI_VENDOR;
pub use cdi::{CdiSpecs, Wanted};
pub(crate) use choose::{Fallback, choose, configs};
pub(crate) use devices::{Device, Kernel, Offer, Resource, offer};
pub(crate) use node::Node;
pub use options::Options;
pub(crate) use options::word;
pub(crate) use platform::Platform;
pub use settings::Settings;

use crate::own_node::OwnNode;
use crate::roles::{Entry, entry};
use crate::{Cx, Result};

/// This role in the agent's list.
pub(crate) const ROLE: Entry =
    entry!(capstan_node::DEVICE_PLUGIN.name, "Offer GPUs to the kubelet and hand them to containers", Options, run);

/// Offers the GPUs of this node until told to stop.
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
    life::run(options, cx, edges).await
}

/// What the node's label says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// No one said yet.
    Unknown,
    /// Its value, if it has one.
    Known(Option<String>),
}

/// What the plugin reaches beyond the node's files and hardware.
pub(crate) struct Edges {
    label: watch::Receiver<Label>,
    cdi: Arc<dyn CdiSpecs>,
    timing: Timing,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Longest pause before something that failed is tried again.
    retry: Duration,
    /// Time between two looks at the hardware, for what no event tells.
    recheck: Duration,
    /// How long a device must be without a fault to be well again.
    quiet: Duration,
}

impl Timing {
    /// A device is well again after `quiet`; a look is never farther off than that.
    fn healthy_after(quiet: Duration) -> Self {
        let half_a_minute = Duration::from_secs(30);
        Self { retry: half_a_minute, recheck: half_a_minute.min(quiet), quiet }
    }
}

/// Follows a label of the node.
fn label(node: &OwnNode, key: String, cx: &Cx) -> watch::Receiver<Label> {
    let (said, label) = watch::channel(Label::Unknown);
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
                    said.send_if_modified(|known| {
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
