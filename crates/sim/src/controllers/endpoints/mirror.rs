//! EndpointSlice mirroring: slices for user-written Endpoints of Services without a selector.

use std::sync::Arc;

use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::common::{
    Controller, Outcome, Reconciled, annotation, ignore_not_found, name_of, namespace_is_terminating, uid_of,
};
use super::super::pods::controller_ref;
use super::selector;
use super::slices::{MANAGED_BY, SERVICE_NAME, label, same};
use crate::context::Context;

/// Maximum number of addresses per subset that are mirrored.
const MAX_ENDPOINTS_PER_SUBSET: usize = 1000;
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Label that opts out of mirroring.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints were once used as leader election locks: those have no addresses.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

pub(super) fn start(context: &Context) {
    let account = "endpointslicemirroring-controller";
    let controller = Controller::new(context, account, "endpoint-slice-mirroring-controller");
    controller.watch(&context.caches.endpoints);
    controller.watch(&context.caches.services);
    controller.watch_owned::<Endpoints, _>(&context.caches.endpoint_slices);
    controller.run(1, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    // Slices of deleted Endpoints are garbage collected as dependents.
    let Some(endpoints) = this.context.caches.endpoints.get(key) else { return Ok(Outcome::Done) };
    let mut slices = this.context.caches.endpoint_slices.controlled_by(uid_of(&*endpoints));
    slices.retain(|slice| label(slice, MANAGED_BY) == Some(MANAGER));
    let wanted = if is_mirrored(this, &endpoints, key) { mirror(&endpoints) } else { Vec::new() };
    for next in wanted {
        let mirrors = |old: &Arc<EndpointSlice>| old.address_type == next.address_type && old.ports == next.ports;
        match slices.iter().position(mirrors) {
            Some(at) => {
                let old = slices.swap_remove(at);
                if !same(&old, &next) {
                    let metadata = ObjectMeta { labels: next.metadata.labels, ..old.metadata.clone() };
                    this.writer.update(&old, &EndpointSlice { metadata, ..next }).await?;
                }
            }
            None => match this.writer.create(&next).await {
                Err(error) if namespace_is_terminating(&error) => return Ok(Outcome::Done),
                other => other.map(drop)?,
            },
        }
    }
    for slice in slices {
        ignore_not_found(this.writer.delete(&*slice, DeleteOptions::default()).await)?;
    }
    Ok(Outcome::Done)
}

fn is_mirrored(this: &Controller, endpoints: &Endpoints, key: &str) -> bool {
    let skipped = endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(SKIP)).is_some_and(|on| on == "true");
    let service = this.context.caches.services.get(key);
    !skipped
        && annotation(&endpoints.metadata, LEADER).is_none()
        && endpoints.metadata.deletion_timestamp.is_none()
        && service.is_some_and(|service| selector(&service).is_none())
}

/// One slice for each subset and address family.
fn mirror(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let subsets = endpoints.subsets.iter().flatten();
    let slices = subsets.flat_map(|subset| ["IPv4", "IPv6"].map(|family| slice(endpoints, subset, family)));
    slices.flatten().collect()
}

fn slice(owner: &Endpoints, subset: &EndpointSubset, family: &str) -> Option<EndpointSlice> {
    let list = |addresses: &Option<Vec<EndpointAddress>>, ready: bool| {
        let addresses = addresses.clone().unwrap_or_default().into_iter();
        addresses.filter(|one| one.ip.contains(':') == (family == "IPv6")).map(move |one| endpoint(one, ready))
    };
    let endpoints = list(&subset.addresses, true).chain(list(&subset.not_ready_addresses, false));
    let endpoints: Vec<Endpoint> = endpoints.take(MAX_ENDPOINTS_PER_SUBSET).collect();
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    let mut labels = owner.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name_of(owner).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let metadata = ObjectMeta {
        namespace: owner.metadata.namespace.clone(),
        generate_name: Some(format!("{}-", name_of(owner))),
        labels: Some(labels),
        owner_references: Some(vec![controller_ref(owner)]),
        ..ObjectMeta::default()
    };
    let slice = EndpointSlice {
        metadata,
        address_type: family.to_owned(),
        ports: Some(ports.collect()),
        endpoints: Some(endpoints),
    };
    slice.endpoints.as_ref().is_some_and(|endpoints| !endpoints.is_empty()).then_some(slice)
}

fn endpoint(address: EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname,
        node_name: address.node_name,
        target_ref: address.target_ref,
        ..Endpoint::default()
    }
}
