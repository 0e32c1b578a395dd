//! The controller of NemoCustomizers.

use capstan_api::nemo::{NemoCustomizer, NemoStatus};
use capstan_operands::nemo::{Settings, customizer};
use capstan_plan::{Facts, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};

use super::shared;
use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct Customizers {
    /// Settings of the operator for NeMo services.
    pub(super) settings: Settings,
}

impl Controller for Customizers {
    type Object = NemoCustomizer;
    type Status = NemoStatus;
    type Context = ();

    const NAME: &'static str = "nemocustomizer";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nemocustomizer.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nemo_customizer_status_total", states: shared::STATES });

    fn select<'a>(&self, object: &NemoCustomizer, view: View<'a>) -> View<'a> {
        shared::select(object, view)
    }

    fn context(&self, _: &NemoCustomizer) {}

    fn plan(&self, object: &NemoCustomizer, facts: &Facts, (): &()) -> Plan<NemoStatus> {
        customizer::plan(object, facts, &self.settings)
    }

    fn blocked(
        &self,
        object: &NemoCustomizer,
        facts: &Facts,
        (): &(),
        reason: &str,
        message: &str,
    ) -> Plan<NemoStatus> {
        customizer::blocked(object, facts, &self.settings, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        shared::affected::<capstan_api::nemo::NemoCustomizerSpec>(cache, change)
    }
}
