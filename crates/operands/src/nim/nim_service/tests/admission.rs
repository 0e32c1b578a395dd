//! What is refused before it is stored.

use super::*;

fn knative() -> Facts {
    let data = json!({"deploy": r#"{"defaultDeploymentMode":"Knative"}"#});
    with([
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inferenceservice-config", "namespace": "kserve"}, "data": data}),
    ])
}

#[test]
fn every_rule_names_field_value_and_fix() {
    type Edit = fn(&mut Value);
    let cases: &[(Edit, &[&str])] = &[
        (|_| {}, &[]),
        (
            |spec| spec["image"] = json!({"repository": "", "tag": ""}),
            &["spec.image.repository is empty", "spec.image.tag is empty"],
        ),
        (
            |spec| spec["storage"]["sharedMemorySizeLimit"] = "-1Gi".into(),
            &["spec.storage.sharedMemorySizeLimit is \"-1Gi\""],
        ),
        (|spec| spec["storage"]["sharedMemorySizeLimit"] = 0.into(), &["spec.storage.sharedMemorySizeLimit is \"0\""]),
        (|spec| spec["storage"] = json!({}), &["spec.storage names no place for the model"]),
        (
            |spec| spec["storage"] = json!({"nimCache": {"profile": "p"}}),
            &["spec.storage.nimCache.profile is set without name"],
        ),
        (|spec| spec["storage"]["emptyDir"] = json!({}), &["spec.storage names 2 places for the model"]),
        (
            |spec| spec["storage"] = json!({"emptyDir": {}, "nimCache": {"profile": "p"}}),
            &["spec.storage.nimCache.profile is set without name"],
        ),
        (|spec| spec["storage"] = json!({"pvc": {"subPath": "x"}}), &["spec.storage.pvc has neither create nor name"]),
        (
            |spec| spec["storage"]["pvc"]["volumeAccessMode"] = "RWX".into(),
            &["spec.storage.pvc.volumeAccessMode is \"RWX\""],
        ),
        (
            |spec| spec["expose"]["router"] = json!({"ingress": {"ingressClass": "nginx"}}),
            &["spec.expose.router.hostDomainName is not set, but ingress needs it"],
        ),
        (
            |spec| spec["expose"]["router"] = json!({"gateway": {"namespace": "n", "name": "g"}}),
            &["spec.expose.router.hostDomainName is not set, but gateway needs it"],
        ),
        (
            |spec| spec["expose"]["router"] = json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}, "gateway": {"namespace": "n", "name": "g"}}),
            &["spec.expose.router has both ingress and gateway"],
        ),
        (
            |spec| spec["expose"]["router"] = json!({"hostDomainName": "a.com", "gateway": {"namespace": "n", "name": "g", "grpcRoutesEnabled": true}}),
            &["spec.expose.service.grpcPort is not set, but gateway.grpcRoutesEnabled needs it"],
        ),
        (
            |spec| {
                let container = json!({"name": "epp", "image": {"repository": "r", "tag": "t"}});
                spec["expose"]["router"] = json!({"eppConfig": {"containerSpec": container}});
            },
            &["spec.expose.router.eppConfig has no configuration"],
        ),
        (
            |spec| {
                spec["expose"]["router"] = json!({"eppConfig": {
                    "containerSpec": {"name": "epp", "image": {"repository": "r", "tag": "t"}},
                    "config": {"plugins": [], "schedulingProfiles": []}, "configMapRef": {"name": "c", "key": "k"},
                }});
            },
            &["spec.expose.router.eppConfig has both config and configMapRef"],
        ),
        (
            |spec| {
                spec.as_object_mut().unwrap().remove("replicas");
                spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 0}});
            },
            &["spec.scale.hpa.maxReplicas is not set"],
        ),
        (
            |spec| spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 2}}),
            &["spec.replicas is 1, but spec.scale.enabled is true"],
        ),
        (|spec| spec["metrics"] = json!({"enabled": true}), &["spec.metrics.serviceMonitor is empty"]),
        (
            |spec| spec["scale"] = json!({"enabled": true}),
            &["spec.scale.hpa.maxReplicas is not set", "spec.replicas is 1, but spec.scale.enabled is true"],
        ),
        (|spec| spec["resources"]["claims"] = json!([{"name": "c"}]), &["spec.resources.claims has 1 entries"]),
        (
            |spec| {
                spec["replicas"] = 2.into();
                spec["draResources"] = json!([{"resourceClaimName": "c"}]);
            },
            &["spec.draResources[0].resourceClaimName is shared by all replicas"],
        ),
        (
            |spec| {
                spec.as_object_mut().unwrap().remove("replicas");
                spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 2}});
                spec["draResources"] = json!([{"resourceClaimName": "c"}]);
            },
            &["spec.draResources[0].resourceClaimName is shared by all replicas"],
        ),
        (|spec| spec["draResources"] = json!([{}]), &["spec.draResources[0] has 0 sources of devices"]),
        (
            |spec| spec["draResources"] = json!([{"resourceClaimName": "c", "resourceClaimTemplateName": "t"}]),
            &["spec.draResources[0] has 2 sources of devices"],
        ),
        (
            |spec| spec["draResources"] = json!([{"resourceClaimName": "c"}, {"resourceClaimName": "c"}]),
            &["spec.draResources[1].resourceClaimName is \"c\" a second time"],
        ),
        (
            |spec| spec["draResources"] = json!([{"claimCreationSpec": {"devices": []}}]),
            &["spec.draResources[0].claimCreationSpec.devices is empty"],
        ),
        (
            |spec| {
                spec["draResources"] = json!([{"claimCreationSpec": {"devices": [{
                    "name": "", "count": 0, "deviceClassName": "", "driverName": "",
                    "attributeSelectors": [{"key": "a", "op": "Equal", "value": {"intValue": 1}}],
                    "capacitySelectors": [{"key": "gpu.nvidia.com/a", "op": "Equal", "value": "1"}],
                }]}}]);
            },
            &[
                "spec.draResources[0].claimCreationSpec.devices[0].name is empty",
                "spec.draResources[0].claimCreationSpec.devices[0].deviceClassName is empty",
                "spec.draResources[0].claimCreationSpec.devices[0].driverName is empty",
                "spec.draResources[0].claimCreationSpec.devices[0].count is 0",
                "spec.draResources[0].claimCreationSpec.devices[0].capacitySelectors has the key \"gpu.nvidia.com/a\" a second time",
            ],
        ),
        (
            |spec| {
                spec["inferencePlatform"] = "kserve".into();
                spec["multiNode"] = json!({"parallelism": {"pipeline": 2, "tensor": 1}});
            },
            &["spec.multiNode does not go with inferencePlatform: kserve"],
        ),
        (|spec| spec["proxy"] = json!({"httpProxy": "proxy"}), &["spec.proxy.httpProxy is \"proxy\""]),
        (
            |spec| {
                spec["expose"]["ingress"] = json!({"enabled": true, "spec": {}});
                spec["expose"]["router"] = json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}});
            },
            &["spec.expose.ingress is enabled beside spec.expose.router.ingress"],
        ),
    ];
    for (edit, expected) in cases {
        let service = edited(edit);
        let Verdict { errors, .. } = check(&service, None, &facts());
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(*expected) {
            assert!(error.starts_with(expected) && error.contains(": "), "{error}");
        }
    }
}

