//! The controller of NemoEntitystores.

use capstan_api::nemo::{NemoEntitystore, NemoStatus};
use capstan_operands::nemo::{Settings, entitystore};
use capstan_plan::{Facts, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};

use super::shared;
use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct Entitystores {
    /// Settings of the operator for NeMo services.
    pub(super) settings: Settings,
}

impl Controller for Entitystores {
    type Object = NemoEntitystore;
    type Status = NemoStatus;
    type Context = ();

    const NAME: &'static str = "nemoentitystore";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.NemoEntitystore.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nemo_entitystore_status_total", states: shared::STATES });

    fn select<'a>(&self, object: &NemoEntitystore, view: View<'a>) -> View<'a> {
        shared::select(object, view)
    }

    fn context(&self, _: &NemoEntitystore) {}

    fn plan(&self, object: &NemoEntitystore, facts: &Facts, (): &()) -> Plan<NemoStatus> {
        entitystore::plan(object, facts, &self.settings)
    }

    fn blocked(
        &self,
        object: &NemoEntitystore,
        facts: &Facts,
        (): &(),
        reason: &str,
        message: &str,
    ) -> Plan<NemoStatus> {
        entitystore::blocked(object, facts, &self.settings, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        shared::affected::<capstan_api::nemo::NemoEntitystoreSpec>(cache, change)
    }
}
