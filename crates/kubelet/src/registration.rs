//! How a plugin announces itself in the kubelet's plugin directory, version 1: the kubelet finds its socket there
//! and asks.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::server::{Answer, Call, Service};

/// Directory that the kubelet searches for sockets.
pub const DIRECTORY: &str = "/var/lib/kubelet/plugins_registry";

/// Name of the call that asks who we are.
pub const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// Name of the call that says whether we were taken.
pub const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// Asks who we are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InfoRequest {}

/// Who we are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PluginInfo {
    /// `DRAPlugin`, `DevicePlugin` or `CSIPlugin`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Socket that serves it; empty when it is the one that was asked.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Versions of its services.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Whether we were taken.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatus {
    /// Yes or no.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Nothing.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegistrationStatusResponse {}

/// Announces one plugin: says who it is, and hands on whether it was taken.
pub struct Announcement {
    /// Who it is.
    pub info: PluginInfo,
    /// Told what the kubelet decided, each time it does.
    pub taken: tokio::sync::watch::Sender<Option<RegistrationStatus>>,
}

impl Service for Announcement {
    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            match call.name() {
                GET_INFO => call.unary(move |_: InfoRequest| Ok(self.info.clone())).await,
                NOTIFY => {
                    call.unary(move |status: RegistrationStatus| {
                        self.taken.send_replace(Some(status));
                        Ok(RegistrationStatusResponse {})
                    })
                    .await
                }
                _ => call.unknown(),
            }
        })
    }
}
