//! The controller of NemoGuardrails.

use capstan_api::nemo::{NemoGuardrail, NemoStatus};
use capstan_operands::nemo::{Settings, guardrail};
use capstan_plan::{Facts, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};

use super::shared;
use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct Guardrails {
    /// Settings of the operator for NeMo services.
    pub(super) settings: Settings,
}

impl Controller for Guardrails {
    type Object = NemoGuardrail;
    type Status = NemoStatus;
    type Context = ();

    const NAME: &'static str = "nemoguardrail";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.NemoGuardrail.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nemo_guardrail_status_total", states: shared::STATES });

    fn select<'a>(&self, object: &NemoGuardrail, view: View<'a>) -> View<'a> {
        shared::select(object, view)
    }

    fn context(&self, _: &NemoGuardrail) {}

    fn plan(&self, object: &NemoGuardrail, facts: &Facts, (): &()) -> Plan<NemoStatus> {
        guardrail::plan(object, facts, &self.settings)
    }

    fn blocked(&self, object: &NemoGuardrail, facts: &Facts, (): &(), reason: &str, message: &str) -> Plan<NemoStatus> {
        guardrail::blocked(object, facts, &self.settings, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        shared::affected::<capstan_api::nemo::NemoGuardrailSpec>(cache, change)
    }
}
