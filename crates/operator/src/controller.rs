//! The controller trait of custom resources, and the one reconcile function that all of them share.
//!
//! A reconcile sends no request before it has decided: it reads the caches, plans, and executes the plan. That is why
//! everything in [`Controller`] is a plain function. Facts from elsewhere are external queries of the plan, which run
//! after the reconcile; their results are facts of the next one.

use std::sync::Arc;

use capstan_plan::{Facts, Plan, Ref};
use capstan_runtime::cache::View;
use capstan_runtime::query::QueryRunner;
use capstan_runtime::queue::Queue;
use capstan_runtime::{Action, Cache, Change, Error, Key, Requeue, Runtime};
use jiff::Timestamp;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::orchestrator::Nodes;
use crate::schemas::Schemas;
use crate::settle::settle;
use crate::states::StateMetric;

/// The controller of a custom resource: what its plans read, what they decide, and which changes affect it.
pub(crate) trait Controller: Send + Sync + 'static {
    /// The custom resource.
    type Object: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync;
    /// Its status.
    type Status: Serialize + Send + Sync;
    /// Input of a plan besides the facts.
    type Context: Send + Sync;

    /// Name in logs and metrics.
    const NAME: &'static str;
    /// Number of concurrent reconciles.
    const CONCURRENCY: usize = 4;
    /// The finalizer of its objects.
    const FINALIZER: Finalizer = Finalizer::None;
    /// The gauge that counts objects by state, if upstream has one.
    const STATE_METRIC: Option<StateMetric> = None;

    /// Adds the live objects that a plan reads, besides those that the object owns.
    fn select<'a>(&self, _object: &Self::Object, view: View<'a>) -> View<'a> {
        view
    }

    /// Reads the context of a plan. No requests.
    fn context(&self, object: &Self::Object) -> Self::Context;

    /// Plans desired objects and status.
    fn plan(&self, object: &Self::Object, facts: &Facts, context: &Self::Context) -> Plan<Self::Status>;

    /// The plan when the server rejected the desired objects, for a reason and with a message.
    fn blocked(
        &self,
        object: &Self::Object,
        facts: &Facts,
        context: &Self::Context,
        reason: &str,
        message: &str,
    ) -> Plan<Self::Status>;

    /// Whether [`Finalizer::Own`] must be set on the object.
    fn needs_teardown(&self, _object: &Self::Object, _around: &Self::Context) -> bool {
        true
    }

    /// Plans what to do before a terminating object may be removed; `None` once it may.
    fn teardown(&self, _object: &Self::Object, _facts: &Facts, _around: &Self::Context) -> Option<Plan<Self::Status>> {
        None
    }

    /// Maps a change of an object that they do not own to the affected objects. It runs inside the watch.
    fn affected(&self, _cache: &Cache, _change: &Change<'_>) -> Vec<Requeue> {
        Vec::new()
    }

    /// Registers triggers other than changes of objects.
    fn follow(&self, _queue: &Queue<Key>) {}

    /// Records a plan, for metrics.
    fn planned(&self, _object: &Self::Object, _plan: &Plan<Self::Status>, _: &Self::Context, _now: Timestamp) {}

    /// Records that an object is deleted or terminating, for metrics.
    fn gone(&self) {}
}

/// The finalizer of the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// None.
    None,
    /// Left by the upstream operator. All dependents are owned, so it is only removed.
    Inherited(&'static str),
    /// Ours: a terminating object stays until its [teardown](Controller::teardown) is complete.
    Own(&'static str),
}

/// Dependencies of a reconcile.
pub(crate) struct Cx<C> {
    pub(crate) controller: Arc<C>,
    pub(crate) runtime: Runtime,
    pub(crate) schemas: Schemas,
    pub(crate) nodes: Nodes,
    pub(crate) queries: QueryRunner,
    /// Whether registries are queried.
    pub(crate) registries: bool,
}

/// Reconciles one object and updates its status.
pub(crate) async fn reconcile<C: Controller>(cx: Arc<Cx<C>>, key: Key) -> Result<Action, Error> {
    let Cx { controller, runtime, queries, .. } = &*cx;
    let reference = Ref::of::<C::Object>(&key.namespace, &key.name);
    let object = runtime.cache.typed::<C::Object>(&key)?;
    let Some(object) = object.filter(|object| !is_deleted(object) || is_held::<C>(object)) else {
        queries.set_queries(&key, &[]);
        controller.gone();
        if let Finalizer::Inherited(finalizer) = C::FINALIZER {
            runtime.writer.remove_finalizer(&reference, finalizer).await?;
        }
        return Ok(Action::AwaitChange);
    };
    let context = controller.context(&object);
    let mut facts = cx.facts(&object, &reference, &key);
    if let Finalizer::Own(finalizer) = C::FINALIZER
        && !is_deleted(&object)
    {
        match controller.needs_teardown(&object, &context) {
            true => runtime.writer.add_finalizer(&reference, finalizer).await?,
            false => runtime.writer.remove_finalizer(&reference, finalizer).await?,
        };
    }
    let decide = |facts: &Facts| match is_deleted(&object) {
        true => controller.teardown(&object, facts, &context),
        false => Some(controller.plan(&object, facts, &context)),
    };
    let mut plan = decide(&facts);
    while let Some(planned) = &plan
        && queries.set_queries(&key, &planned.queries)
    {
        facts.query_results = queries.results(&key);
        plan = decide(&facts);
    }
    let Some(plan) = plan else {
        if let Finalizer::Own(finalizer) = C::FINALIZER {
            runtime.writer.remove_finalizer(&reference, finalizer).await?;
        }
        return Ok(Action::AwaitChange);
    };
    controller.planned(&object, &plan, &context, facts.now);
    let blocked = |reason: &str, message: &str| controller.blocked(&object, &facts, &context, reason, message);
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    settle(runtime, &reference, uid, &facts, plan, blocked).await
}

impl<C: Controller> Cx<C> {
    /// The facts for a plan. No requests.
    fn facts(&self, object: &C::Object, reference: &Ref, key: &Key) -> Facts {
        let view = self.runtime.cache.view().owned_by(object.meta().uid.as_deref().unwrap_or_default());
        let mut facts = self.controller.select(object, view).facts(self.runtime.clock.now());
        facts.skew = self.schemas.skew(reference);
        facts.query_results = self.queries.results(key);
        facts.registries = self.registries;
        facts.orchestrator = self.nodes.orchestrator();
        facts
    }
}

fn is_deleted(object: &impl kube::Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether our finalizer holds an object.
fn is_held<C: Controller>(object: &C::Object) -> bool {
    let finalizers = object.meta().finalizers.iter().flatten();
    matches!(C::FINALIZER, Finalizer::Own(ours) if finalizers.into_iter().any(|one| one == ours))
}
