//! What holds for every kind.

use super::*;

#[test]
fn every_kind_has_its_children_under_its_own_name() {
    for case in cases() {
        let plan = case.planned(|spec| {
            spec.as_object_mut().unwrap().remove("replicas");
            spec["annotations"] = json!({"mine": "1"});
            spec["expose"]["service"]["annotations"] = json!({"svc": "1"});
            spec["expose"]["router"] = json!({
                "hostDomainName": "example.com", "annotations": {"route": "1"}, "ingress": {"ingressClass": "nginx"},
            });
            spec["scale"] = json!({"enabled": true, "annotations": {"scale": "1"}, "hpa": {"minReplicas": 1, "maxReplicas": 10}});
            spec["metrics"] = json!({"enabled": true, "serviceMonitor": {"interval": "1m", "scrapeTimeout": "30s", "annotations": {"monitor": "1"}}});
        });
        for (kind, own) in [
            ("Service", "svc"),
            ("Ingress", "route"),
            ("HorizontalPodAutoscaler", "scale"),
            ("ServiceMonitor", "monitor"),
        ] {
            let meta = &child(&plan, kind)["metadata"];
            assert_eq!(meta["name"], "one", "{} {kind}", case.kind);
            let has = |key: &str| meta["annotations"][key] == "1";
            assert!(has("mine") && has(own), "{} {kind}: {meta}", case.kind);
        }
        for kind in ["ServiceAccount", "Role", "RoleBinding", "Deployment"] {
            assert_eq!(child(&plan, kind)["metadata"]["name"], "one", "{} {kind}", case.kind);
        }
        let scaler = &child(&plan, "HorizontalPodAutoscaler")["spec"];
        assert_eq!((&scaler["minReplicas"], &scaler["maxReplicas"]), (&json!(1), &json!(10)));
        let endpoint = &child(&plan, "ServiceMonitor")["spec"]["endpoints"][0];
        assert_eq!(*endpoint, json!({"port": "api", "interval": "1m", "scrapeTimeout": "30s"}));
        assert!(plan.requeue.is_none(), "nothing is polled");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container(&plan)[probe]["httpGet"]["port"], "api", "{}", case.kind);
        }
    }
}

#[test]
fn a_second_reconcile_writes_nothing() {
    for case in cases() {
        let (mut facts, one) = (furnished(), case.object(|_| {}));
        let first = (case.plan)(&one, &facts);
        assert!(applied(&mut facts, &first) >= 5, "{}", case.kind);
        let second = (case.plan)(&one, &facts);
        assert_eq!(applied(&mut facts, &second), 0, "{}", case.kind);
        assert!(second.queries.is_empty(), "{}: the password is read once", case.kind);
    }
}

#[test]
fn what_is_switched_off_is_pruned() {
    for case in cases() {
        let mut facts = furnished();
        let on = case.object(|spec| {
            spec.as_object_mut().unwrap().remove("replicas");
            spec["expose"]["router"] = json!({"hostDomainName": "example.com", "ingress": {"ingressClass": "nginx"}});
            spec["scale"] = json!({"enabled": true, "hpa": {"maxReplicas": 3}});
            spec["metrics"] = json!({"enabled": true});
        });
        let plan = (case.plan)(&on, &facts);
        applied(&mut facts, &plan);
        // As the NIM Operator stores it.
        let off = case.object(|spec| {
            spec["expose"]["router"] = json!({});
            spec["expose"]["ingress"] = json!({});
            spec["scale"] = json!({"enabled": false, "hpa": {"maxReplicas": 0, "minReplicas": 1}});
            spec["metrics"] = json!({"enabled": false, "serviceMonitor": {}});
        });
        let plan = (case.plan)(&off, &facts);
        let diff = diff(UID, plan.objects.as_deref().unwrap(), &facts.live);
        let mut deleted: Vec<&str> = diff.delete.iter().map(|one| &*one.reference.gvk.kind).collect();
        deleted.sort_unstable();
        assert_eq!(deleted, ["HorizontalPodAutoscaler", "Ingress", "ServiceMonitor"], "{}", case.kind);
    }
}

#[test]
fn what_somebody_else_made_is_never_pruned() {
    for case in cases() {
        let mut facts = furnished();
        for (api, kind) in [("networking.k8s.io/v1", "Ingress"), ("autoscaling/v2", "HorizontalPodAutoscaler")] {
            add(&mut facts, json!({"apiVersion": api, "kind": kind, "metadata": {"name": "one", "namespace": "nemo"}}));
        }
        let plan = (case.plan)(&case.object(|_| {}), &facts);
        assert!(diff(UID, plan.objects.as_deref().unwrap(), &facts.live).delete.is_empty(), "{}", case.kind);
    }
}

