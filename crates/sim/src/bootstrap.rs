//! Objects that are there before anybody creates anything.

use capstan_apiserver::admit::Addresses;
use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{Caller, Server, Target, WriteOptions};
use serde_json::{Value, json};

use crate::writer::is_already_exists;

/// Creates the service `kubernetes` and the priority classes of the system.
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

async fn create(server: &Server, group: &str, plural: &str, namespace: Option<&str>, body: Value) -> Result<()> {
    let Some(resource) = server.registry().lookup(group, "v1", plural) else { return Ok(()) };
    let target = Target::all(resource, namespace);
    match server.create(&Caller::system("apiserver"), &target, body.into(), &WriteOptions::default()).await {
        Err(error) if is_already_exists(&error) => Ok(()),
        other => other.map(drop),
    }
}
