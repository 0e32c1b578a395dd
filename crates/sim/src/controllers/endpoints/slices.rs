//! EndpointSlice controller: a hundred endpoints per slice, and as few writes as possible when pods change.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use super::super::common::{
    Controller, Outcome, Reconciled, ignore_not_found, name_of, namespace_is_terminating, uid_of,
};
use super::super::pods::{self, controller_ref};
use super::{hostname, ip, labels, members, meta_for, publishes_not_ready, selector, target, target_port, watch};
use crate::Pod;
use crate::context::Context;

/// Maximum number of endpoints in a slice.
const MAX_ENDPOINTS_PER_SLICE: usize = 100;
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "endpointslice-controller", "endpoint-slice-controller");
    watch(&controller);
    controller.watch_owned::<Service, _>(&context.caches.endpoint_slices);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(service) = this.context.caches.services.get(key) else { return Ok(Outcome::Done) };
    if selector(&service).is_none() || service.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let mut slices = this.context.caches.endpoint_slices.controlled_by(uid_of(&*service));
    slices.retain(|slice| label(slice, MANAGED_BY) == Some(MANAGER));
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone());
    let pods = members(this, &service);
    for family in families.unwrap_or_else(|| vec!["IPv4".to_owned()]) {
        let wanted = group(this, &service, &pods, &family);
        let (mine, others) = slices.into_iter().partition(|slice| slice.address_type == family);
        slices = others;
        reconcile_slices(this, &service, &family, wanted, mine).await?;
    }
    for slice in slices {
        ignore_not_found(this.writer.delete(&*slice, DeleteOptions::default()).await)?;
    }
    Ok(Outcome::Done)
}

pub(super) fn label<'a>(slice: &'a EndpointSlice, key: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Endpoints with the same ports: a named port may resolve to another number in each pod.
struct Group {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<String, Endpoint>,
}

fn group(this: &Controller, service: &Service, pods: &[Arc<Pod>], family: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for pod in pods {
        let address = addresses(pod).find(|ip| (if ip.contains(':') { "IPv6" } else { "IPv4" }) == family);
        let Some(address) = address else { continue };
        let ports = ports(service, pod);
        let (uid, endpoint) = (uid_of(&**pod).to_owned(), endpoint(this, service, pod, address));
        match groups.iter_mut().find(|group| group.ports == ports) {
            Some(group) => {
                group.endpoints.insert(uid, endpoint);
            }
            None => groups.push(Group { ports, endpoints: BTreeMap::from([(uid, endpoint)]) }),
        }
    }
    if groups.is_empty() {
        groups.push(Group { ports: Vec::new(), endpoints: BTreeMap::new() });
    }
    groups
}

fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let all = pod.status.as_ref().and_then(|status| status.pod_ips.as_ref());
    let all = all.into_iter().flatten().map(|one| one.ip.as_str());
    all.chain([ip(pod)]).filter(|ip| !ip.is_empty())
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(target_port(port, pod)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

fn endpoint(this: &Controller, service: &Service, pod: &Pod, address: &str) -> Endpoint {
    let (serving, terminating) = (pods::is_ready(pod), pods::is_deleting(pod));
    let node = Some(pods::node_name(pod)).filter(|node| !node.is_empty());
    let zone = node.and_then(|node| this.context.caches.nodes.get(node)?.metadata.labels.as_ref()?.get(ZONE).cloned());
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(publishes_not_ready(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(service, pod),
        node_name: node.map(str::to_owned),
        target_ref: Some(target(pod)),
        zone,
        ..Endpoint::default()
    }
}

/// Reconciles the slices of an address family: endpoints keep their slice, new ones fill slices with free capacity.
async fn reconcile_slices(
    this: &Controller,
    service: &Service,
    family: &str,
    wanted: Vec<Group>,
    mut slices: Vec<Arc<EndpointSlice>>,
) -> Result<()> {
    for mut group in wanted {
        let (mut mine, others): (Vec<_>, Vec<_>) =
            slices.into_iter().partition(|slice| slice.ports.clone().unwrap_or_default() == group.ports);
        slices = others;
        if mine.is_empty() {
            // A slice of obsolete ports is reused.
            mine.extend(slices.pop());
        }
        let mut next: Vec<EndpointSlice> =
            mine.iter().map(|slice| retain_desired(service, slice, &group.ports, &mut group.endpoints)).collect();
        let mut created: Vec<EndpointSlice> = Vec::new();
        let mut left: Vec<Endpoint> = group.endpoints.into_values().collect();
        for slice in &mut next {
            let endpoints = slice.endpoints.get_or_insert_default();
            let room = MAX_ENDPOINTS_PER_SLICE.saturating_sub(endpoints.len()).min(left.len());
            endpoints.extend(left.drain(..room));
        }
        while !left.is_empty() || (next.is_empty() && created.is_empty()) {
            let count = MAX_ENDPOINTS_PER_SLICE.min(left.len());
            created.push(new_slice(service, family, &group.ports, left.drain(..count).collect()));
        }
        write(this, &mine, next, created).await?;
    }
    for slice in slices {
        ignore_not_found(this.writer.delete(&*slice, DeleteOptions::default()).await)?;
    }
    Ok(())
}

/// A slice reduced to its endpoints that are still desired; these are removed from `wanted`.
fn retain_desired(
    service: &Service,
    slice: &EndpointSlice,
    ports: &[EndpointPort],
    wanted: &mut BTreeMap<String, Endpoint>,
) -> EndpointSlice {
    let mut next = slice.clone();
    let old = slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.as_ref());
    next.endpoints = Some(old.filter_map(|uid| wanted.remove(uid)).collect());
    next.ports = Some(ports.to_vec());
    next.metadata.labels = Some(slice_labels(service));
    next
}

fn slice_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = labels(service);
    labels.insert(SERVICE_NAME.to_owned(), name_of(service).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn new_slice(service: &Service, family: &str, ports: &[EndpointPort], endpoints: Vec<Endpoint>) -> EndpointSlice {
    let mut metadata = meta_for(service);
    metadata.generate_name = Some(format!("{}-", name_of(service)));
    metadata.labels = Some(slice_labels(service));
    metadata.owner_references = Some(vec![controller_ref(service)]);
    EndpointSlice { metadata, address_type: family.to_owned(), endpoints: Some(endpoints), ports: Some(ports.to_vec()) }
}

async fn write(
    this: &Controller,
    old: &[Arc<EndpointSlice>],
    next: Vec<EndpointSlice>,
    created: Vec<EndpointSlice>,
) -> Result<()> {
    let mut left = next.iter().filter(|slice| !is_empty(slice)).count() + created.len();
    for (old, next) in old.iter().zip(next) {
        // One empty slice remains, so that clients see that there are no endpoints.
        if is_empty(&next) && left > 0 {
            ignore_not_found(this.writer.delete(&**old, DeleteOptions::default()).await)?;
        } else {
            left = left.max(1);
            if !same(old, &next) {
                this.writer.update(old, &next).await?;
            }
        }
    }
    for slice in created {
        match this.writer.create(&slice).await {
            Err(error) if namespace_is_terminating(&error) => return Ok(()),
            other => other.map(drop)?,
        }
    }
    Ok(())
}

fn is_empty(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().flatten().next().is_none()
}

/// Whether two slices are equal; absent and empty lists are.
pub(super) fn same(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    old.endpoints.clone().unwrap_or_default() == new.endpoints.clone().unwrap_or_default()
        && old.ports.clone().unwrap_or_default() == new.ports.clone().unwrap_or_default()
        && old.metadata.labels == new.metadata.labels
}
