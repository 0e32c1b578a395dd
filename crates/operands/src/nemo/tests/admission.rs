//! What admission says, beyond what the CRDs refuse.

use super::*;

fn errors(case: &Case, edit: impl FnOnce(&mut Value)) -> String {
    (case.check)(&case.object(edit)).errors.join("; ")
}

#[test]
fn usual_specs_pass() {
    for case in cases() {
        assert_eq!(errors(&case, |_| {}), "", "{}", case.kind);
    }
}

#[test]
fn what_the_nim_operator_stores_passes() {
    for case in cases() {
        let stored = |spec: &mut Value| {
            spec["expose"] = json!({"service": {"port": 8000}, "ingress": {}, "router": {}});
            spec["metrics"] = json!({"serviceMonitor": {}});
            spec["scale"] = json!({"hpa": {"maxReplicas": 0, "minReplicas": 1}});
            if case.kind == "NemoGuardrail" {
                spec["configStore"] = json!({});
            }
            if case.kind == "NemoCustomizer" {
                spec["scheduler"] = json!({"type": "volcano"});
            }
        };
        assert_eq!(errors(&case, stored), "", "{}", case.kind);
    }
}

#[test]
fn mistakes_of_all_kinds_name_field_value_and_fix() {
    type Edit = fn(&mut Value);
    let table: [(Edit, &str); 11] = [
        (
            |spec| spec["image"]["pullPolicy"] = "Sometimes".into(),
            "spec.image.pullPolicy is \"Sometimes\": use one of Always",
        ),
        (
            |spec| spec["expose"]["service"]["type"] = "Cluster".into(),
            "spec.expose.service.type is \"Cluster\": use one of",
        ),
        (|spec| spec["expose"]["service"]["grpcPort"] = 1.into(), "spec.expose.service.grpcPort is set"),
        (|spec| spec["expose"]["service"]["metricsPort"] = 1.into(), "spec.expose.service.metricsPort is set"),
        (|spec| spec["scale"] = json!({"enabled": true}), "spec.scale.hpa.maxReplicas is not set"),
        (
            |spec| (spec["scale"], spec["replicas"]) = (json!({"enabled": true, "hpa": {"maxReplicas": 2}}), 2.into()),
            "spec.replicas is 2, but spec.scale.enabled is true",
        ),
        (|spec| spec["expose"]["ingress"] = json!({"enabled": true}), "spec.expose.ingress is enabled without spec"),
        (
            |spec| spec["expose"]["router"] = json!({"ingress": {"ingressClass": "c"}}),
            "spec.expose.router.hostDomainName is not set, but ingress needs it",
        ),
        (
            |spec| {
                let gateway = json!({"namespace": "n", "name": "g"});
                spec["expose"]["router"] =
                    json!({"hostDomainName": "e.com", "ingress": {"ingressClass": "c"}, "gateway": gateway});
            },
            "spec.expose.router has both ingress and gateway",
        ),
        (
            |spec| {
                let gateway = json!({"namespace": "n", "name": "g", "grpcRoutesEnabled": true});
                spec["expose"]["router"] = json!({"hostDomainName": "e.com", "gateway": gateway});
            },
            "grpcRoutesEnabled is true",
        ),
        (
            |spec| {
                spec["expose"]["ingress"] = json!({"enabled": true, "spec": {"ingressClassName": "c"}});
                spec["expose"]["router"] = json!({"hostDomainName": "e.com", "ingress": {"ingressClass": "c"}});
            },
            "spec.expose.ingress is enabled beside spec.expose.router.ingress",
        ),
    ];
    for case in cases() {
        for (edit, expected) in &table {
            let said = errors(&case, edit);
            assert!(said.contains(expected), "{}: {said:?} lacks {expected:?}", case.kind);
        }
    }
}

#[test]
fn mistakes_of_single_kinds() {
    let [customizer, datastore, _, evaluator, guardrail] = cases();
    let port = errors(&customizer, |spec| spec["expose"]["service"]["port"] = 9009.into());
    assert_eq!(port, "spec.expose.service.port is 9009, which is the port \"internal\" already: use another");
    let claim =
        errors(&datastore, |spec| spec["pvc"] = json!({"create": true, "size": "10 GB", "volumeAccessMode": "RWO"}));
    assert!(
        claim.contains("spec.pvc.size is \"10 GB\"") && claim.contains("spec.pvc.volumeAccessMode is \"RWO\""),
        "{claim}"
    );
    let nameless = errors(&datastore, |spec| spec["pvc"] = json!({"subPath": "x"}));
    assert!(nameless.contains("spec.pvc has neither create nor name"), "{nameless}");
    let both =
        errors(&guardrail, |spec| spec["configStore"] = json!({"configMap": {"name": "a"}, "pvc": {"name": "b"}}));
    assert_eq!(both, "spec.configStore has both configMap and pvc: remove one of them");
    let nowhere = errors(&evaluator, |spec| spec["otel"] = json!({"enabled": true}));
    assert!(nowhere.starts_with("spec.otel.exporterOtlpEndpoint is not set"), "{nowhere}");
}
