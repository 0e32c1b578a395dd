//! The shape of the controller of a custom resource, and the one reconcile that all of them go through.
//!
//! A reconcile makes no request before it has decided: it reads the caches, plans, and settles what was planned. That is
//! why everything in [`Controller`] is a plain function. What a plan wants to know from elsewhere it names as a question,
//! which is asked after the reconcile, and the answer is a fact of the next one.

use std::sync::Arc;

use capstan_plan::{Facts, Plan, Ref};
use capstan_runtime::ask::Asker;
use capstan_runtime::cache::View;
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

/// The controller of a custom resource: what its plans look at, what they decide, and which changes affect it.
pub(crate) trait Controller: Send + Sync + 'static {
    /// The custom resource.
    type Object: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync;
    /// Its status.
    type Status: Serialize + Send + Sync;
    /// What a plan knows besides facts.
    type Surroundings: Send + Sync;

    /// Name in logs and metrics.
    const NAME: &'static str;
    /// How many objects are reconciled at once.
    const CONCURRENCY: usize = 4;
    /// Which finalizer objects may have.
    const FINALIZER: Finalizer = Finalizer::None;
    /// The gauge that counts objects by state, if dashboards know one.
    const STATE_METRIC: Option<StateMetric> = None;

    /// Adds the live objects that a plan looks at, besides those that the object owns.
    fn select<'a>(&self, _object: &Self::Object, view: View<'a>) -> View<'a> {
        view
    }

    /// What else a plan knows. No requests.
    fn surroundings(&self, object: &Self::Object) -> Self::Surroundings;

    /// What should be there, and what to say about it.
    fn plan(&self, object: &Self::Object, facts: &Facts, around: &Self::Surroundings) -> Plan<Self::Status>;

    /// The same when the server refused what was planned, for a reason and with a message.
    fn blocked(
        &self,
        object: &Self::Object,
        facts: &Facts,
        around: &Self::Surroundings,
        reason: &str,
        message: &str,
    ) -> Plan<Self::Status>;

    /// Whether [`Finalizer::Own`] has to hold the object when it is deleted.
    fn needs_teardown(&self, _object: &Self::Object, _around: &Self::Surroundings) -> bool {
        true
    }

    /// What to do before a deleted object may go; `None` once it may.
    fn teardown(
        &self,
        _object: &Self::Object,
        _facts: &Facts,
        _around: &Self::Surroundings,
    ) -> Option<Plan<Self::Status>> {
        None
    }

    /// Which objects are affected by a change of something that they do not own. It runs inside the watch.
    fn affected(&self, _cache: &Cache, _change: &Change<'_>) -> Vec<Requeue> {
        Vec::new()
    }

    /// Other reasons to reconcile, that are no changes of objects.
    fn follow(&self, _queue: &Queue<Key>) {}

    /// Takes in what was planned, for metrics.
    fn planned(&self, _object: &Self::Object, _plan: &Plan<Self::Status>, _: &Self::Surroundings, _now: Timestamp) {}

    /// Takes in that an object is gone or going, for metrics.
    fn gone(&self) {}
}

/// Which finalizer the objects of a kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// None.
    None,
    /// One that the operator before us left. All that there is to clean up is owned, so it only has to go.
    Inherited(&'static str),
    /// Ours: a deleted object stays until its [teardown](Controller::teardown) is done.
    Own(&'static str),
}

/// What a reconcile works with.
pub(crate) struct Cx<C> {
    pub(crate) controller: Arc<C>,
    pub(crate) runtime: Runtime,
    pub(crate) schemas: Schemas,
    pub(crate) nodes: Nodes,
    pub(crate) asker: Asker,
    /// Whether registries are asked.
    pub(crate) registries: bool,
}

/// Makes one object what its spec says, and says how it is doing.
pub(crate) async fn reconcile<C: Controller>(cx: Arc<Cx<C>>, key: Key) -> Result<Action, Error> {
    let Cx { controller, runtime, asker, .. } = &*cx;
    let reference = Ref::of::<C::Object>(&key.namespace, &key.name);
    let object = runtime.cache.typed::<C::Object>(&key)?;
    let Some(object) = object.filter(|object| !is_deleted(object) || is_held::<C>(object)) else {
        asker.ask(&key, &[]);
        controller.gone();
        if let Finalizer::Inherited(finalizer) = C::FINALIZER {
            runtime.writer.remove_finalizer(&reference, finalizer).await?;
        }
        return Ok(Action::Wait);
    };
    let around = controller.surroundings(&object);
    let mut facts = cx.facts(&object, &reference, &key);
    if let Finalizer::Own(finalizer) = C::FINALIZER
        && !is_deleted(&object)
    {
        match controller.needs_teardown(&object, &around) {
            true => runtime.writer.add_finalizer(&reference, finalizer).await?,
            false => runtime.writer.remove_finalizer(&reference, finalizer).await?,
        };
    }
    let decide = |facts: &Facts| match is_deleted(&object) {
        true => controller.teardown(&object, facts, &around),
        false => Some(controller.plan(&object, facts, &around)),
    };
    let mut plan = decide(&facts);
    while let Some(planned) = &plan
        && asker.ask(&key, &planned.questions)
    {
        facts.answers = asker.answers(&key);
        plan = decide(&facts);
    }
    let Some(plan) = plan else {
        if let Finalizer::Own(finalizer) = C::FINALIZER {
            runtime.writer.remove_finalizer(&reference, finalizer).await?;
        }
        return Ok(Action::Wait);
    };
    controller.planned(&object, &plan, &around, facts.now);
    let blocked = |reason: &str, message: &str| controller.blocked(&object, &facts, &around, reason, message);
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    settle(runtime, &reference, uid, &facts, plan, blocked).await
}

impl<C: Controller> Cx<C> {
    /// What a plan may know. No requests.
    fn facts(&self, object: &C::Object, reference: &Ref, key: &Key) -> Facts {
        let view = self.runtime.cache.view().owned_by(object.meta().uid.as_deref().unwrap_or_default());
        let mut facts = self.controller.select(object, view).facts(self.runtime.clock.now());
        facts.skew = self.schemas.skew(reference);
        facts.answers = self.asker.answers(key);
        facts.registries = self.registries;
        facts.orchestrator = self.nodes.orchestrator();
        facts
    }
}

fn is_deleted(object: &impl kube::Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether an object stays until we let it go.
fn is_held<C: Controller>(object: &C::Object) -> bool {
    let finalizers = object.meta().finalizers.iter().flatten();
    matches!(C::FINALIZER, Finalizer::Own(ours) if finalizers.into_iter().any(|one| one == ours))
}
