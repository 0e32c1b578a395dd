//! Tests of defaulting.

use serde_json::{Value, json};

use super::apply;
use crate::admit::json::Read;
use crate::registry::Registry;

fn defaulted(api: &str, kind: &str, mut object: Value) -> Value {
    let (group, version) = crate::registry::group_version(api);
    let resource = Registry::builtin().by_kind(group, version, kind).expect(kind);
    apply(&resource, &mut object);
    let once = object.clone();
    apply(&resource, &mut object);
    assert_eq!(object, once, "defaults of {kind} change nothing the second time");
    object
}

#[test]
fn a_pod_gets_what_a_real_server_gives_it() {
    let pod = defaulted("v1", "Pod", json!({"spec": {"containers": [{"name": "a", "image": "nginx"}]}}));
    let expected = json!({"spec": {
        "containers": [{
            "name": "a", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }],
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
        "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
    }});
    assert_eq!(pod, expected);
}

#[test]
fn what_is_said_stays() {
    let spec = json!({
        "containers": [{
            "name": "a", "image": "nginx", "imagePullPolicy": "Never", "resources": {"limits": {"cpu": "1"}},
            "terminationMessagePath": "/x", "terminationMessagePolicy": "FallbackToLogsOnError",
        }],
        "dnsPolicy": "None", "restartPolicy": "Never", "schedulerName": "mine", "securityContext": {"runAsUser": 0},
        "terminationGracePeriodSeconds": 0,
    });
    let template = defaulted("v1", "PodTemplate", json!({"template": {"spec": spec.clone()}}));
    assert_eq!(template, json!({"template": {"spec": spec}}));
}

#[test]
fn images_are_pulled_by_their_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("localhost:5000/a/nginx", "Always"),
        ("localhost:5000/a/nginx:v1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(super::pull_policy(image), policy, "{image}");
    }
}

/// Kind, object, and what its spec (or itself, where there is none) must contain.
#[test]
fn kinds_get_their_defaults() {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
    let pod = json!({
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30, "containers": [],
    });
    let cases = [
        (
            "apps/v1 Deployment",
            json!({"template": template}),
            json!({
                "replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            }),
        ),
        ("apps/v1 Deployment", json!({"strategy": {"type": "Recreate"}}), json!({"strategy": {"type": "Recreate"}})),
        (
            "apps/v1 DaemonSet",
            json!({}),
            json!({
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            }),
        ),
        ("apps/v1 ReplicaSet", json!({}), json!({"replicas": 1})),
        (
            "apps/v1 StatefulSet",
            json!({"volumeClaimTemplates": [{"metadata": {"name": "a"}}]}),
            json!({
                "replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "volumeClaimTemplates": [{
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
                    "spec": {"volumeMode": "Filesystem", "resources": {}}, "status": {"phase": "Pending"},
                }],
            }),
        ),
        ("v1 ReplicationController", json!({"template": template}), json!({"replicas": 1, "selector": labels})),
        (
            "batch/v1 Job",
            json!({}),
            json!({
                "completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed",
                "suspend": false, "podReplacementPolicy": "TerminatingOrFailed",
            }),
        ),
        (
            "batch/v1 Job",
            json!({"parallelism": 2, "podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "x"}]}]}}),
            json!({
                "completions": null, "parallelism": 2, "podReplacementPolicy": "Failed",
                "podFailurePolicy": {"rules": [{"onPodConditions": [{"type": "x", "status": "True"}]}]},
            }),
        ),
        ("batch/v1 Job", json!({"backoffLimitPerIndex": 1}), json!({"backoffLimit": 2_147_483_647})),
        (
            "batch/v1 CronJob",
            json!({"jobTemplate": {"spec": {"template": template}}}),
            json!({
                "concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3,
                "failedJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {"template": {"metadata": {"labels": labels}, "spec": pod}}},
            }),
        ),
        ("autoscaling/v1 HorizontalPodAutoscaler", json!({}), json!({"minReplicas": 1, "metrics": null})),
        (
            "autoscaling/v2 HorizontalPodAutoscaler",
            json!({"behavior": {"scaleDown": {"selectPolicy": "Min"}}}),
            json!({
                "minReplicas": 1,
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                }],
                "behavior": {
                    "scaleDown": {
                        "selectPolicy": "Min",
                        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                    },
                    "scaleUp": {
                        "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                        "policies": [
                            {"type": "Pods", "value": 4, "periodSeconds": 15},
                            {"type": "Percent", "value": 100, "periodSeconds": 15},
                        ],
                    },
                },
            }),
        ),
        (
            "v1 Service",
            json!({"ports": [{"port": 80}, {"port": 81, "targetPort": "web", "protocol": "UDP"}]}),
            json!({
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": null,
                "ports": [
                    {"port": 80, "targetPort": 80, "protocol": "TCP"},
                    {"port": 81, "targetPort": "web", "protocol": "UDP"},
                ],
            }),
        ),
        (
            "v1 Service",
            json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}),
            json!({
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            }),
        ),
        ("v1 Service", json!({"type": "ExternalName"}), json!({"internalTrafficPolicy": null})),
        ("v1 PersistentVolumeClaim", json!({}), json!({"volumeMode": "Filesystem"})),
        (
            "v1 PersistentVolume",
            json!({"hostPath": {"path": "/x"}}),
            json!({
                "volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/x", "type": ""},
            }),
        ),
        (
            "storage.k8s.io/v1 StorageClass",
            Value::Null,
            json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        ),
        ("scheduling.k8s.io/v1 PriorityClass", Value::Null, json!({"preemptionPolicy": "PreemptLowerPriority"})),
        (
            "networking.k8s.io/v1 NetworkPolicy",
            json!({"egress": [{"ports": [{"port": 1}]}]}),
            json!({"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}),
        ),
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            json!({"names": {"kind": "Widget"}}),
            json!({
                "names": {"kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
                "conversion": {"strategy": "None"},
            }),
        ),
        (
            "resource.k8s.io/v1 ResourceClaim",
            json!({"devices": {"requests": [{"name": "a", "exactly": {}}, {"firstAvailable": [{"allocationMode": "All"}]}]}}),
            json!({"devices": {"requests": [
                {"name": "a", "exactly": {"allocationMode": "ExactCount", "count": 1}},
                {"firstAvailable": [{"allocationMode": "All"}]},
            ]}}),
        ),
    ];
    for (kind, spec, expected) in cases {
        let (api, kind) = kind.split_once(' ').expect("version and kind");
        let input = if spec.is_null() { json!({}) } else { json!({"spec": spec}) };
        let object = defaulted(api, kind, input);
        let actual = if spec.is_null() { &object } else { &object["spec"] };
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(actual.get(key).unwrap_or(&Value::Null), value, "{key} of {kind}");
        }
    }
}

