//! A story on a real control plane: a namespace, and the operator with its own ServiceAccount and RBAC.
//!
//! Stories take turns, since an operator manages all namespaces.

use std::path::PathBuf;
use std::time::Duration;

use capstan_sim::node::{self, Nodes};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::bridge::Bridge;
use crate::rights;

/// Namespace of the operator.
pub const HOME: &str = "capstan-stories";
/// Its ServiceAccount, and the roles bound to it.
pub(crate) const ACCOUNT: &str = "capstan";

/// Label of a story's cluster-scoped objects: they are deleted before the next one starts.
pub(crate) const STORY_LABEL: &str = "capstan.test/story";
/// Third-party cluster-scoped kinds that stories create.
const OUTSIDE: [(&str, &str, &str); 3] = [
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("resource.k8s.io", "v1", "DeviceClass"),
    ("resource.k8s.io", "v1", "ResourceSlice"),
];

static TURN: Mutex<()> = Mutex::const_new(());

/// Whether objects of a kind are deleted before the next story. CRDs of ours are kept.
pub(crate) fn is_outside(kind: &str) -> bool {
    kind != "CustomResourceDefinition" && OUTSIDE.iter().any(|(_, _, one)| *one == kind)
}

/// Whether stories run on a real control plane.
pub fn is_wanted() -> bool {
    match std::env::var("TEST_CLUSTER").as_deref() {
        Ok("real") => true,
        Ok("embedded" | "") | Err(_) => false,
        Ok(other) => panic!("TEST_CLUSTER is {other:?}: set embedded or real"),
    }
}

/// A story's namespace, until it is dropped.
pub struct Place {
    /// Its name.
    pub namespace: String,
    /// An administrator client in the namespace.
    pub admin: Client,
    /// A client of the operator.
    pub operator: Client,
    bridge: Bridge,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    /// Allocates the namespace and these nodes. Waits for the running story.
    pub async fn take(nodes: node::Settings) -> Self {
        let turn = TURN.lock().await;
        let mut config = administrator().await;
        let bridge = config.clone();
        let bridge = tokio::task::spawn_blocking(|| Bridge::start(bridge, nodes)).await.expect("the nodes run");
        let namespace = format!("story-{}-{:04x}", std::process::id(), fastrand::u16(..));
        config.default_namespace.clone_from(&namespace);
        let admin = Client::try_from(config.clone()).expect("a client");
        clear(&admin).await;
        apply(&admin, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        let operator = operator(&admin, config).await;
        Self { namespace, admin, operator, bridge, _turn: turn }
    }

    /// Its nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.bridge.nodes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bridge.end(&self.namespace);
    }
}

/// Deletes cluster-scoped objects of earlier stories.
async fn clear(admin: &Client) {
    for (group, version, kind) in OUTSIDE {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
        let theirs = ListParams::default().labels(STORY_LABEL);
        loop {
            let left = api.list(&theirs).await.unwrap_or_else(|error| panic!("list {kind}: {error}"));
            for object in &left.items {
                let _ = api.delete(&object.name_any(), &DeleteParams::default()).await;
            }
            if left.items.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// `KUBECONFIG`, or the cluster of `cargo xtask cluster up`.
async fn administrator() -> Config {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let ours = cache.unwrap_or_default().join("capstan/cluster/kubeconfig");
    let path = std::env::var_os("KUBECONFIG").map_or(ours, PathBuf::from);
    let file = Kubeconfig::read_from(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask cluster up`", path.display()));
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a kubeconfig with a context")
}

/// A client with a token of the operator's ServiceAccount.
async fn operator(admin: &Client, mut config: Config) -> Client {
    apply(admin, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})).await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": HOME},
    });
    apply(admin, account).await;
    for object in rights::roles(&rights::all(), HOME, ACCOUNT) {
        apply(admin, object).await;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), HOME);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let token = answer.expect("a token of the account").status.and_then(|status| status.token).expect("a token");
    config.auth_info = Default::default();
    config.auth_info.token = Some(token.into());
    Client::try_from(config).expect("a client")
}

async fn apply(admin: &Client, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
        None => Api::all_with(admin.clone(), &resource),
    };
    let name = text(&object["metadata"]["name"]);
    let params = PatchParams::apply("story").force();
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
}
