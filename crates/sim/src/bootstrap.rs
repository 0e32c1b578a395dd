//! Objects that are there before anybody creates anything.

use capstan_apiserver::admit::Addresses;
use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{Caller, Server, Target, WriteOptions};
use serde_json::{Value, json};

use crate::writer::is_already_exists;

/// Where the control plane would be: the address before that of the first node. Endpoints may not be on loopback.
const CONTROL_PLANE: &str = "172.16.0.1";

/// Creates the service `kubernetes` with its endpoints, and the priority classes of the system.
pub(crate) async fn install(server: &Server, addresses: &Addresses, port: u16) -> Result<()> {
    let first = std::net::Ipv4Addr::from_bits(addresses.network.to_bits() + 1).to_string();
    let service = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": first, "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    create(server, "", "services", Some("default"), service).await?;
    install_endpoints(server, port).await?;
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        create(server, "scheduling.k8s.io", "priorityclasses", None, class).await?;
    }
    Ok(())
}

/// What is behind the service `kubernetes`: it has no selector, and a real server writes this itself.
async fn install_endpoints(server: &Server, port: u16) -> Result<()> {
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": CONTROL_PLANE}], "ports": ports}],
    });
    create(server, "", "endpoints", Some("default"), endpoints).await?;
    let slice = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_PLANE], "conditions": {"ready": true}}],
        "ports": ports,
    });
    create(server, "discovery.k8s.io", "endpointslices", Some("default"), slice).await
}

async fn create(server: &Server, group: &str, plural: &str, namespace: Option<&str>, body: Value) -> Result<()> {
    let Some(resource) = server.registry().lookup(group, "v1", plural) else { return Ok(()) };
    let target = Target::all(resource, namespace);
    match server.create(&Caller::system("apiserver"), &target, body.into(), &WriteOptions::default()).await {
        Err(error) if is_already_exists(&error) => Ok(()),
        other => other.map(drop),
    }
}
