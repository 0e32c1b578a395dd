//! The controller of NIMPipelines.

use capstan_api::nim::{NimPipeline, NimPipelineStatus};
use capstan_operands::nim::nim_pipeline;
use capstan_plan::{Facts, Plan};

use crate::controller::{Controller, Finalizer};
use crate::states::StateMetric;

pub(super) struct NimPipelines;

impl Controller for NimPipelines {
    type Object = NimPipeline;
    type Status = NimPipelineStatus;
    type Context = ();

    const NAME: &'static str = "nimpipeline";
    const FINALIZER: Finalizer = Finalizer::Inherited("finalizer.nimpipeline.apps.nvidia.com");
    const STATE_METRIC: Option<StateMetric> =
        Some(StateMetric { name: "nimPipeline_status_total", states: &["Failed", "NotReady", "Ready"] });

    fn context(&self, _: &NimPipeline) {}

    fn plan(&self, pipeline: &NimPipeline, facts: &Facts, (): &()) -> Plan<NimPipelineStatus> {
        nim_pipeline::plan(pipeline, facts)
    }

    fn blocked(
        &self,
        pipeline: &NimPipeline,
        facts: &Facts,
        (): &(),
        reason: &str,
        message: &str,
    ) -> Plan<NimPipelineStatus> {
        nim_pipeline::blocked(pipeline, facts, reason, message)
    }
}