#[test]
fn knative_takes_neither_autoscaler_nor_ingress_nor_monitor() {
    let service = edited(|spec| {
        spec.as_object_mut().unwrap().remove("replicas");
        spec["inferencePlatform"] = "kserve".into();
        spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 2}});
        spec["expose"]["router"] = json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}});
        spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "1m"}});
    });
    let Verdict { errors, .. } = check(&service, None, &knative());
    let fields = ["spec.scale.enabled", "spec.expose.router.ingress", "spec.metrics.enabled"];
    assert_eq!(errors.len(), fields.len(), "{errors:#?}");
    for (error, field) in errors.iter().zip(fields) {
        assert!(error.starts_with(&format!("{field} has no effect in KServe's mode Knative")), "{error}");
    }
    assert_eq!(check(&service, None, &facts()).errors, [""; 0]);
}

#[test]
fn what_knative_decides_by_itself_is_refused_field_by_field() {
    type Edit = fn(&mut Value);
    let cases: [(Edit, &str); 5] = [
        (
            |spec| {
                spec.as_object_mut().unwrap().remove("replicas");
                spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 2}});
            },
            "spec.scale.enabled",
        ),
        (|spec| spec["expose"]["ingress"] = json!({"enabled": true, "spec": {}}), "spec.expose.ingress.enabled"),
        (
            |spec| spec["expose"]["router"] = json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}}),
            "spec.expose.router.ingress",
        ),
        (
            |spec| {
                spec["expose"]["router"] =
                    json!({"hostDomainName": "a.com", "gateway": {"namespace": "n", "name": "g"}})
            },
            "spec.expose.router.gateway",
        ),
        (
            |spec| spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "1m"}}),
            "spec.metrics.enabled",
        ),
    ];
    for (edit, field) in cases {
        let service = edited(|spec| {
            spec["inferencePlatform"] = "kserve".into();
            edit(spec);
        });
        let errors = check(&service, None, &knative()).errors;
        assert!(errors.len() == 1 && errors[0].starts_with(&format!("{field} has no effect")), "{errors:?}");
        assert_eq!(check(&service, None, &facts()).errors, [""; 0], "the standard mode takes it");
    }
}

