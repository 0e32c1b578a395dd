//! Endpoints of a service, inside the cluster and external.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::api::networking::v1::Ingress;

use capstan_api::foreign::{GrpcRoute, HttpRoute};
use capstan_api::nim::service::InferencePlatform;

use super::{Cx, kserve, service};

/// Addresses of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    /// Cluster-internal address, as in the status.
    pub(super) cluster: String,
    /// External address; empty if there is none.
    pub(super) external: String,
    /// URL of the model query.
    pub(super) url: String,
}

/// The addresses of the live objects; `None` while there is none.
pub(super) fn endpoints(cx: &Cx<'_>) -> Option<Endpoints> {
    if cx.platform() == InferencePlatform::KServe {
        let status = kserve::live(cx)?.status?;
        let inside = status.address.and_then(|address| address.url).filter(|url| !url.is_empty())?;
        let external = status.url.unwrap_or_default();
        return Some(Endpoints { cluster: inside.clone(), external, url: inside });
    }
    let live: Service = cx.facts.live.typed(&cx.namespace, &cx.name)?;
    let external = routed(cx).or_else(|| balanced(cx, &live)).unwrap_or_default();
    let address = live.spec?.cluster_ip.filter(|address| !address.is_empty() && address != "None")?;
    let address = if address.contains(':') { format!("[{address}]") } else { address };
    let cluster = format!("{address}:{}", service::port(cx));
    Some(Endpoints { url: format!("http://{cluster}"), cluster, external })
}

/// Host of an Ingress or of a route.
fn routed(cx: &Cx<'_>) -> Option<String> {
    if let Some(ingress) = cx.facts.live.typed::<Ingress>(&cx.namespace, &cx.name) {
        return host_of(cx, &ingress);
    }
    let hosts = |names: Option<Vec<String>>| names.and_then(|names| names.into_iter().next());
    let http: Option<HttpRoute> = cx.facts.live.typed(&cx.namespace, &cx.name);
    let grpc: Option<GrpcRoute> = cx.facts.live.typed(&cx.namespace, &cx.name);
    http.and_then(|route| hosts(route.spec.hostnames)).or_else(|| grpc.and_then(|route| hosts(route.spec.hostnames)))
}

/// Host of the first rule for the service; else the load balancer address.
fn host_of(cx: &Cx<'_>, ingress: &Ingress) -> Option<String> {
    let rules = ingress.spec.as_ref().and_then(|spec| spec.rules.as_ref()).into_iter().flatten();
    let leads_here = |rule: &&k8s_openapi::api::networking::v1::IngressRule| {
        let paths = rule.http.as_ref().map(|http| http.paths.as_slice()).unwrap_or_default();
        paths.iter().any(|path| path.backend.service.as_ref().is_some_and(|service| service.name == cx.name))
    };
    let named = rules.filter(leads_here).find_map(|rule| rule.host.clone().filter(|host| !host.is_empty()));
    named.or_else(|| {
        let status = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let first = status.and_then(|status| status.ingress.as_ref()).and_then(|list| list.first())?;
        first.hostname.clone().or_else(|| first.ip.clone())
    })
}

/// Address of the load balancer of the Service.
fn balanced(cx: &Cx<'_>, live: &Service) -> Option<String> {
    live.spec.as_ref().filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))?;
    let status = live.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let first: &LoadBalancerIngress =
        status.and_then(|status| status.ingress.as_ref()).and_then(|list| list.first())?;
    let address = first.hostname.clone().or_else(|| first.ip.clone())?;
    let address = if address.contains(':') { format!("[{address}]") } else { address };
    Some(format!("{address}:{}", service::port(cx)))
}
