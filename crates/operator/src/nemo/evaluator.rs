//! The controller of NemoEvaluators.

use capstan_api::nemo::{NemoEvaluator, NemoStatus};
use capstan_operands::nemo::{Settings, evaluator};
use capstan_plan::{Facts, Plan};
use capstan_runtime::cache::View;
use capstan_runtime::{Cache, Change, Requeue};

use super::shared;
use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct Evaluators {
    /// Settings of the operator for NeMo services.
    pub(super) settings: Settings,
}

impl Controller for Evaluators {
    type Object = NemoEvaluator;
    type Status = NemoStatus;
    type Context = ();

    const NAME: &'static str = "nemoevaluator";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nemoevaluator.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nemo_evaluator_status_total", states: shared::STATES });

    fn select<'a>(&self, object: &NemoEvaluator, view: View<'a>) -> View<'a> {
        shared::select(object, view)
    }

    fn context(&self, _: &NemoEvaluator) {}

    fn plan(&self, object: &NemoEvaluator, facts: &Facts, (): &()) -> Plan<NemoStatus> {
        evaluator::plan(object, facts, &self.settings)
    }

    fn blocked(&self, object: &NemoEvaluator, facts: &Facts, (): &(), reason: &str, message: &str) -> Plan<NemoStatus> {
        evaluator::blocked(object, facts, &self.settings, reason, message)
    }

    fn affected(&self, cache: &Cache, change: &Change<'_>) -> Vec<Requeue> {
        shared::affected::<capstan_api::nemo::NemoEvaluatorSpec>(cache, change)
    }
}
