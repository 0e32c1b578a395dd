//! The kubelet's plugin registration API, version 1: the kubelet finds a socket in its plugin directory and calls it.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::server::{Answer, Call, Service};

/// The kubelet's plugin directory.
pub const DIRECTORY: &str = "/var/lib/kubelet/plugins_registry";

/// Reads the plugin's info.
pub const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// Reports whether the plugin was registered.
pub const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// Reads the plugin's info.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InfoRequest {}

/// A plugin's info.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// `DRAPlugin`, `DevicePlugin` or `CSIPlugin`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Socket of the plugin; empty for the registration socket itself.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Versions of its services.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Result of the registration.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// Whether it was registered.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// The error.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// An empty response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatusResponse {}

/// Serves the registration API of one plugin.
pub struct RegistrationService {
    /// Its info.
    pub info: PluginInfo,
    /// The kubelet's latest registration result.
    pub status: tokio::sync::watch::Sender<Option<RegistrationStatus>>,
}

impl Service for RegistrationService {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match call.name() {
                GET_INFO => call.unary(move |_: InfoRequest| Ok(self.info.clone())).await,
                NOTIFY => {
                    call.unary(move |status: RegistrationStatus| {
                        self.status.send_replace(Some(status));
                        Ok(RegistrationStatusResponse {})
                    })
                    .await
                }
                _ => call.unknown(),
            }
        })
    }
}
