//! The controller of NemoDatastores.

use capstan_api::nemo::{NemoDatastore, NemoStatus};
use capstan_operands::nemo::{Settings, datastore};
use capstan_plan::{Facts, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};

use super::shared;
use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct Datastores {
    /// Settings of the operator for NeMo services.
    pub(super) settings: Settings,
}

impl Controller for Datastores {
    type Object = NemoDatastore;
    type Status = NemoStatus;
    type Context = ();

    const NAME: &'static str = "nemodatastore";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nemodatastore.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nemo_datastore_status_total", states: shared::STATES });

    fn select<'a>(&self, object: &NemoDatastore, view: View<'a>) -> View<'a> {
        shared::select(object, view)
    }

    fn context(&self, _: &NemoDatastore) {}

    fn plan(&self, object: &NemoDatastore, facts: &Facts, (): &()) -> Plan<NemoStatus> {
        datastore::plan(object, facts, &self.settings)
    }

    fn blocked(&self, object: &NemoDatastore, facts: &Facts, (): &(), reason: &str, message: &str) -> Plan<NemoStatus> {
        datastore::blocked(object, facts, &self.settings, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        shared::affected::<capstan_api::nemo::NemoDatastoreSpec>(cache, change)
    }
}