#[test]
fn the_autoscaler_sets_the_replicas() {
    for case in cases() {
        let mut facts = furnished();
        let scaled = case.object(|spec| {
            spec.as_object_mut().unwrap().remove("replicas");
            spec["scale"] = json!({"enabled": true, "hpa": {"minReplicas": 2, "maxReplicas": 5}});
        });
        let plan = (case.plan)(&scaled, &facts);
        assert_eq!(child(&plan, "Deployment")["spec"]["replicas"], 2, "{}", case.kind);
        applied(&mut facts, &plan);
        let mut live = child(&plan, "Deployment").clone();
        live["spec"]["replicas"] = 4.into();
        live["metadata"]["annotations"]["nvidia.com/last-applied-hash"] = "another".into();
        add(&mut facts, live);
        let plan = (case.plan)(&scaled, &facts);
        let diff = diff(UID, plan.objects.as_deref().unwrap(), &facts.live);
        assert_eq!(diff.apply[0].object.body["spec"]["replicas"], 4, "{}", case.kind);
    }
}

#[test]
fn the_written_ingress_wins_over_the_router_and_lists_its_paths() {
    for case in cases() {
        let plan = case.planned(|spec| {
            spec["expose"]["ingress"] = json!({
                "enabled": true, "annotations": {"a": "1"},
                "spec": {"ingressClassName": "nginx", "host": "h.example.com", "paths": [{"path": "/v1", "pathType": "Exact"}, {}]},
            });
        });
        let ingress = child(&plan, "Ingress");
        let paths = ingress["spec"]["rules"][0]["http"]["paths"].as_array().unwrap();
        let shown: Vec<_> =
            paths.iter().map(|one| (one["path"].as_str().unwrap(), one["pathType"].as_str().unwrap())).collect();
        assert_eq!(shown, [("/v1", "Exact"), ("/", "Prefix")], "{}", case.kind);
        assert_eq!(ingress["spec"]["rules"][0]["host"], "h.example.com");
        assert_eq!(paths[0]["backend"]["service"], json!({"name": "one", "port": {"name": "api"}}));
        let plan = case.planned(|spec| {
            spec["expose"]["ingress"] = json!({"enabled": true, "spec": {"ingressClassName": "nginx"}});
        });
        assert_eq!(child(&plan, "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["path"], "/", "{}", case.kind);
    }
}

#[test]
fn a_route_needs_its_crd_and_a_domain() {
    for case in cases() {
        let routed = |domain: Value| {
            case.object(|spec| {
                spec["expose"]["router"] =
                    json!({"gateway": {"namespace": "infra", "name": "gw"}, "hostDomainName": domain});
            })
        };
        let plan = (case.plan)(&routed("example.com".into()), &furnished());
        let route = &child(&plan, "HTTPRoute")["spec"];
        assert_eq!(route["hostnames"], json!(["one.nemo.example.com"]), "{}", case.kind);
        assert_eq!(route["rules"][0]["backendRefs"][0]["port"], 8000);
        let mut facts = furnished();
        facts.served.clear();
        let plan = (case.plan)(&routed("example.com".into()), &facts);
        assert!(kinds(&plan).contains(&"Deployment") && !kinds(&plan).contains(&"HTTPRoute"));
        assert!(condition(&plan, "MissingAPI").2.contains("needs HTTPRoute"), "{}", case.kind);
        let plan = (case.plan)(&routed(Value::Null), &furnished());
        assert!(condition(&plan, "InvalidFields").2.contains("hostDomainName is not set, but gateway needs it"));
        let off = case.planned(|spec| {
            let gateway = json!({"namespace": "infra", "name": "gw", "httpRoutesEnabled": false});
            spec["expose"]["router"] = json!({"hostDomainName": "example.com", "gateway": gateway});
        });
        assert!(!kinds(&off).contains(&"HTTPRoute"), "{}", case.kind);
    }
}

#[test]
fn the_users_environment_wins_and_stands_first() {
    for case in cases() {
        let usual = case.planned(|_| {});
        let taken = names(container(&usual))[0].to_owned();
        let plan =
            case.planned(|spec| spec["env"] = json!([{"name": "MINE", "value": "1"}, {"name": taken, "value": "2"}]));
        let names = names(container(&plan));
        assert_eq!(names[..2], ["MINE", taken.as_str()], "{}", case.kind);
        assert_eq!(names.len(), self::names(container(&usual)).len() + 1, "{}", case.kind);
        assert_eq!(variable(container(&plan), &taken)["value"], "2");
    }
}

#[test]
fn selectors_survive_whatever_labels_the_user_sets() {
    for case in cases() {
        let plan =
            case.planned(|spec| spec["labels"] = json!({"app": "mine", "app.kubernetes.io/name": "mine", "team": "a"}));
        let labels = &template(&plan)["metadata"]["labels"];
        assert_eq!((&labels["app"], &labels["team"]), (&json!("one"), &json!("a")), "{}", case.kind);
        assert_eq!(child(&plan, "Deployment")["spec"]["selector"]["matchLabels"], json!({"app": "one"}));
        for (key, value) in child(&plan, "Service")["spec"]["selector"].as_object().unwrap() {
            assert_eq!(labels[key], *value, "{} {key}", case.kind);
        }
    }
}

#[test]
fn values_that_look_like_others_stay_what_they_are() {
    for case in cases() {
        let plan = case.planned(|spec| {
            spec["nodeSelector"] = json!({"gpu": "true", "zone": "1"});
            spec["tolerations"] =
                json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]);
        });
        let pod = &template(&plan)["spec"];
        assert_eq!(pod["nodeSelector"], json!({"gpu": "true", "zone": "1"}), "{}", case.kind);
        assert_eq!(pod["tolerations"][0]["tolerationSeconds"], 30, "{}", case.kind);
    }
}

