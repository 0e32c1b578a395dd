//! The Endpoints object of a Service: all addresses in one object, for clients that do not read EndpointSlices.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_apiserver::ops::DeleteOptions;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service};

use super::super::common::{
    Controller, Outcome, Reconciled, annotation, ignore_not_found, namespace_is_terminating, set_in,
};
use super::super::pods;
use super::{hostname, ip, labels, members, meta_for, publishes_not_ready, selector, target, target_port, watch};
use crate::Pod;
use crate::context::Context;

/// Maximum number of addresses; the rest is truncated.
const CAPACITY: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

pub(super) fn start(context: &Context) {
    let controller = Controller::new(context, "endpoint-controller", "endpoint-controller");
    watch(&controller);
    controller.watch(&context.caches.endpoints);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let old = this.context.caches.endpoints.get(key);
    let Some(service) = this.context.caches.services.get(key) else {
        // Endpoints of Services without a selector belong to the user, also on deletion.
        if let Some(old) = old.filter(|old| is_ours(old)) {
            ignore_not_found(this.writer.delete(&*old, DeleteOptions::default()).await)?;
        }
        return Ok(Outcome::Done);
    };
    if selector(&service).is_none() || service.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    let mut pods = members(this, &service);
    pods.retain(|pod| publishes_not_ready(&service) || !pods::is_deleting(pod));
    let over = pods.len() > CAPACITY;
    pods.truncate(CAPACITY);
    let subsets = Some(subsets(&service, &pods));
    let mut labels = labels(&service);
    labels.insert(MANAGED_BY.to_owned(), "endpoint-controller".to_owned());
    match old {
        None => {
            let mut metadata = meta_for(&service);
            metadata.name.clone_from(&service.metadata.name);
            metadata.labels = Some(labels);
            if over {
                set_in(&mut metadata.annotations, OVER_CAPACITY, "truncated");
            }
            match this.writer.create(&Endpoints { metadata, subsets }).await {
                Err(error) if namespace_is_terminating(&error) => {}
                other => other.map(drop)?,
            }
        }
        Some(old) => {
            let mut next = Endpoints::clone(&old);
            next.metadata.labels = Some(labels);
            if over {
                set_in(&mut next.metadata.annotations, OVER_CAPACITY, "truncated");
            } else if annotation(&next.metadata, OVER_CAPACITY).is_some() {
                next.metadata.annotations.get_or_insert_default().remove(OVER_CAPACITY);
            }
            // Absent and empty lists are equal.
            if next.subsets.clone().unwrap_or_default() != subsets.clone().unwrap_or_default() {
                next.subsets = subsets;
            }
            this.writer.update(&old, &next).await?;
        }
    }
    Ok(Outcome::Done)
}

fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED_BY))
}

fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    type Addresses = BTreeMap<String, EndpointAddress>;
    let mut groups: Vec<(Vec<EndpointPort>, Addresses, Addresses)> = Vec::new();
    for pod in pods {
        let ports = ports(service, pod);
        let at = match groups.iter().position(|(mine, ..)| *mine == ports) {
            Some(at) => at,
            None => {
                groups.push((ports, BTreeMap::new(), BTreeMap::new()));
                groups.len() - 1
            }
        };
        let address = EndpointAddress {
            ip: ip(pod).to_owned(),
            hostname: hostname(service, pod),
            node_name: Some(pods::node_name(pod)).filter(|node| !node.is_empty()).map(str::to_owned),
            target_ref: Some(target(pod)),
        };
        let (_, ready, not_ready) = &mut groups[at];
        let list = if publishes_not_ready(service) || pods::is_ready(pod) { ready } else { not_ready };
        list.insert(address.ip.clone(), address);
    }
    groups.sort_by_key(|(ports, ..)| ports.iter().map(|port| port.port).collect::<Vec<_>>());
    let list = |addresses: Addresses| {
        let list: Vec<_> = addresses.into_values().collect();
        (!list.is_empty()).then_some(list)
    };
    let subset = |(ports, ready, not_ready): (Vec<EndpointPort>, Addresses, Addresses)| EndpointSubset {
        addresses: list(ready),
        not_ready_addresses: list(not_ready),
        ports: (!ports.is_empty()).then_some(ports),
    };
    groups.into_iter().map(subset).collect()
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: target_port(port, pod)?,
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}
