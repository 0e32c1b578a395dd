//! Context of every role: hardware, file system root, environment and API server, all explicit, so that several nodes
//! can run in one process.

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

/// Opens the driver below the given roots.
pub type OpenDriver = Arc<dyn Fn(&Roots) -> capstan_hw::Result<Arc<dyn Hardware>> + Send + Sync>;

/// How the API server is reached.
#[derive(Clone, Default)]
pub enum ApiAccess {
    /// From the environment: a kubeconfig, or the pod's service account.
    #[default]
    Environment,
    /// Through this client.
    Given(Client),
}

/// Environment variables, besides those that clap reads.
#[derive(Debug, Clone, Default)]
pub enum Variables {
    /// The process environment.
    #[default]
    Process,
    /// Only these.
    Given(BTreeMap<String, String>),
}

/// Where a role runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// In a container with its own network namespace and GPUs.
    #[default]
    Container,
    /// On a virtual node: it shares this machine's network namespace with others, and its GPUs compute nothing.
    VirtualNode,
}

/// Context of a role.
#[derive(Clone)]
pub struct Cx {
    /// The GPUs of this node.
    pub hardware: Arc<Source>,
    /// Opens a driver at other roots than those of [`Cx::hardware`].
    pub open_driver: OpenDriver,
    /// Roots of the driver and of its device nodes.
    pub roots: Roots,
    /// Root of the file system: `/`, or the directory of a test or virtual node.
    pub root: PathBuf,
    /// Cancelled when the role must stop.
    pub stop: CancellationToken,
    /// How the API server is reached.
    pub api: ApiAccess,
    /// Environment variables, besides those that clap reads.
    pub variables: Variables,
    /// User agent for the API server: the role, or `agent`.
    pub role: &'static str,
    /// Health of the roles in this process.
    pub health: Arc<Health>,
    /// Container or virtual node.
    pub place: Place,
}

impl Cx {
    /// A context with the API access and environment of the process.
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
            health: Arc::default(),
            place: Place::default(),
        }
    }

    /// Binds an address; on a virtual node any loopback port, as several nodes want the same one.
    pub async fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let address = match self.place {
            Place::Container => address,
            Place::VirtualNode => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        };
        let failed = |source| Error::Io { what: format!("cannot listen on {address}"), source };
        TcpListener::bind(address).await.map_err(failed)
    }

    /// Resolves a path given to a role: an absolute path is below [`Cx::root`].
    pub fn path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(rest) if !path.starts_with(&self.root) => self.root.join(rest),
            _ => path.to_owned(),
        }
    }

    /// [`Cx::path`] for an optional path.
    pub fn path_of(&self, path: Option<PathBuf>) -> Option<PathBuf> {
        path.map(|path| self.path(&path))
    }

    /// The value of a variable, if set.
    pub fn variable(&self, name: &str) -> Option<String> {
        match &self.variables {
            Variables::Process => std::env::var(name).ok(),
            Variables::Given(variables) => variables.get(name).cloned(),
        }
    }

    /// A client of the API server with this role as user agent.
    pub async fn client(&self) -> Result<Client> {
        let config = match &self.api {
            ApiAccess::Given(client) => return Ok(client.clone()),
            ApiAccess::Environment => kube::Config::infer().await.map_err(kube::Error::InferConfig),
        };
        config.and_then(|config| self.connect(config)).map_err(|error| no_api_server(&error))
    }

    /// A client from a kubeconfig file, unless a client was given.
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
    Error::External(format!("no API server: {error}"))
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
