//! The two servers to compare, each without workload controllers and scheduler. What controllers add to a namespace
//! exists when its creation returns.

use capstan_apiserver::admit;
use capstan_apiserver::auth::{Auth, MASTERS, UserInfo};
use capstan_apiserver::lifecycle::Lifecycle;
use capstan_apiserver::ops::{Caller, Server, Settings, Target, WriteOptions};
use capstan_apiserver::serve::Api;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::exchange::{Failure, Peer, Side};

/// Annotation of the root CA publisher.
const ABOUT_CA: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                        such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                        distributions of Kubernetes clusters.";

/// An embedded server.
pub struct Embedded {
    server: Server,
    peer: Peer,
    _lifecycle: Lifecycle,
}

impl Embedded {
    /// Starts one.
    pub async fn start() -> Result<Self, Failure> {
        let (kinds, admission) = admit::standard(&admit::Settings::default());
        let server = Server::new(Settings { kinds: Some(kinds), admission, ..Settings::default() });
        let lifecycle = Lifecycle::start(&server).await?;
        let api = Api::start(server.clone(), Auth::new()).await?;
        let mut admin = UserInfo::new("admin", &[MASTERS]);
        admin.uid = "admin".into();
        let peer = Peer { admin: api.as_user(admin).client("default"), anonymous_client: api.client("default") };
        let this = Self { server, peer, _lifecycle: lifecycle };
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            this.set_up(namespace).await?;
        }
        // A real server compacts its history over time.
        this.server.store().compact(this.server.store().revision());
        Ok(this)
    }

    async fn create(&self, plural: &str, namespace: &str, body: Value) -> Result<(), Failure> {
        let resource = self.server.registry().lookup("", "v1", plural).ok_or("the kind is built in")?;
        let caller = Caller { user: UserInfo::admin(), user_agent: "kube-controller-manager/v1".into() };
        let target = Target::all(resource, Some(namespace));
        self.server.create(&caller, &target, body.into(), &WriteOptions::default()).await?;
        Ok(())
    }
}

impl Side for Embedded {
    fn peer(&self) -> &Peer {
        &self.peer
    }

    async fn set_up(&self, namespace: &str) -> Result<(), Failure> {
        let account = json!({"metadata": {"name": "default"}});
        self.create("serviceaccounts", namespace, account).await?;
        let annotations = json!({"kubernetes.io/description": ABOUT_CA});
        let bundle =
            json!({"metadata": {"name": "kube-root-ca.crt", "annotations": annotations}, "data": {"ca.crt": "x"}});
        self.create("configmaps", namespace, bundle).await
    }
}

/// A real server.
pub struct Real {
    peer: Peer,
    /// Its version: `v1.37.1`.
    pub version: String,
}

impl Real {
    /// Connects to the server of the kubeconfig in the environment.
    pub async fn connect() -> Result<Self, Failure> {
        let mut config = Config::infer().await?;
        // A 429 is a response to compare as well.
        config.default_retry = false;
        let mut anonymous_client = config.clone();
        anonymous_client.auth_info = kube::config::AuthInfo::default();
        let peer = Peer { admin: Client::try_from(config)?, anonymous_client: Client::try_from(anonymous_client)? };
        let version = peer.admin.apiserver_version().await?.git_version;
        Ok(Self { peer, version })
    }
}

impl Side for Real {
    fn peer(&self) -> &Peer {
        &self.peer
    }

    async fn set_up(&self, namespace: &str) -> Result<(), Failure> {
        for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let uri = format!("/api/v1/namespaces/{namespace}/{path}");
            let wait = async {
                while self.peer.admin.request_text(http::Request::get(&uri).body(Vec::new())?).await.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                Ok::<_, Failure>(())
            };
            tokio::time::timeout(std::time::Duration::from_secs(30), wait)
                .await
                .map_err(|_| format!("{uri} never came"))??;
        }
        Ok(())
    }
}
