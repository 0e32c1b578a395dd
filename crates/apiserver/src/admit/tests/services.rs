//! Services: addresses, ports and defaults through the whole server.

use super::*;

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["ports"].is_null() && spec["type"] != "ExternalName" {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_service_gets_an_address_of_its_own() {
    let bench = Bench::new(Settings::alone()).await;
    let selector = json!({"app": "web"});
    let one = bench.create("services", service("a", json!({"selector": selector}))).await.unwrap();
    let two = bench.create("services", service("b", json!({"selector": selector}))).await.unwrap();
    let ip = one["spec"]["clusterIP"].as_str().unwrap();
    assert!(ip.starts_with("10."), "{ip}");
    assert_ne!(one["spec"]["clusterIP"], two["spec"]["clusterIP"]);
    assert_eq!(one["spec"]["clusterIPs"], json!([ip]));
    assert_eq!(one["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(one["spec"]["ipFamilyPolicy"], "SingleStack");
    assert_eq!(one["status"], json!({"loadBalancer": {}}));
}

#[tokio::test]
async fn an_address_that_is_asked_for_is_had_once() {
    let bench = Bench::new(Settings::alone()).await;
    let wanted = || json!({"clusterIP": "10.96.0.10"});
    bench.create("services", service("a", wanted())).await.unwrap();
    assert_eq!(
        refused(bench.create("services", service("b", wanted())).await),
        (422, "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.10\"]: failed to allocate IP 10.96.0.10: provided IP is already allocated".into())
    );
    bench.delete("services", "a").await.unwrap();
    bench.create("services", service("b", wanted())).await.unwrap();
    let outside = bench.create("services", service("c", json!({"clusterIP": "1.2.3.4"}))).await;
    assert_eq!(
        refused(outside).1,
        "Service \"c\" is invalid: spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided network does not match the current range"
    );
}

#[tokio::test]
async fn node_ports_are_shared_by_the_protocols_of_a_port_and_by_nobody_else() {
    let bench = Bench::new(Settings::alone()).await;
    let ports = json!([
        {"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"},
        {"name": "x", "port": 80, "nodePort": 30080},
    ]);
    let one = bench.create("services", service("a", json!({"type": "NodePort", "ports": ports}))).await.unwrap();
    let ports = &one["spec"]["ports"];
    assert!((30000..=32767).contains(&ports[0]["nodePort"].as_i64().unwrap()));
    assert_eq!(ports[0]["nodePort"], ports[1]["nodePort"]);
    assert_eq!(ports[2]["nodePort"], 30080);
    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    assert_eq!(
        refused(bench.create("services", service("b", taken)).await).1,
        "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    );
    let outside = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]});
    assert_eq!(
        refused(bench.create("services", service("b", outside)).await).1,
        "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"
    );
}

#[tokio::test]
async fn what_a_type_needs_comes_and_goes_with_it() {
    let bench = Bench::new(Settings::alone()).await;
    let selector = json!({"app": "web"});
    let before =
        bench.create("services", service("a", json!({"type": "NodePort", "selector": selector}))).await.unwrap();
    // A new port without values, and an update without the allocated values: both keep the old ones.
    let mut spec = before["spec"].clone();
    for key in ["clusterIP", "clusterIPs"] {
        spec.as_object_mut().unwrap().remove(key);
    }
    spec["ports"][0].as_object_mut().unwrap().remove("nodePort");
    let target = bench.target("services", Some("a"));
    let again = service("a", spec);
    let kept = bench.server.update(&bench.caller, &target, again.into(), &bench.options).await.unwrap().object.value();
    assert_eq!(kept["spec"], before["spec"]);
    let plain = bench.patch("services", "a", json!({"spec": {"type": "ClusterIP"}})).await.unwrap();
    assert!(plain["spec"]["ports"][0]["nodePort"].is_null());
    assert!(plain["spec"]["externalTrafficPolicy"].is_null());
    assert_eq!(plain["spec"]["clusterIP"], before["spec"]["clusterIP"]);
    let external = json!({"spec": {"type": "ExternalName", "externalName": "x.example"}});
    let external = bench.patch("services", "a", external).await.unwrap();
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        assert!(external["spec"][key].is_null(), "{key}");
    }
}

#[tokio::test]
async fn headless_services_have_no_address() {
    let bench = Bench::new(Settings::alone()).await;
    let selected = service("a", json!({"clusterIP": "None", "selector": {"app": "web"}}));
    let selected = bench.create("services", selected).await.unwrap();
    assert_eq!(selected["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(selected["spec"]["ipFamilyPolicy"], "SingleStack");
    let free = bench.create("services", service("b", json!({"clusterIP": "None"}))).await.unwrap();
    assert_eq!(free["spec"]["ipFamilyPolicy"], "RequireDualStack");
    assert_eq!(free["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    let both = service("c", json!({"ipFamilyPolicy": "RequireDualStack"}));
    assert_eq!(
        refused(bench.create("services", both).await).1,
        "Service \"c\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"
    );
}

#[tokio::test]
async fn load_balancers_that_keep_traffic_local_are_checked_on_a_port() {
    let bench = Bench::new(Settings::alone()).await;
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let service = bench.create("services", service("a", spec)).await.unwrap();
    assert!((30000..=32767).contains(&service["spec"]["healthCheckNodePort"].as_i64().unwrap()));
    let cluster = bench.patch("services", "a", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await.unwrap();
    assert!(cluster["spec"]["healthCheckNodePort"].is_null());
}

#[tokio::test]
async fn a_full_range_is_full_until_somebody_leaves() {
    use std::net::Ipv4Addr;
    let addresses = super::super::Addresses { network: Ipv4Addr::new(10, 0, 0, 0), prefix: 29, ports: 30000..=30001 };
    let bench = Bench::new(Settings { addresses, ..Settings::alone() }).await;
    for at in 0..6 {
        bench.create("services", service(&format!("s{at}"), json!({}))).await.unwrap();
    }
    assert_eq!(
        refused(bench.create("services", service("more", json!({}))).await),
        (500, "Internal error occurred: failed to allocate a serviceIP: range is full".into())
    );
    bench.delete("services", "s3").await.unwrap();
    bench.create("services", service("more", json!({}))).await.unwrap();
}
