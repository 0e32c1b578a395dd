//! Resolution of Services by their endpoints in the store.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use super::{Endpoint, ServiceReference};
use crate::admit::json::Read;
use crate::ops::Server;
use crate::store::{LabelSelector, Selection, TableKey};

/// The first ready endpoint of a service.
pub(super) fn resolve(server: &Server, reference: &ServiceReference) -> Result<Endpoint, String> {
    let ServiceReference { namespace, name, port } = reference;
    let store = server.store();
    let Some(service) = store.get(&TableKey::new("", "services"), namespace, name) else {
        return Err(format!("service {name:?} not found"));
    };
    let service = service.value();
    let mut ports = service["spec"].list("ports").iter();
    let Some(wanted) = ports.find(|one| one.number("port") == Some(i64::from(*port))) else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let labels = LabelSelector::parse(&format!("kubernetes.io/service-name={name}")).unwrap_or_default();
    let selection = Selection { labels, ..Selection::namespace(namespace) };
    let slices = store.select(&TableKey::new("discovery.k8s.io", "endpointslices"), &selection);
    let found = slices.iter().find_map(|slice| endpoint(&slice.value(), wanted.text("name")));
    found.map(Endpoint::Address).ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

fn endpoint(slice: &Value, port: &str) -> Option<SocketAddr> {
    let port = slice.list("ports").iter().find(|one| one.text("name") == port)?.number("port")?;
    let ready = |endpoint: &&Value| endpoint["conditions"].get("ready").is_none_or(|ready| ready != false);
    let endpoint = slice.list("endpoints").iter().find(ready)?;
    let address: IpAddr = endpoint["addresses"][0].as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, u16::try_from(port).ok()?))
}
