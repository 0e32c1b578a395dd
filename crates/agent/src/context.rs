//! What every role gets: hardware, files, variables and the API server, all of them explicit, so that several nodes can
//! run in one process.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::nvml::Library;
use capstan_hw::gpu::nvidia::{Hardware, Source};
use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use kube::config::Kubeconfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::supervise::Health;
use crate::{Error, Result};

/// Opens the driver below some roots.
pub type OpenDriver = Arc<dyn Fn(&Roots) -> capstan_hw::Result<Arc<dyn Hardware>> + Send + Sync>;

/// How the API server is reached.
#[derive(Clone, Default)]
pub enum ApiAccess {
    /// As the environment says: a kubeconfig, or the pod's service account.
    #[default]
    Environment,
    /// Through this client.
    Given(Client),
}

/// Variables beside those that options read.
#[derive(Debug, Clone, Default)]
pub enum Variables {
    /// Those of the process.
    #[default]
    Process,
    /// These and no others.
    Given(BTreeMap<String, String>),
}

/// Where a role runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// In a container, which has a network and GPUs of its own.
    #[default]
    Container,
    /// On a virtual node: it shares the network of this machine with others, and its GPUs compute nothing.
    VirtualNode,
}

/// What every role gets.
#[derive(Clone)]
pub struct Cx {
    /// The GPUs of this node.
    pub hardware: Arc<Source>,
    /// Opens a driver elsewhere than where [`Cx::hardware`] is from.
    pub open_driver: OpenDriver,
    /// Where the driver and its devices are.
    pub roots: Roots,
    /// Root of the file system: `/`, or what a test or a virtual node made.
    pub root: PathBuf,
    /// Told when the role should end.
    pub stop: CancellationToken,
    /// How the API server is reached.
    pub api: ApiAccess,
    /// Variables beside those that options read.
    pub variables: Variables,
    /// Who asks, for the API server: the role, or `agent`.
    pub role: &'static str,
    /// Where it runs.
    pub place: Place,
    /// How the roles of this process fare.
    pub health: Arc<Health>,
}

impl Cx {
    /// With the API server and the variables of the process.
    pub fn new(hardware: Arc<Source>, roots: Roots, root: impl Into<PathBuf>, stop: CancellationToken) -> Self {
        Self {
            hardware,
            open_driver: Arc::new(|roots| Ok(Arc::new(Library::open(roots)?))),
            roots,
            root: root.into(),
            stop,
            api: ApiAccess::default(),
            variables: Variables::default(),
            role: "agent",
            place: Place::default(),
            health: Arc::default(),
        }
    }

    /// Listens on an address; on a virtual node on any port of loopback, as others want the same.
    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let address = match self.place {
            Place::Container => address,
            Place::VirtualNode => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        };
        let failed = |source| Error::Io { what: format!("cannot listen on {address}"), source };
        TcpListener::bind(address).await.map_err(failed)
    }

    /// A path as roles are given it, where this process finds it: an absolute one is below [`Cx::root`].
    pub fn path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(rest) if !path.starts_with(&self.root) => self.root.join(rest),
            _ => path.to_owned(),
        }
    }

    /// The same for a path that may be unset.
    pub fn path_of(&self, path: Option<PathBuf>) -> Option<PathBuf> {
        path.map(|path| self.path(&path))
    }

    /// A variable that is set.
    pub fn variable(&self, name: &str) -> Option<String> {
        match &self.variables {
            Variables::Process => std::env::var(name).ok(),
            Variables::Given(variables) => variables.get(name).cloned(),
        }
    }

    /// A client of the API server, whose requests name this role.
    pub async fn client(&self) -> Result<Client> {
        let config = match &self.api {
            ApiAccess::Given(client) => return Ok(client.clone()),
            ApiAccess::Environment => kube::Config::infer().await.map_err(kube::Error::InferConfig),
        };
        config.and_then(|config| self.connect(config)).map_err(|error| no_api_server(&error))
    }

    /// The same by a kubeconfig file, unless a client is given.
    pub async fn client_by(&self, kubeconfig: &Path) -> Result<Client> {
        if let ApiAccess::Given(client) = &self.api {
            return Ok(client.clone());
        }
        let read = Kubeconfig::read_from(kubeconfig).map_err(|error| no_api_server(&error))?;
        let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await;
        self.connect(config.map_err(|error| no_api_server(&error))?).map_err(|error| no_api_server(&error))
    }

    fn connect(&self, mut config: kube::Config) -> kube::Result<Client> {
        let user_agent = HeaderValue::from_str(&capstan_http::user_agent(self.role));
        config.headers.extend(user_agent.ok().map(|value| (USER_AGENT, value)));
        Client::try_from(config)
    }
}

fn no_api_server(error: &dyn std::fmt::Display) -> Error {
    Error::Outside(format!("no API server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_root_once() {
        let source = || Arc::new(Source::nvml(Roots::local()));
        let cx = |root: &str| Cx::new(source(), Roots::local(), root, CancellationToken::new());
        for (root, path, wanted) in [
            ("/", "/run/nvidia", "/run/nvidia"),
            ("/n", "relative", "relative"),
            ("/n", "/run/nvidia", "/n/run/nvidia"),
            ("/n", "/n/run/nvidia", "/n/run/nvidia"),
            ("/n", "", ""),
        ] {
            assert_eq!(cx(root).path(Path::new(path)), Path::new(wanted), "{path} below {root}");
        }
    }
}
