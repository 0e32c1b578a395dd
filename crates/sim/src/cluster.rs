//! The cluster as a whole: its builder, its start, and the clients to access it.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_apiserver::admit::webhook::Resolver;
use capstan_apiserver::admit::{self, Addresses};
use capstan_apiserver::auth::UserInfo;
use capstan_apiserver::clock::Clock;
use capstan_apiserver::error::Status;
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{self, Server};
use capstan_apiserver::serve::{Api, Kubeconfig, Listen, ListenError, Listener, TlsError};
use capstan_apiserver::store::{Retention, Selection, Store, TableKey};
use jiff::Timestamp;
use serde_json::Value;

use crate::context::{Context, Tasks};
use crate::credentials::Credentials;
use crate::node::{ExistingPods, NodeTemplate, Nodes};
use crate::{bootstrap, controllers, credentials, node, restore, scheduler};

/// Default port of a Kubernetes API server, used where there is no socket.
const USUAL_PORT: u16 = 6443;

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate authority could not be created.
    #[error("making the certificate authority failed")]
    Tls(#[from] TlsError),
    /// The API could not be served on a socket.
    #[error("serving the API failed")]
    Listen(#[from] ListenError),
    /// A bootstrap object could not be created.
    #[error("filling the cluster failed")]
    Fill(#[from] Status),
}

/// A cluster that runs until it is dropped.
pub struct Cluster {
    /// The API server.
    pub server: Server,
    api: Api,
    context: Context,
    nodes: Nodes,
    listener: Option<Listener>,
    /// Bearer token of the administrator.
    token: String,
    tasks: Tasks,
    _lifecycle: Lifecycle,
}

/// Configuration of a cluster.
#[derive(Clone, Default)]
pub struct Builder {
    start: Option<Timestamp>,
    seed: Option<u64>,
    listen: Option<Listen>,
    addresses: Addresses,
    retention: Retention,
    resolver: Option<Arc<dyn Resolver>>,
    controllers: controllers::Settings,
    scheduler: scheduler::Settings,
    nodes: node::Settings,
    objects: Vec<Value>,
    store: Option<Store>,
    untracked: &'static [&'static str],
}

impl Cluster {
    /// Starts a cluster configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client with cluster-admin rights, in the namespace `default`, without a socket.
    pub fn client(&self) -> kube::Client {
        self.client_as(UserInfo::admin())
    }

    /// A client that authenticates as `user`, authorized by RBAC.
    pub fn client_as(&self, user: UserInfo) -> kube::Client {
        self.api.as_user(user).client("default")
    }

    /// The administrator's kubeconfig for the socket, if there is one.
    pub fn kubeconfig(&self) -> Option<Kubeconfig> {
        self.listener.as_ref().map(|listener| listener.kubeconfig_with(self.token.clone()))
    }

    /// The socket, if there is one.
    pub fn listener(&self) -> Option<&Listener> {
        self.listener.as_ref()
    }

    /// The HTTP interface of the server, as a tower service.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The context that components get: for code that runs beside them.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The virtual nodes: to add more, and to inject faults into them and their containers.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Number of items that each component holds in memory, by name: for leak tests. Names may change.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let store = self.server.store().counts();
        let mut counts = self.context.gauges.read();
        counts.extend([
            ("store: objects".to_owned(), store.objects),
            ("store: events in logs".to_owned(), store.events),
            ("store: watchers".to_owned(), store.watchers),
            ("store: tables".to_owned(), store.tables),
            ("store: owners with dependents".to_owned(), store.owners),
        ]);
        counts
    }

    /// Stops all tasks and flushes the store to disk.
    pub fn stop(&self) {
        self.tasks.stop();
        self.context.caches.close();
        self.server.store().close();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Builder {
    /// Start of the virtual clock; wall-clock time by default.
    pub fn start_time(mut self, start: Timestamp) -> Self {
        self.start = Some(start);
        self
    }

    /// Makes UIDs and generated names reproducible.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Serves the API over TLS as well; see [`Cluster::kubeconfig`].
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen = Some(listen);
        self
    }

    /// Service CIDR and node port range.
    pub fn addresses(mut self, addresses: Addresses) -> Self {
        self.addresses = addresses;
        self
    }

    /// How much watch history is retained.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the resolver for webhooks that reference a Service.
    pub fn webhooks(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Adds `count` plain nodes: `node-0`, `node-1` …
    pub fn nodes(mut self, count: usize) -> Self {
        let first = self.nodes.nodes.len();
        let more =
            (first..first + count).map(|i| NodeTemplate { name: format!("node-{i}"), ..NodeTemplate::default() });
        self.nodes.nodes.extend(more);
        self
    }

    /// Adds a node.
    pub fn node(mut self, node: NodeTemplate) -> Self {
        self.nodes.nodes.push(node);
        self
    }

    /// Sets the behaviour of nodes. Replaces all nodes that were added before.
    pub fn node_settings(mut self, settings: node::Settings) -> Self {
        self.nodes = settings;
        self
    }

    /// Configures the scheduler.
    pub fn scheduler_settings(mut self, settings: scheduler::Settings) -> Self {
        self.scheduler = settings;
        self
    }

    /// Selects the controllers that run.
    pub fn controller_settings(mut self, settings: controllers::Settings) -> Self {
        self.controllers = settings;
        self
    }

    /// Core resources whose objects get no managedFields until the first server-side apply.
    pub fn untracked(mut self, plurals: &'static [&'static str]) -> Self {
        self.untracked = plurals;
        self
    }

    /// Restores the objects of another cluster unchanged at the start. Its nodes become virtual, and their pods
    /// restart.
    pub fn restore(mut self, objects: Vec<Value>) -> Self {
        self.objects = objects;
        self
    }

    /// Opens the cluster of an on-disk store, or creates one there: its objects, certificate authority, tokens and port
    /// (if still free). Its nodes restart, and their pods with them.
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Starts the cluster. On return all caches have synced and all nodes are registered.
    pub async fn start(mut self) -> Result<Cluster, StartError> {
        let (kinds, admission) = admit::standard(&admit::Settings {
            addresses: self.addresses.clone(),
            resolver: self.resolver.take(),
            ..admit::Settings::default()
        });
        let persistent = self.store.is_some();
        let store = self.store.take().unwrap_or_else(|| Store::new(self.retention));
        if persistent {
            self.nodes.existing_pods = ExistingPods::Rebooted;
            // The same seed would generate the same UIDs again.
            self.seed = self.seed.map(|seed| seed.wrapping_add(store.revision()));
            self.nodes_of(&store);
        }
        let server = Server::new(ops::Settings {
            store: Some(store.clone()),
            clock: Some(self.start.map_or_else(Clock::real, Clock::starting_at)),
            seed: self.seed,
            retention: self.retention,
            kinds: Some(kinds),
            admission,
            untracked: self.untracked,
            ..ops::Settings::default()
        });
        let lifecycle = Lifecycle::start(&server).await?;
        let Credentials { auth, authority, token } = Credentials::of(&store)?;
        let api = Api::start(server.clone(), auth).await?;
        let listener = match self.listen.take() {
            Some(listen) => Some(credentials::listen(&api, listen, &authority, &store).await?),
            None => None,
        };
        let port = listener.as_ref().map_or(USUAL_PORT, |listener| listener.address().port());
        let names: Vec<String> =
            self.objects.iter().filter(|object| object["kind"] == "Node").filter_map(name).collect();
        self.nodes.nodes.extend(names.into_iter().map(|name| NodeTemplate { name, ..NodeTemplate::default() }));
        bootstrap::install(&server, &self.addresses, port).await?;
        restore::restore(&server, self.objects).await?;
        let tasks = Tasks::default();
        let context = Context::new(server.clone(), tasks.clone(), self.controllers.events);
        self.controllers.root_ca.get_or_insert_with(|| authority.pem().into());
        controllers::start(&context, &self.controllers);
        scheduler::start(&context, &self.scheduler);
        let nodes = node::start(&context, api.auth().clone(), self.nodes);
        api.set_runtime(Arc::new(nodes.clone()));
        context.caches.synced().await;
        nodes.registered().await;
        Ok(Cluster { server, api, context, nodes, listener, token, tasks, _lifecycle: lifecycle })
    }

    /// Restarts the nodes that the store holds, whether or not the builder lists them.
    fn nodes_of(&mut self, store: &Store) {
        for node in store.select(&TableKey::new("", "nodes"), &Selection::default()) {
            if !self.nodes.nodes.iter().any(|template| template.name == node.name()) {
                self.nodes.nodes.push(NodeTemplate::new(node.name()));
            }
        }
    }
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}