#[test]
fn a_mode_of_kserve_that_cannot_be_known_is_refused() {
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"deploy": "{"},
        "metadata": {"name": "inferenceservice-config", "namespace": "kserve"},
    });
    let service = edited(|spec| spec["inferencePlatform"] = "kserve".into());
    let errors = check(&service, None, &with([settings])).errors;
    assert!(errors.len() == 1 && errors[0].contains("inferenceservice-config is no JSON"), "{errors:?}");
}

#[test]
fn devices_need_a_new_server() {
    let service = edited(|spec| spec["draResources"] = json!([{"resourceClaimTemplateName": "t"}]));
    let on = |version: &str| check(&service, None, &Facts { server: ServerVersion::parse(version), ..facts() }).errors;
    assert!(on("v1.33.9")[0].starts_with("spec.draResources needs Kubernetes v1.34.0, and this one is v1.33.9"));
    assert_eq!((on("v1.33.9").len(), on("v1.34.0").len(), on("v1.34.0-gke.1").len()), (1, 0, 0));
}

#[test]
fn selectors_of_devices_are_refused_with_their_path() {
    let attribute = |value: Value| json!({"attributeSelectors": [{"key": "a", "op": "Equal", "value": value}]});
    let cases = [
        (json!({"attributeSelectors": [{"key": "a", "op": "Equal"}]}), "attributeSelectors[0].value must have exactly"),
        (attribute(json!({})), "attributeSelectors[0].value must have exactly one"),
        (attribute(json!({"intValue": 1, "boolValue": true})), "attributeSelectors[0].value must have exactly one"),
        (attribute(json!({"versionValue": "550.127.08"})), "attributeSelectors[0].value.versionValue is"),
        (json!({"celExpressions": ["device.("]}), "celExpressions[0] is \"device.(\", which is no CEL"),
        (
            json!({"celExpressions": ["true"], "capacitySelectors": [{"key": "m", "op": "Equal", "value": "1"}]}),
            "celExpressions is set beside other selectors",
        ),
        (
            json!({"attributeSelectors": [
                {"key": "a", "op": "Equal", "value": {"intValue": 1}},
                {"key": "gpu.nvidia.com/a", "op": "NotEqual", "value": {"intValue": 2}},
            ]}),
            "attributeSelectors has the key \"gpu.nvidia.com/a\" a second time",
        ),
    ];
    for (selectors, expected) in cases {
        let mut device = json!({"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"});
        device.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
        let service = edited(|spec| spec["draResources"] = json!([{"claimCreationSpec": {"devices": [device]}}]));
        let errors = check(&service, None, &facts()).errors;
        let path = "spec.draResources[0].claimCreationSpec.devices[0]";
        assert!(errors.len() == 1 && errors[0].starts_with(&format!("{path}.{expected}")), "{errors:?}");
    }
}