#[test]
fn the_deprecated_affinity_counts_where_the_newer_one_is_silent() {
    let near = |key: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]});
    for case in cases() {
        let plan = case.planned(|spec| spec["podAffinity"] = near("old"));
        let of = |plan: &Plan<NemoStatus>| template(plan)["spec"]["affinity"]["podAffinity"].to_string();
        assert!(of(&plan).contains("old"), "{}", case.kind);
        let plan = case.planned(|spec| {
            spec["podAffinity"] = near("old");
            spec["affinity"] = json!({"podAffinity": near("new")});
        });
        assert!(of(&plan).contains("new") && !of(&plan).contains("old"), "{}", case.kind);
    }
}

#[test]
fn pods_are_confined() {
    for case in cases() {
        let plan = case.planned(|_| {});
        let pod = &template(&plan)["spec"];
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{}", case.kind);
        if case.kind != "NemoDatastore" {
            assert_eq!(pod["securityContext"]["runAsUser"], 1000);
            assert_eq!(container(&plan)["securityContext"]["allowPrivilegeEscalation"], false, "{}", case.kind);
        }
        let plan = case.planned(|spec| {
            (spec["userID"], spec["groupID"], spec["runtimeClass"]) = (7.into(), 8.into(), "gvisor".into())
        });
        let pod = &template(&plan)["spec"];
        assert_eq!((&pod["securityContext"]["fsGroup"], &pod["runtimeClassName"]), (&json!(8), &json!("gvisor")));
    }
}

#[test]
fn a_password_that_changes_replaces_the_pods_after_the_secret() {
    for case in cases().into_iter().filter(|case| case.kind != "NemoGuardrail") {
        let (mut facts, one) = (furnished(), case.object(|_| {}));
        let plan = (case.plan)(&one, &facts);
        applied(&mut facts, &plan);
        let before = template(&(case.plan)(&one, &facts)).clone();
        let mut changed = secret("pg", &["password"]);
        changed["data"]["password"] = "h2".into();
        add(&mut facts, changed);
        let plan = (case.plan)(&one, &facts);
        if kinds(&plan).contains(&"Deployment") {
            assert_ne!(*template(&plan), before, "{}", case.kind);
            continue;
        }
        assert_eq!(plan.queries.len(), 1, "{}: the password is read again", case.kind);
        assert!(
            diff(UID, plan.objects.as_deref().unwrap(), &facts.live).is_empty(),
            "{}: until then nothing moves",
            case.kind
        );
        answer(&mut facts, "h2", "another");
        let plan = (case.plan)(&one, &facts);
        assert!(kinds(&plan).contains(&"Secret"));
        assert_ne!(*template(&plan), before, "{}", case.kind);
    }
}

#[test]
fn a_secret_that_somebody_edited_is_repaired() {
    let case = case::<NemoEvaluatorSpec>(evaluator_spec);
    let (mut facts, one) = (furnished(), case.object(|_| {}));
    let plan = (case.plan)(&one, &facts);
    applied(&mut facts, &plan);
    let mut edited = (**facts.live.get(&Ref::of::<Secret>("nemo", "one")).unwrap()).clone();
    edited["data"]["uri"] = "edited".into();
    add(&mut facts, edited);
    assert!(kinds(&(case.plan)(&one, &facts)).contains(&"Secret"));
}

