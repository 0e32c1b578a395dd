//! A cluster with an operator: embedded and in virtual time, or real with `TEST_CLUSTER=real`.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::auth::UserInfo;
use capstan_apiserver::serve::Api as Server;
use capstan_gpu_sim::{Machine, Machines};
use capstan_operator::queries::QueryBackend;
use capstan_operator::{Options, gpu};
use capstan_runtime::Clock;
use capstan_sim::node::{self, Nodes};
use capstan_sim::{Cluster, controllers};
use jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::real::{self, Place};
use crate::wire::{End, Fault, Wire};
use crate::{rights, simulated};

/// Timeout in virtual time.
const DEADLINE: Duration = Duration::from_secs(600);
/// Timeout in real time.
const REAL_DEADLINE: Duration = Duration::from_secs(120);
/// Time without writes after which the operator has settled, in virtual time.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// An operator that writes again so often in a row never settles.
const MAX_ROUNDS: usize = 120;
/// The same in real time: the longest pause between two writes is a backoff of some seconds.
const REAL_SETTLE_TIME: Duration = Duration::from_secs(6);

/// The operator's own image.
pub const OWN_IMAGE: &str = "example.com/capstan:1";

/// Default number of nodes.
const NODES: usize = 2;

/// Start of the virtual clock.
fn beginning() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A cluster with two nodes of eight GPUs, a storage class and the CRD of NIMServices.
pub struct World {
    /// Namespace of the story.
    pub namespace: String,
    /// A client of the administrator, in that namespace.
    pub admin: Client,
    gpu: gpu::Settings,
    backend: Backend,
    /// Machines of its nodes, if they have some. Their files are removed with the world.
    machines: Option<Machines>,
}

/// The cluster of a world.
enum Backend {
    Embedded(Box<(Cluster, Server)>),
    Real(Box<Place>),
}

/// A running operator.
pub struct Operator {
    /// Its connection.
    pub wire: Wire,
    stop: CancellationToken,
}

impl Operator {
    /// Kills it: no later request arrives.
    pub fn kill(&self) {
        self.wire.cut();
        self.stop.cancel();
    }
}

/// Ends with its story: on a real cluster it would affect the next one.
impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

impl World {
    /// Starts a world. Call it with paused time; on a real cluster time is resumed.
    pub async fn start() -> Self {
        Self::on(simulated::usual(NODES)).await.set_up().await
    }

    /// Starts a world that is always embedded: for stories of minutes and hours, which only virtual time makes short.
    pub async fn start_in_virtual_time(nodes: usize) -> Self {
        Self::embedded(simulated::usual(nodes)).await.set_up().await
    }

    /// Starts a world of GPU nodes without operands.
    pub async fn start_bare(nodes: u16) -> Self {
        Self::on(simulated::bare(nodes)).await.beside_operands().await
    }

    /// The same, always embedded.
    pub async fn start_bare_in_virtual_time(nodes: u16) -> Self {
        Self::embedded(simulated::bare(nodes)).await.beside_operands().await
    }