#[test]
fn pods_ask_for_what_they_are_limited_to() {
    let container = json!({
        "name": "a", "image": "a:1", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 5},
    });
    let pod = defaulted("v1", "Pod", json!({"spec": {"hostNetwork": true, "containers": [container]}}));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3,
        })
    );
    assert_eq!(container["readinessProbe"]["grpc"]["service"], "");
    assert_eq!(container["readinessProbe"]["periodSeconds"], 5);
}

#[test]
fn volumes_have_modes() {
    let volumes = json!([
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "x"}},
        {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "d", "hostPath": {"path": "/"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]);
    let pod = defaulted("v1", "Pod", json!({"spec": {"volumes": volumes}}));
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "a", "emptyDir": {}},
            {"name": "b", "secret": {"secretName": "x", "defaultMode": 420}},
            {"name": "c", "projected": {
                "defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
            }},
            {"name": "d", "hostPath": {"path": "/", "type": ""}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem", "resources": {}}}}},
        ])
    );
}

#[test]
fn fields_that_are_held_twice_agree() {
    let pod = defaulted("v1", "Pod", json!({"spec": {"serviceAccount": "x"}, "status": {"podIP": "10.0.0.1"}}));
    assert_eq!(pod["spec"]["serviceAccountName"], "x");
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": "10.0.0.1"}]));
    let pod = defaulted("v1", "Pod", json!({"status": {"hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
    assert_eq!(pod["status"].text("hostIP"), "10.0.0.1");
    let node =
        defaulted("v1", "Node", json!({"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"capacity": {"cpu": "4"}}}));
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
}

#[test]
fn secrets_namespaces_bindings_and_webhooks() {
    let secret = defaulted("v1", "Secret", json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"a": "hi"}}));
    assert_eq!(secret, json!({"data": {"a": "aGk=", "b": "eA=="}, "type": "Opaque"}));
    let namespace = defaulted("v1", "Namespace", json!({"metadata": {"name": "x"}}));
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "x"}));
    assert_eq!(namespace["status"]["phase"], "Active");
    let subjects = json!([{"kind": "User", "name": "a"}, {"kind": "ServiceAccount", "name": "b", "namespace": "c"}]);
    let binding = json!({"roleRef": {"kind": "Role", "name": "x"}, "subjects": subjects});
    let binding = defaulted("rbac.authorization.k8s.io/v1", "RoleBinding", binding);
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert!(!binding["subjects"][1].has("apiGroup"));
    let hooks = json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s"}}, "rules": [{}]}]});
    let hooks = defaulted("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", hooks);
    assert_eq!(
        hooks["webhooks"][0],
        json!({
            "name": "a", "clientConfig": {"service": {"name": "s", "port": 443}}, "rules": [{"scope": "*"}],
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "timeoutSeconds": 10, "reinvocationPolicy": "Never",
        })
    );
    let item = json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}});
    let range = defaulted("v1", "LimitRange", json!({"spec": {"limits": [item]}}));
    assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
    assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
}
