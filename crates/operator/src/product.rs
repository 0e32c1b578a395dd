//! The registry: each product lists its kinds, controllers, webhooks and metrics, and [`PRODUCTS`] lists the products.

use std::sync::Arc;

use capstan_api::crd::Entry;
use capstan_plan::Gvk;
use capstan_runtime::query::QueryRunner;
use capstan_runtime::{Action, Error, Key, Runtime, queue::Queue};
use k8s_openapi::api::rbac::v1::PolicyRule;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::Webhook;
use crate::controller::{Controller, Cx, reconcile};
use crate::orchestrator::Nodes;
use crate::queries::QuerySources;
use crate::schemas::Schemas;
use crate::states::States;
use crate::{Options, gpu, nemo, nim};

/// Every product.
pub static PRODUCTS: &[&Product] = &[&gpu::PRODUCT, &nim::PRODUCT, &nemo::PRODUCT];

/// What one product adds to the operator.
pub struct Product {
    /// Its name, as in folder names.
    pub name: &'static str,
    /// Its custom resources.
    pub kinds: &'static [Entry],
    /// Its admission webhooks.
    pub webhooks: &'static [Webhook],
    /// RBAC rules of its operands, in the operator's namespace and in the cluster: RBAC lets only a subject that has a
    /// permission grant it.
    pub granted: fn() -> (Vec<PolicyRule>, Vec<PolicyRule>),
    /// Registers metrics of its own, besides those of its controllers.
    pub(crate) metrics: fn(&Options, &mut Registry),
    /// Starts its controllers.
    pub(crate) controllers: fn(&mut Launch<'_>),
}

/// Starts controllers.
pub(crate) struct Launch<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) options: &'a Options,
    pub(crate) nodes: Nodes,
    schemas: &'a Schemas,
    states: &'a States,
    query_sources: QuerySources,
    tasks: &'a mut JoinSet<()>,
    stop: &'a CancellationToken,
    /// Kinds whose controllers were started, with their finalizers.
    #[cfg(test)]
    started: Vec<(Gvk, crate::controller::Finalizer)>,
}

impl<'a> Launch<'a> {
    /// A launcher without controllers.
    pub(crate) fn new(
        runtime: &'a Runtime,
        options: &'a Options,
        schemas: &'a Schemas,
        states: &'a States,
        tasks: &'a mut JoinSet<()>,
        stop: &'a CancellationToken,
    ) -> Self {
        let (nodes, query_sources) = (Nodes::follow(&runtime.cache), QuerySources::new(runtime, options));
        Self {
            runtime,
            options,
            nodes,
            schemas,
            states,
            query_sources,
            tasks,
            stop,
            #[cfg(test)]
            started: Vec::new(),
        }
    }

    /// Starts the controller of a custom resource.
    pub(crate) fn controller<C: Controller>(&mut self, controller: C) {
        let (runtime, gvk) = (self.runtime, Gvk::of::<C::Object>());
        let loop_ = capstan_runtime::Controller::of::<C::Object>(C::NAME, runtime).concurrency(C::CONCURRENCY);
        let queue = loop_.queue();
        self.schemas.requeue_on_change::<C::Object>(queue.clone(), &runtime.cache);
        self.follow_served_kinds(gvk.clone(), queue.clone());
        controller.follow(&queue);
        if let Some(metric) = C::STATE_METRIC {
            self.states.follow::<C::Object>(metric, &runtime.cache);
        }
        let controller = Arc::new(controller);
        let cx = Arc::new(Cx {
            controller: controller.clone(),
            runtime: runtime.clone(),
            schemas: self.schemas.clone(),
            nodes: self.nodes.clone(),
            queries: QueryRunner::new(self.query_sources.run.clone(), self.query_sources.cached.clone(), queue),
            registries: self.query_sources.registries,
        });
        let cache = runtime.cache.clone();
        let loop_ = loop_.watching(move |change| match cache.is_synced() {
            true => controller.affected(&cache, change),
            // Every object is reconciled after the initial sync.
            false => Vec::new(),
        });
        self.run(loop_, move |key| reconcile(cx.clone(), key));
        #[cfg(test)]
        self.started.push((gvk, C::FINALIZER));
    }

    /// Runs a controller of anything else until the operator stops.
    pub(crate) fn run<F, Fut>(&mut self, controller: capstan_runtime::Controller, reconcile: F)
    where
        F: Fn(Key) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        self.tasks.spawn(controller.run(self.stop.clone(), reconcile));
    }

    /// Requeues all objects when the served kinds change: an object may wait for a kind.
    fn follow_served_kinds(&mut self, gvk: Gvk, queue: Queue<Key>) {
        let (cache, stop) = (self.runtime.cache.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let follow = async {
                cache.synced().await;
                let mut known = cache.served();
                loop {
                    known = cache.served_other_than(&known).await;
                    cache.keys(&gvk).into_iter().for_each(|key| queue.add(key));
                }
            };
            stop.run_until_cancelled(follow).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use capstan_api::Handling;
    use capstan_runtime::Gate;

    use super::*;
    use crate::controller::Finalizer;

    /// What each product starts, on a server that never answers.
    fn started() -> BTreeMap<&'static str, Vec<(Gvk, Finalizer)>> {
        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        let (client, stop, options) =
            (kube::Client::new(silent, "default"), CancellationToken::new(), Options::in_process());
        let runtime = Runtime::start(client, capstan_runtime::Settings::default(), &stop);
        let (schemas, states, mut tasks) = (Schemas::new(&runtime), States::new(Gate::open()), JoinSet::new());
        let start = |product: &&'static Product| {
            let mut launch = Launch::new(&runtime, &options, &schemas, &states, &mut tasks, &stop);
            (product.controllers)(&mut launch);
            (product.name, launch.started)
        };
        let started = PRODUCTS.iter().map(start).collect();
        stop.cancel();
        started
    }

    fn gvk(entry: &Entry) -> Gvk {
        Gvk { group: entry.group.into(), version: entry.version.into(), kind: entry.kind.into() }
    }

    #[tokio::test]
    async fn every_kind_that_says_so_has_a_controller_in_its_product() {
        let started = started();
        for product in PRODUCTS {
            let listed: BTreeSet<Gvk> =
                product.kinds.iter().filter(|kind| kind.handling.has_controller()).map(gvk).collect();
            let running: BTreeSet<Gvk> = started[product.name].iter().map(|(gvk, _)| gvk.clone()).collect();
            assert_eq!(listed, running, "{}", product.name);
        }
        let all: usize = started.values().map(Vec::len).sum();
        assert_eq!(capstan_api::kinds().filter(|kind| kind.handling.has_controller()).count(), all);
    }

    #[tokio::test]
    async fn who_writes_finalizers_says_so() {
        for (kind, finalizer) in started().into_values().flatten() {
            let entry = capstan_api::kinds().find(|entry| gvk(entry) == kind).expect("a kind of ours");
            assert_eq!(entry.handling == Handling::Reported, finalizer == Finalizer::None, "{kind:?}");
        }
    }

    #[test]
    fn webhooks_of_one_path_review_alike_and_no_two_share_a_name() {
        let all: Vec<&Webhook> = PRODUCTS.iter().flat_map(|product| product.webhooks).collect();
        let names: BTreeSet<String> = all.iter().map(|webhook| webhook.name()).collect();
        assert_eq!(names.len(), all.len());
        let paths: BTreeSet<String> = all.iter().map(|webhook| webhook.path()).collect();
        let kinds: BTreeSet<&str> = all.iter().map(|webhook| webhook.kind.kind).collect();
        assert_eq!(paths.len(), kinds.len());
    }
}
