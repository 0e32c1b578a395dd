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
        (|spec| spec["storage"] = json!({}), &["spec.storage names no place for the model"]),
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
            |spec| spec["expose"]["router"] = json!({"hostDomainName": "a.com", "ingress": {"ingressClass": "nginx"}, "gateway": {"namespace": "n", "name": "g"}}),
            &["spec.expose.router has both ingress and gateway"],
        ),
        (
            |spec| spec["expose"]["router"] = json!({"hostDomainName": "a.com", "gateway": {"namespace": "n", "name": "g", "grpcRoutesEnabled": true}}),
            &["spec.expose.service.grpcPort is not set, but gateway.grpcRoutesEnabled needs it"],
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
        (|spec| spec["draResources"] = json!([{}]), &["spec.draResources[0] has 0 sources of devices"]),
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
