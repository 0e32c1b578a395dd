//! Objects that every cluster has from the start.

use capstan_apiserver::admit::Addresses;
use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{Caller, Patch, PatchKind, Server, Target, WriteOptions};
use capstan_apiserver::store::TableKey;
use serde_json::{Value, json};

/// Address of the control plane: the one before that of the first node. Endpoints may not be on loopback.
const CONTROL_PLANE: &str = "172.16.0.1";

/// Creates the Service `kubernetes` with its endpoints, and the system PriorityClasses.
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
    let ports = json!({"spec": {"ports": service["spec"]["ports"]}});
    if create(server, "", "services", Some("default"), service).await? == Found::There {
        change(server, "", "services", ports).await?;
    }
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

/// Creates the endpoints of the Service `kubernetes`: it has no selector, so a real API server writes them itself.
async fn install_endpoints(server: &Server, port: u16) -> Result<()> {
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": CONTROL_PLANE}], "ports": ports}],
    });
    let subsets = json!({"subsets": endpoints["subsets"]});
    if create(server, "", "endpoints", Some("default"), endpoints).await? == Found::There {
        change(server, "", "endpoints", subsets).await?;
    }
    let slice = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_PLANE], "conditions": {"ready": true}}],
        "ports": ports,
    });
    let ports = json!({"ports": slice["ports"]});
    if create(server, "discovery.k8s.io", "endpointslices", Some("default"), slice).await? == Found::There {
        change(server, "discovery.k8s.io", "endpointslices", ports).await?;
    }
    Ok(())
}

/// Whether the object existed already.
#[derive(PartialEq, Eq)]
enum Found {
    Nowhere,
    There,
}

async fn create(server: &Server, group: &str, plural: &str, namespace: Option<&str>, body: Value) -> Result<Found> {
    let Some(resource) = server.registry().lookup(group, "v1", plural) else { return Ok(Found::Nowhere) };
    // GET first: a requested cluster IP that is taken is rejected before the duplicate name is.
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    if server.store().get(&TableKey::of(&resource), namespace.unwrap_or_default(), name).is_some() {
        return Ok(Found::There);
    }
    let target = Target::all(resource, namespace);
    let created = server.create(&Caller::system("apiserver"), &target, body.into(), &WriteOptions::default()).await;
    created.map(|_| Found::Nowhere)
}

/// Updates the endpoints of the Service `kubernetes`: a restarted cluster may have another port.
async fn change(server: &Server, group: &str, plural: &str, body: Value) -> Result<()> {
    let Some(resource) = server.registry().lookup(group, "v1", plural) else { return Ok(()) };
    let target = Target::one(resource, Some("default"), "kubernetes");
    let patch = Patch { kind: PatchKind::Merge, body: body.into() };
    server.patch(&Caller::system("apiserver"), &target, patch, &WriteOptions::default()).await.map(drop)
}
