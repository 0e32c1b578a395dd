//! Printers of Services, endpoints, Ingresses and NetworkPolicies.

use jiff::Timestamp;
use serde_json::Value;

use super::format::{NONE, UNKNOWN, UNSET, labels, list, number, selector, some_of, text, text_or};
use super::{AGE, Cells, Column, NAME, Printer, age, name};

pub(super) fn printer(group: &str, kind: &str) -> Option<Printer> {
    let (columns, cells): (&'static [Column], Cells) = match (group, kind) {
        ("", "Service") => (SERVICE, service),
        ("", "Endpoints") => (ENDPOINTS, endpoints),
        ("discovery.k8s.io", "EndpointSlice") => (ENDPOINT_SLICE, endpoint_slice),
        ("networking.k8s.io", "Ingress") => (INGRESS, ingress),
        ("networking.k8s.io", "IngressClass") => (INGRESS_CLASS, ingress_class),
        ("networking.k8s.io", "NetworkPolicy") => (NETWORK_POLICY, |object, now| {
            vec![name(object), selector(object.pointer("/spec/podSelector")).into(), age(object, now)]
        }),
        ("networking.k8s.io", "ServiceCIDR") => (SERVICE_CIDR, |object, now| {
            vec![name(object), strings(list(object, "/spec/cidrs")).join(",").into(), age(object, now)]
        }),
        ("networking.k8s.io", "IPAddress") => (IP_ADDRESS, ip_address),
        _ => return None,
    };
    Some(Printer { columns, cells })
}

fn strings(values: &[Value]) -> Vec<String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

const SERVICE: &[Column] = &[
    NAME,
    Column::of("Type", "string", "core.v1.ServiceSpec", "type"),
    Column::of("Cluster-IP", "string", "core.v1.ServiceSpec", "clusterIP"),
    Column::of("External-IP", "string", "core.v1.ServiceSpec", "externalIPs"),
    Column::of("Port(s)", "string", "core.v1.ServiceSpec", "ports"),
    AGE,
    Column::of("Selector", "string", "core.v1.ServiceSpec", "selector").wide(),
];

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let inside = text_or(object, "/spec/clusterIPs/0", text_or(object, "/spec/clusterIP", NONE));
    let ports: Vec<String> = list(object, "/spec/ports")
        .iter()
        .map(|port| {
            let (number_, protocol) = (number(port, "/port"), text_or(port, "/protocol", "TCP"));
            match number(port, "/nodePort") {
                0 => format!("{number_}/{protocol}"),
                node => format!("{number_}:{node}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() { NONE.to_owned() } else { ports.join(",") };
    vec![
        name(object),
        text(object, "/spec/type").into(),
        inside.into(),
        external(object).into(),
        ports.into(),
        age(object, now),
        labels(object.pointer("/spec/selector")).into(),
    ]
}

fn external(object: &Value) -> String {
    let addresses = strings(list(object, "/spec/externalIPs"));
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" if addresses.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => addresses.join(","),
        "LoadBalancer" => {
            let all = [balancer(object), addresses].concat();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Addresses and host names of a load balancer.
fn balancer(object: &Value) -> Vec<String> {
    let points = list(object, "/status/loadBalancer/ingress").iter();
    let mut names: Vec<String> =
        points.map(|point| text_or(point, "/ip", text(point, "/hostname")).to_owned()).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

const ENDPOINTS: &[Column] = &[NAME, Column::of("Endpoints", "string", "core.v1.Endpoints", "subsets"), AGE];

fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let addresses = list(subset, "/addresses");
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses.iter().map(|address| text(address, "/ip").to_owned()));
        }
        for port in ports {
            all.extend(addresses.iter().map(|address| format!("{}:{}", text(address, "/ip"), number(port, "/port"))));
        }
    }
    vec![name(object), some_of(&all, 3, NONE).into(), age(object, now)]
}

const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    Column::of("AddressType", "string", "discovery.v1.EndpointSlice", "addressType"),
    Column::of("Ports", "string", "discovery.v1.EndpointSlice", "ports"),
    Column::of("Endpoints", "string", "discovery.v1.EndpointSlice", "endpoints"),
    AGE,
];

fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(object, "/ports")
        .iter()
        .map(|port| port["port"].as_i64().map_or("*".to_owned(), |port| port.to_string()))
        .collect();
    let addresses: Vec<String> =
        list(object, "/endpoints").iter().flat_map(|endpoint| strings(list(endpoint, "/addresses"))).collect();
    vec![
        name(object),
        text(object, "/addressType").into(),
        some_of(&ports, 3, UNSET).into(),
        some_of(&addresses, 3, UNSET).into(),
        age(object, now),
    ]
}

const INGRESS: &[Column] = &[
    NAME,
    Column::own(
        "Class",
        "string",
        "The name of the IngressClass resource that should be used for additional configuration",
    ),
    Column::own("Hosts", "string", "Hosts that incoming requests are matched against before the ingress rule"),
    Column::own("Address", "string", "Address is a list containing ingress points for the load-balancer"),
    Column::own("Ports", "string", "Ports of TLS configurations that open"),
    AGE,
];

fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let class = text_or(object, "/spec/ingressClassName", NONE);
    let hosts: Vec<String> = list(object, "/spec/rules")
        .iter()
        .map(|rule| text(rule, "/host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let ports = if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
    vec![
        name(object),
        class.into(),
        some_of(&hosts, 3, "*").into(),
        balancer(object).join(",").into(),
        ports.into(),
        age(object, now),
    ]
}

const INGRESS_CLASS: &[Column] = &[
    NAME,
    Column::own("Controller", "string", "Controller that is responsible for handling this class"),
    Column::own("Parameters", "string", "A reference to a resource with additional parameters"),
    AGE,
];

fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = &object["spec"]["parameters"];
    let shown = if parameters.is_object() {
        let kind = text(parameters, "/kind");
        let group = text(parameters, "/apiGroup");
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", text(parameters, "/name"))
    } else {
        NONE.to_owned()
    };
    vec![name(object), text(object, "/spec/controller").into(), shown.into(), age(object, now)]
}

const NETWORK_POLICY: &[Column] =
    &[NAME, Column::of("Pod-Selector", "string", "networking.v1.NetworkPolicySpec", "podSelector"), AGE];

const SERVICE_CIDR: &[Column] = &[NAME, Column::of("CIDRs", "string", "networking.v1.ServiceCIDRSpec", "cidrs"), AGE];

/// The age has a cell but no column, as in kube-apiserver.
const IP_ADDRESS: &[Column] = &[NAME, Column::of("ParentRef", "string", "networking.v1.IPAddressSpec", "parentRef")];

fn ip_address(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = &object["spec"]["parentRef"];
    let group = text(parent, "/group");
    let dot = if group.is_empty() { "" } else { "." };
    let parts = [text(parent, "/namespace"), text(parent, "/name")];
    let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let shown = format!("{}{dot}{group}/{}", text(parent, "/resource"), path.join("/"));
    vec![name(object), shown.into(), age(object, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_shows_how_it_is_reached() {
        let ports = json!([{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
        let cases = [
            (json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": ports}), "10.0.0.1", "<none>"),
            (json!({"type": "LoadBalancer", "ports": ports}), "<none>", "<pending>"),
            (json!({"type": "ExternalName", "externalName": "x.org", "ports": ports}), "<none>", "x.org"),
        ];
        for (spec, inside, outside) in cases {
            let cells = service(&json!({"metadata": {"name": "s"}, "spec": spec}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells[2..5], [json!(inside), json!(outside), json!("80:30080/TCP,53/UDP")]);
        }
    }
}