#[test]
fn each_warning_is_given_for_its_own_reason() {
    type Edit = fn(&mut Value);
    let router = |way: &str| match way {
        "ingress" => json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}}),
        _ => json!({"hostDomainName": "a.com", "gateway": {"namespace": "n", "name": "g"}}),
    };
    let cases: [(Edit, &str); 2] = [
        (|spec| spec["authSecret"] = "".into(), "spec.authSecret is not set"),
        (|spec| spec["expose"]["ingress"] = json!({"enabled": true, "spec": {}}), "spec.expose.ingress is deprecated"),
    ];
    let mut services: Vec<(NimService, &str)> = cases.map(|(edit, warning)| (edited(edit), warning)).into();
    for way in ["ingress", "gateway"] {
        let service = edited(|spec| {
            spec["expose"]["service"]["type"] = "LoadBalancer".into();
            spec["expose"]["router"] = router(way);
        });
        services.push((service, "spec.expose.service.type is LoadBalancer beside a router"));
    }
    for (service, expected) in services {
        let Verdict { errors, warnings } = check(&service, None, &facts());
        assert_eq!((errors.len(), warnings.len()), (0, 1), "{errors:?} {warnings:?}");
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }
}

#[test]
fn what_may_change_is_not_held_up() {
    let old = edited(|spec| spec["storage"] = json!({"pvc": {"name": "models"}}));
    let new = edited(|spec| {
        spec["storage"] = json!({"pvc": {"name": "others"}});
        spec["replicas"] = 3.into();
        spec["image"]["tag"] = "1.9".into();
        spec["draResources"] = json!([{"resourceClaimTemplateName": "t"}]);
    });
    assert_eq!(check(&new, Some(&old), &facts()).errors, [""; 0]);
}

#[test]
fn warnings_do_not_refuse() {
    let service = edited(|spec| {
        spec.as_object_mut().unwrap().remove("authSecret");
        spec["expose"]["service"]["type"] = "LoadBalancer".into();
        spec["expose"]["ingress"] = json!({"enabled": true, "spec": {}});
        spec["expose"]["router"] = json!({"hostDomainName": "a.com", "gateway": {"namespace": "n", "name": "g"}});
    });
    let Verdict { errors, warnings } = check(&service, None, &facts());
    assert_eq!((errors.len(), warnings.len()), (0, 3), "{warnings:#?}");
}

#[test]
fn what_cannot_change_is_said_with_a_way_out() {
    let old = edited(|spec| spec["draResources"] = json!([{"resourceClaimName": "c"}]));
    let new = edited(|spec| {
        spec["multiNode"] = json!({"parallelism": {"pipeline": 1}});
        spec["storage"]["pvc"]["size"] = "60Gi".into();
    });
    let Verdict { errors, .. } = check(&new, Some(&old), &facts());
    assert_eq!(
        errors,
        [
            "spec.multiNode cannot change after creation: create a new NIMService instead",
            "spec.storage.pvc cannot change once it was created for the service: create a new NIMService instead",
            "spec.draResources cannot change after creation: create a new NIMService instead",
        ]
    );
}