    /// The same with operators that know their own image, on nodes that run its code. On a real control plane operands
    /// are imitated.
    pub async fn start_with_roles(nodes: u16) -> Self {
        if real::is_wanted() {
            return Self::start_bare(nodes).await.with_own_image();
        }
        let machines = Machines::new().expect("a directory for machines");
        let settings = simulated::on_machines(nodes, &machines, OWN_IMAGE);
        let world = Self::embedded(settings).await.beside_operands().await.with_own_image();
        world.install_ours("NodeFeature").await;
        // Roles communicate over sockets. Virtual time jumps to the next timer whenever all tasks are idle, even while
        // they wait for a socket: a timer that is always near prevents timeouts.
        tokio::spawn(async {
            loop {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Self { machines: Some(machines), ..world }
    }

    /// The machine of a node of a world with roles.
    pub fn machine(&self, node: &str) -> Option<Arc<Machine>> {
        self.machines.as_ref()?.get(node)
    }

    /// The same with many nodes and reduced reporting.
    pub async fn start_fleet(nodes: u16) -> Self {
        let heartbeat = Duration::from_secs(3600);
        let reports = node::Reports::Brief(Duration::from_secs(5));
        let settings = node::Settings { events: node::Events::None, heartbeat, reports, ..simulated::bare(nodes) };
        // Nodes without heartbeats stay reachable.
        let lenient = controllers::Settings {
            node_grace: None,
            events: false,
            endpoints: false,
            ..controllers::Settings::default()
        };
        Self::controlled(settings, lenient).await.beside_operands().await
    }

    /// Adds operands beside the operator.
    async fn beside_operands(mut self) -> Self {
        self.namespace = real::HOME.into();
        for kind in ["ClusterPolicy", "NVIDIADriver", "GPUCluster", "ComputeDomain", "ComputeDomainClique"] {
            self.install_ours(kind).await;
        }
        self
    }

    async fn on(nodes: node::Settings) -> Self {
        if real::is_wanted() { Self::real(nodes).await } else { Self::embedded(nodes).await }
    }

    async fn set_up(self) -> Self {
        let world = self;
        let kind = capstan_api::kinds().find(|kind| kind.kind == "NIMService").expect("NIMService is a kind of ours");
        capstan_operator::crds::apply(&world.admin, kind, REAL_DEADLINE).await.expect("the CRD is accepted");
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "example.com/virtual",
        });
        world.apply(class).await;
        world
    }

    /// Operators use the maintenance requestor mode.
    pub fn requesting(mut self, requestor: gpu::Requestor) -> Self {
        self.gpu.requestor = Some(requestor);
        self
    }

    /// Operators report GPU readiness on nodes.
    pub fn with_readiness(mut self, readiness: gpu::Readiness) -> Self {
        self.gpu.readiness = readiness;
        self
    }

    /// Operators use their own image, and others only for what it cannot do.
    pub fn with_own_image(mut self) -> Self {
        self.gpu.agent.image = OWN_IMAGE.into();
        let done = ["DEVICE_PLUGIN_IMAGE", "GFD_IMAGE", "DCGM_EXPORTER_IMAGE", "DCGM_IMAGE", "VALIDATOR_IMAGE"];
        self.gpu.images.retain(|variable, _| !done.contains(&variable.as_str()));
        self
    }

    async fn embedded(nodes: node::Settings) -> Self {
        Self::controlled(nodes, controllers::Settings::default()).await
    }

    async fn controlled(nodes: node::Settings, controllers: controllers::Settings) -> Self {
        let builder = Cluster::builder().start_time(beginning()).seed(7);
        let builder = builder.node_settings(nodes).controller_settings(controllers);
        let cluster = builder.start().await.expect("the cluster starts");
        let admin = cluster.client();
        // The operator has the RBAC of the chart, as on a real cluster.
        let server = cluster.api().as_user(UserInfo::service_account(real::HOME, real::ACCOUNT, ""));
        let backend = Backend::Embedded(Box::new((cluster, server)));
        let gpu = operands_in(real::HOME);
        let world = Self { namespace: "default".into(), admin, gpu, backend, machines: None };
        world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": real::HOME}})).await;
        for role in rights::roles(&rights::all(), real::HOME, real::ACCOUNT) {
            world.apply(role).await;
        }
        world
    }

    async fn real(nodes: node::Settings) -> Self {
        // Each test has its own thread, and time can be resumed only once.
        thread_local!(static RESUMED: Cell<bool> = const { Cell::new(false) });
        if !RESUMED.replace(true) {
            tokio::time::resume();
        }
        let place = Place::take(nodes).await;
        let namespace = place.namespace.clone();
        let (admin, gpu) = (place.admin.clone(), operands_in(real::HOME));
        Self { namespace, admin, gpu, backend: Backend::Real(Box::new(place)), machines: None }
    }

    /// The virtual nodes: to add more.
    pub fn nodes(&self) -> &Nodes {
        match &self.backend {
            Backend::Embedded(parts) => parts.0.nodes(),
            Backend::Real(place) => place.nodes(),
        }
    }

    /// The embedded cluster, for faults that only it supports.
    pub fn embedded_cluster(&self) -> Option<&Cluster> {
        match &self.backend {
            Backend::Embedded(parts) => Some(&parts.0),
            Backend::Real(_) => None,
        }
    }

    fn choose<T>(&self, embedded: T, real: T) -> T {
        if matches!(self.backend, Backend::Embedded(_)) { embedded } else { real }
    }

    /// Installs a third-party CRD with a permissive schema and a status subresource.
    pub async fn install(&self, group: &str, version: &str, kind: &str, plural: &str) {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let name = format!("{plural}.{group}");
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            // API groups of Kubernetes are protected.
            "metadata": {
                "name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
                "labels": {real::STORY_LABEL: ""},
            },
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
                }],
            },
        });
        self.apply(crd).await;
        let served = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|one| one["type"] == "Established" && one["status"] == "True")
        };
        self.until("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name, served).await;
    }

    /// Installs a CRD of ours.
    pub async fn install_ours(&self, kind: &str) {
        let kind = capstan_api::kinds().find(|one| one.kind == kind).expect("a kind of ours");
        let definition = serde_json::to_value(kind.definition()).expect("a definition is JSON");
        self.apply(definition).await;
        let served = |object: &Value| object["status"]["conditions"].is_array();
        self.until("apiextensions.k8s.io/v1", "CustomResourceDefinition", &kind.crd_name(), served).await;
    }

    /// Writes the status of an object, as its controller does.
    pub async fn write_status(&self, api_version: &str, kind: &str, name: &str, status: Value) {
        let (api, _) = self.api(&json!({"apiVersion": api_version, "kind": kind, "metadata": {}})).await;
        let patch = Patch::Merge(json!({"status": status}));
        let result = api.patch_status(name, &PatchParams::default(), &patch).await;
        result.unwrap_or_else(|error| panic!("status of {kind} {name}: {error}"));
    }

    /// Patches an object, as a user does with `kubectl patch`.
    pub async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let (api, _) = self.api(&json!({"apiVersion": api_version, "kind": kind, "metadata": {}})).await;
        let changed = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        changed.unwrap_or_else(|error| panic!("patch {kind} {name}: {error}"));
    }

    /// Deletes an object, as a user does.
    pub async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        let (api, _) = self.api(&json!({"apiVersion": api_version, "kind": kind, "metadata": {}})).await;
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("delete {kind} {name}: {error}"));
    }

    /// Waits until an object is deleted.
    pub async fn until_gone(&self, api_version: &str, kind: &str, name: &str) {
        let wait = async {
            while self.list(api_version, kind).await.iter().any(|object| object["metadata"]["name"] == name) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        assert!(
            tokio::time::timeout(self.choose(DEADLINE, REAL_DEADLINE), wait).await.is_ok(),
            "{kind} {name} is still there"
        );
    }

    /// Starts an operator with a fault in its connection. On return it is ready, unless it died before.
    pub async fn operator(&self, fault: Fault) -> Operator {
        self.operator_asking(fault, QueryBackend::offline()).await
    }

    /// The same, with a model probe.
    pub async fn operator_asking(&self, fault: Fault, ask: QueryBackend) -> Operator {
        self.operator_with(fault, |options| options.query_backend = ask).await
    }

    /// The same, with other options.
    pub async fn operator_with(&self, fault: Fault, edit: impl FnOnce(&mut Options)) -> Operator {
        let (end, clock) = match &self.backend {
            Backend::Embedded(parts) => {
                let (cluster, server) = &**parts;
                (End::Embedded(server.clone()), Clock::starting_at(cluster.server.clock().now()))
            }
            Backend::Real(place) => (End::Real(place.operator.clone()), Clock::Real),
        };
        let wire = Wire::new(end, fault);
        let client = Client::new(wire.clone(), "default");
        let stop = CancellationToken::new();
        let gpu = self.gpu.clone();
        let mut options =
            Options { apply_crds: false, clock, gpu, query_backend: QueryBackend::offline(), ..Options::in_process() };
        edit(&mut options);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        tokio::spawn(capstan_operator::run(client, options, stop.clone(), ready));
        tokio::select! {
            _ = is_ready => {}
            () = wire.died() => {}
        }
        Operator { wire, stop }
    }

    /// Applies an object as a user does, in the story's namespace unless it names one.
    pub async fn apply(&self, mut object: Value) {
        if object["kind"].as_str().is_some_and(real::is_outside) {
            object["metadata"]["labels"][real::STORY_LABEL] = "".into();
        }
        let (api, name) = self.api(&object).await;
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let params = PatchParams::apply("kubectl").force();
        api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap_or_else(|error| panic!("apply {name}: {error}"));
    }

    /// Whether the cluster serves a kind.
    pub(crate) async fn serves(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        kube::discovery::pinned_kind(&self.admin, &GroupVersionKind::gvk(group, version, kind)).await.is_ok()
    }

    async fn api(&self, object: &Value) -> (Api<DynamicObject>, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&object["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
        let (resource, capabilities) =
            kube::discovery::pinned_kind(&self.admin, &gvk).await.unwrap_or_else(|error| panic!("{gvk:?}: {error}"));
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
        let api = match capabilities.scope {
            kube::discovery::Scope::Cluster => Api::all_with(self.admin.clone(), &resource),
            kube::discovery::Scope::Namespaced => Api::namespaced_with(self.admin.clone(), namespace, &resource),
        };
        (api, text(&object["metadata"]["name"]))
    }

    /// All objects of a kind in the story's namespace, as JSON.
    pub async fn list(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let (api, _) = self.api(&json!({"apiVersion": api_version, "kind": kind, "metadata": {}})).await;
        let list = api.list(&ListParams::default()).await.unwrap_or_else(|error| panic!("list {kind}: {error}"));
        let mut all: Vec<Value> =
            list.items.into_iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
        if kind == "Node" {
            // A real cluster may have other nodes, which are ignored.
            let names = self.nodes().names();
            all.retain(|node| {
                node["metadata"]["name"].as_str().is_some_and(|name| names.iter().any(|one| one == name))
            });
        }
        all
    }

    /// Waits until an object meets a condition.
    pub async fn until(&self, api_version: &str, kind: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let all = self.list(api_version, kind).await;
                if let Some(found) = all.into_iter().find(|object| object["metadata"]["name"] == name && wanted(object))
                {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        match tokio::time::timeout(self.choose(DEADLINE, REAL_DEADLINE), wait).await {
            Ok(found) => found,
            Err(_) => panic!("{kind} {name} is not as wanted: {:#?}", self.list(api_version, kind).await),
        }
    }

    /// Waits until `operator` has settled, and returns its number of writes. Panics if it never stops writing, or was
    /// stopped.
    pub async fn settled(&self, operator: &Operator) -> usize {
        let mut before = usize::MAX;
        for _ in 0..MAX_ROUNDS {
            assert!(!operator.stop.is_cancelled(), "an operator that was stopped has nothing to settle");
            if before == operator.wire.writes() {
                return before;
            }
            before = operator.wire.writes();
            tokio::time::sleep(self.choose(SETTLE_TIME, REAL_SETTLE_TIME)).await;
        }
        panic!("the operator still writes: {before} writes, {:#?}", operator.wire.requests());
    }

    /// Waits long enough for pending changes.
    pub async fn rest(&self) {
        tokio::time::sleep(self.choose(5 * SETTLE_TIME, REAL_SETTLE_TIME)).await;
    }
}

/// GPU settings for operands in this namespace, with placeholder images.
pub fn operands_in(namespace: &str) -> gpu::Settings {
    let image = |name: &&str| ((*name).to_owned(), format!("example.com/{}:1", name.to_lowercase()));
    gpu::Settings {
        namespace: namespace.into(),
        images: gpu::IMAGES.iter().map(image).collect(),
        ..gpu::Settings::default()
    }
}
