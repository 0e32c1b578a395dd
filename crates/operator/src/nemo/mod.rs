//! NeMo: the controllers of the five services, which differ in nothing but their plans.

mod admission;
mod customizer;
mod datastore;
mod entitystore;
mod evaluator;
mod guardrail;
mod shared;

use capstan_api::nemo::{NemoCustomizerSpec, NemoEvaluatorSpec, Scheduler, SchedulerType};
use capstan_operands::nemo;
use k8s_openapi::api::rbac::v1::PolicyRule;

pub use capstan_operands::nemo::Settings;

use crate::product::{Launch, Product};

/// What NeMo adds to the operator.
pub static PRODUCT: Product = Product {
    name: "nemo",
    kinds: capstan_api::nemo::KINDS,
    webhooks: admission::WEBHOOKS,
    granted,
    metrics: |_, _| {},
    controllers,
};

/// Customizers and Evaluators start jobs themselves, in any namespace: the roles that let them are made by us.
fn granted() -> (Vec<PolicyRule>, Vec<PolicyRule>) {
    let with = |type_| NemoCustomizerSpec {
        scheduler: Some(Scheduler { type_: Some(type_) }),
        ..NemoCustomizerSpec::default()
    };
    let mut everywhere = nemo::granted(&NemoEvaluatorSpec::default());
    for scheduler in [SchedulerType::Volcano, SchedulerType::Runai] {
        everywhere.extend(nemo::granted(&with(scheduler)));
    }
    (Vec::new(), everywhere)
}

fn controllers(launch: &mut Launch<'_>) {
    let settings = launch.options.nemo.clone();
    launch.controller(customizer::Customizers { settings: settings.clone() });
    launch.controller(datastore::Datastores { settings: settings.clone() });
    launch.controller(entitystore::Entitystores { settings: settings.clone() });
    launch.controller(evaluator::Evaluators { settings: settings.clone() });
    launch.controller(guardrail::Guardrails { settings });
}