#[test]
fn a_service_may_bring_its_own_account() {
    for case in cases() {
        let mut one = case.object(|_| {});
        one["metadata"]["annotations"] = json!({"apps.nvidia.com/service-account": "mine"});
        let plan = (case.plan)(&one, &furnished());
        assert_eq!(template(&plan)["spec"]["serviceAccountName"], "mine", "{}", case.kind);
        assert!(!kinds(&plan).contains(&"Role") && !kinds(&plan).contains(&"ServiceAccount"));
    }
}

#[test]
fn a_claim_grows_with_its_spec_and_never_shrinks() {
    let case = case::<NemoDatastoreSpec>(datastore_spec);
    let mut facts = furnished();
    let plan = (case.plan)(&case.object(|_| {}), &facts);
    applied(&mut facts, &plan);
    let writes = |size: &str, facts: &Facts| {
        let plan = (case.plan)(&case.object(|spec| spec["pvc"]["size"] = size.into()), facts);
        let diff = diff(UID, plan.objects.as_deref().unwrap(), &facts.live);
        diff.apply.iter().any(|one| one.object.reference.gvk.kind == "PersistentVolumeClaim")
    };
    assert!(writes("20Gi", &facts) && !writes("5Gi", &facts) && !writes("10240Mi", &facts));
}

#[test]
fn a_claim_goes_with_its_service_unless_it_is_retained() {
    let case = case::<NemoDatastoreSpec>(datastore_spec);
    let mut one = case.object(|_| {});
    let owners = |plan: &Plan<NemoStatus>| child(plan, "PersistentVolumeClaim")["metadata"]["ownerReferences"].clone();
    assert!(owners(&(case.plan)(&one, &furnished())).is_array());
    one["metadata"]["annotations"] = json!({"nvidia.com/pvc-retention": "Retain"});
    let plan = (case.plan)(&one, &furnished());
    assert!(owners(&plan).is_null());
    assert!(child(&plan, "Deployment")["metadata"]["ownerReferences"].is_array());
}

#[test]
fn no_name_of_the_users_may_be_that_of_what_is_made() {
    let evaluator = case::<NemoEvaluatorSpec>(evaluator_spec);
    let plan = evaluator.planned(|spec| spec["databaseConfig"]["credentials"]["secretName"] = "one".into());
    let (_, reason, message) = condition(&plan, "Failed");
    assert_eq!(reason, "InvalidSpec");
    assert!(message.starts_with("spec.databaseConfig.credentials is \"one\", the name of the Secret"), "{message}");
    let customizer = case::<NemoCustomizerSpec>(customizer_spec);
    let plan = customizer.planned(|spec| spec["modelConfig"]["name"] = "one".into());
    assert!(condition(&plan, "Failed").2.starts_with("spec.modelConfig is \"one\", the name of the ConfigMap"));
    let entitystore = case::<NemoEntitystoreSpec>(entitystore_spec);
    let plan = entitystore.planned(|spec| spec["databaseConfig"]["credentials"]["secretName"] = "one".into());
    assert!(plan.objects.is_some(), "nothing of that name is made");
}

#[test]
fn a_namesake_of_another_kind_is_in_the_way_and_stays() {
    let mut facts = furnished();
    let plan = case::<NemoDatastoreSpec>(datastore_spec).planned(|_| {});
    applied(&mut facts, &plan);
    let mut other = object("NemoEntitystore", entitystore_spec());
    other["metadata"]["uid"] = "u-two".into();
    let plan = planned::<NemoEntitystoreSpec>(&other, &facts);
    let diff = diff("u-two", plan.objects.as_deref().unwrap(), &facts.live);
    assert!(diff.conflicts.iter().any(|one| one.holder == "NemoDatastore one"), "{:?}", diff.conflicts);
}

#[test]
fn an_object_without_a_spec_fails_with_field_and_fix() {
    for case in cases() {
        let plan = (case.plan)(&object(case.kind, Value::Null), &furnished());
        assert_eq!(plan.status.state.as_deref(), Some("Failed"), "{}", case.kind);
        assert!(condition(&plan, "Failed").2.contains("spec.image.repository is empty"), "{}", case.kind);
    }
}

#[test]
fn an_object_without_expose_is_served_on_the_usual_port() {
    for case in cases() {
        let plan = case.planned(|spec| _ = spec.as_object_mut().unwrap().remove("expose"));
        let service = &child(&plan, "Service")["spec"];
        assert_eq!(
            (&service["type"], &service["ports"][0]["port"]),
            (&json!("ClusterIP"), &json!(8000)),
            "{}",
            case.kind
        );
    }
}

#[test]
fn what_is_ignored_is_reported() {
    for case in cases() {
        let plan = case.planned(|spec| spec["expose"]["service"]["name"] = "mine".into());
        assert!(condition(&plan, "IgnoredFields").2.contains("spec.expose.service.name"), "{}", case.kind);
    }
}
