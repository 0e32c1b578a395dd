//! Models that span nodes.

use capstan_api::compute_domain::ComputeDomain;
use capstan_api::foreign::{LeaderWorkerSet, PodGroup};
use capstan_plan::{Query, QueryResult};
use k8s_openapi::api::core::v1::Secret;

use super::*;

fn spread(edit: impl FnOnce(&mut Value)) -> NimService {
    edited(|spec| {
        spec.as_object_mut().unwrap().remove("authSecret");
        spec["expose"]["service"]["port"] = 8123.into();
        spec["replicas"] = 2.into();
        spec["multiNode"] = json!({"backendType": "lws", "parallelism": {"pipeline": 2, "tensor": 8}});
        edit(spec);
    })
}

fn query() -> Query {
    Query::PrivateKey { secret: Ref::of::<Secret>("nim", "llama-ssh-pk") }
}

fn keyed(mut facts: Facts) -> Facts {
    facts.query_results.insert(query(), QueryResult::PrivateKey("PEM".into()));
    serving::<LeaderWorkerSet>(facts)
}

fn template<'a>(plan: &'a Plan<NimServiceStatus>, role: &str) -> &'a Value {
    &object(plan, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"][format!("{role}Template")]
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn with_mpi() {
    let plan = plan(&spread(|_| {}), &keyed(facts()));
    let of_group =
        |body: &&Value| ["ConfigMap", "Secret", "Service", "LeaderWorkerSet"].contains(&body["kind"].as_str().unwrap());
    insta::assert_yaml_snapshot!(bodies(&plan).into_iter().filter(of_group).collect::<Vec<_>>());
}

#[test]
fn with_ray() {
    let ray = spread(|spec| spec["multiNode"]["ray"] = json!({"rayPort": 6380}));
    let plan = plan(&ray, &serving::<LeaderWorkerSet>(facts()));
    assert!(!kinds(&plan).contains(&"ConfigMap") && !kinds(&plan).contains(&"Secret"));
    let (leader, worker) = (&template(&plan, "leader")["spec"], &template(&plan, "worker")["spec"]);
    let (first, other) = (&leader["containers"][0], &worker["containers"][0]);
    assert_eq!(first["args"], json!(["nim-serve-ray", "--head", "--port", "6380"]));
    assert_eq!(other["args"], json!(["nim-serve-ray", "--head-address", "$(LWS_LEADER_ADDRESS):6380"]));
    for container in [first, other] {
        assert_eq!(names(&container["ports"]), ["api", "ray"]);
    }
    for volumes in [&leader["volumes"], &worker["volumes"]] {
        assert_eq!(names(volumes), ["dshm", "model-store"]);
    }
    let probe = json!({
        "exec": {"command": ["/bin/sh", "-c", "ray status"]},
        "initialDelaySeconds": 30, "timeoutSeconds": 5, "periodSeconds": 10, "failureThreshold": 3,
    });
    assert_eq!(other["startupProbe"], probe);
    assert!(other["livenessProbe"].is_null() && !first["livenessProbe"].is_null());
}

#[test]
fn environments_stand_in_their_order() {
    let plan = plan(&spread(|_| {}), &keyed(facts()));
    let base = [
        "NIM_CACHE_PATH",
        "OUTLINES_CACHE_DIR",
        "NIM_SERVER_PORT",
        "NIM_HTTP_API_PORT",
        "NIM_JSONL_LOGGING",
        "NIM_LOG_LEVEL",
        "NIM_MPI_ALLOW_RUN_AS_ROOT",
        "NIM_NUM_COMPUTE_NODES",
        "NIM_MULTI_NODE",
        "NIM_TENSOR_PARALLEL_SIZE",
        "NIM_PIPELINE_PARALLEL_SIZE",
        "NIM_NODE_RANK",
    ];
    let leader = [
        "NIM_LEADER_ROLE",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_plm_rsh_args",
        "GPUS_PER_NODE",
        "CLUSTER_START_TIMEOUT",
        "CLUSTER_SIZE",
        "GROUP_INDEX",
    ];
    let worker = ["NIM_LEADER_ROLE", "LEADER_NAME", "NAMESPACE", "LWS_NAME"];
    for (role, own) in [("leader", leader.as_slice()), ("worker", worker.as_slice())] {
        let env = &template(&plan, role)["spec"]["containers"][0]["env"];
        assert_eq!(names(env), [base.as_slice(), own].concat());
    }
}

#[test]
fn without_a_key_one_is_asked_for_and_with_the_secret_none() {
    let waiting = plan(&spread(|_| {}), &serving::<LeaderWorkerSet>(facts()));
    assert_eq!(waiting.queries, [query()]);
    assert!(!kinds(&waiting).contains(&"LeaderWorkerSet"));
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "llama-ssh-pk", "namespace": "nim"}});
    let there = plan(&spread(|_| {}), &serving::<LeaderWorkerSet>(with([secret])));
    assert_eq!(there.queries, []);
    assert!(kinds(&there).contains(&"LeaderWorkerSet"));
}

#[test]
fn the_user_is_heard_in_both_roles() {
    let own = spread(|spec| {
        spec["command"] = json!(["/start"]);
        spec["image"]["pullPolicy"] = "Always".into();
        spec["runtimeClassName"] = "nvidia".into();
        spec["schedulerName"] = "other".into();
        spec["affinity"] = json!({"nodeAffinity": {}});
        spec["sidecarContainers"] = json!([{"name": "s", "image": {"repository": "r", "tag": "t"}}]);
        spec["labels"] = json!({"app": "mine", "nim-llm-role": "mine"});
    });
    let plan = plan(&own, &keyed(facts()));
    for role in ["leader", "worker"] {
        let template = template(&plan, role);
        let pod = &template["spec"];
        assert_eq!(
            (&pod["containers"][0]["command"], &pod["containers"][0]["imagePullPolicy"]),
            (&json!(["/start"]), &json!("Always"))
        );
        assert_eq!((&pod["runtimeClassName"], &pod["schedulerName"]), (&json!("nvidia"), &json!("other")));
        assert_eq!((&pod["serviceAccountName"], &pod["affinity"]), (&json!("llama"), &json!({"nodeAffinity": {}})));
        assert_eq!(pod["containers"][1]["volumeMounts"], pod["containers"][0]["volumeMounts"]);
        assert!(names(&pod["containers"][1]["env"]).contains(&"NIM_MULTI_NODE"));
        let labels = &template["metadata"]["labels"];
        assert_eq!((&labels["app"], &labels["nim-llm-role"]), (&json!("llama-lws"), &json!(role)));
    }
}

#[test]
fn a_universal_cache_names_the_model_here_too() {
    let service = spread(|spec| spec["storage"] = json!({"nimCache": {"name": "models", "profile": "p"}}));
    let plan = plan(&service, &keyed(with([cache(hugging_face(), json!({}))])));
    let env = &template(&plan, "worker")["spec"]["containers"][0]["env"];
    assert_eq!(names(env)[names(env).len() - 2..], ["NIM_MODEL_NAME", "NIM_MODEL_PROFILE"]);
    let mut own = service.clone();
    own.spec.env = serde_json::from_value(json!([{"name": "NIM_MODEL_NAME", "value": "mine"}])).unwrap();
    let own = super::plan(&own, &keyed(with([cache(hugging_face(), json!({}))])));
    let optimized = super::plan(&service, &keyed(with([cache(ngc(), json!({}))])));
    for role in ["leader", "worker"] {
        assert_eq!(template(&own, role)["spec"]["containers"][0]["env"][0]["value"], "mine");
        assert!(!names(&template(&optimized, role)["spec"]["containers"][0]["env"]).contains(&"NIM_MODEL_NAME"));
    }
}

#[test]
fn a_compute_domain_is_made_and_joined() {
    let mut service = spread(|spec| spec["multiNode"]["computeDomain"] = json!({"create": true}));
    service.metadata.name = Some("test-nimservice".into());
    let mut facts = serving::<ComputeDomain>(keyed(facts()));
    let secret = Query::PrivateKey { secret: Ref::of::<Secret>("nim", "test-nimservice-ssh-pk") };
    facts.query_results.insert(secret, QueryResult::PrivateKey("PEM".into()));
    let plan = plan(&service, &facts);
    let spec = json!({"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "cd-claimtemplate-6bb8bf548c"}, "allocationMode": "Single"}});
    assert_eq!(object(&plan, "ComputeDomain")["spec"], spec);
    for role in ["leader", "worker"] {
        let claim = &template(&plan, role)["spec"]["resourceClaims"][0];
        assert_eq!(claim["resourceClaimTemplateName"], "cd-claimtemplate-6bb8bf548c");
        assert!(claim["name"].as_str().unwrap().starts_with("claim-6bb8bf548c-2-"));
    }
}

#[test]
fn an_existing_compute_domain_is_waited_for_joined_and_told() {
    let service = spread(|spec| spec["multiNode"]["computeDomain"] = json!({"name": "rack"}));
    let waiting = plan(&service, &serving::<ComputeDomain>(keyed(facts())));
    assert_eq!(condition(&waiting, "Ready").1, "ComputeDomainNotFound");
    let domain = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "rack", "namespace": "nim"},
        "spec": {"numNodes": 2, "channel": {"resourceClaimTemplate": {"name": "rack-channel"}}},
        "status": {"status": "Ready", "nodes": [{"name": "n1", "ipAddress": "10.0.0.1", "cliqueID": "c.1", "status": "Ready"}]},
    });
    let plan = plan(&service, &serving::<ComputeDomain>(keyed(with([domain]))));
    assert!(!kinds(&plan).contains(&"ComputeDomain"));
    assert_eq!(template(&plan, "worker")["spec"]["resourceClaims"][0]["resourceClaimTemplateName"], "rack-channel");
    insta::assert_yaml_snapshot!(plan.status.compute_domain_status);
}

#[test]
fn volcano_starts_all_pods_or_none() {
    let service = spread(|spec| spec["schedulerName"] = "volcano".into());
    let plan = plan(&service, &serving::<PodGroup>(keyed(facts())));
    assert_eq!(object(&plan, "PodGroup")["spec"]["minMember"], 4);
    for role in ["leader", "worker"] {
        let template = template(&plan, role);
        assert_eq!(template["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "llama-lws");
        assert_eq!(template["spec"]["schedulerName"], "volcano");
    }
    let without = super::plan(&service, &keyed(facts()));
    assert!(
        condition(&without, "MissingAPI")
            .2
            .starts_with("spec.schedulerName needs PodGroup (scheduling.volcano.sh/v1beta1)")
    );
    assert_eq!(template(&without, "leader")["metadata"]["annotations"]["scheduling.k8s.io/group-name"], Value::Null);
}

#[test]
fn a_cluster_without_leader_worker_sets_says_so_and_leaves_what_runs() {
    let running =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "llama", "namespace": "nim"}});
    let plan = plan(&spread(|_| {}), &with([running]));
    let (status, reason, message) = condition(&plan, "Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "MissingAPI"));
    assert!(message.starts_with("spec.multiNode needs LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)"), "{message}");
    assert_eq!(plan.objects.unwrap().last().unwrap().policy, capstan_plan::Policy::Unmanaged);
}

#[test]
fn one_node_is_no_group() {
    let single = edited(|spec| spec["multiNode"] = json!({"parallelism": {"pipeline": 1}}));
    let plan = plan(&single, &facts());
    assert!(kinds(&plan).contains(&"Deployment"));
    assert_eq!(object(&plan, "Service")["spec"]["selector"], json!({"app": "llama"}));
}

#[test]
fn host_files_follow_the_replicas() {
    let files = |replicas: i32| {
        let plan = plan(&spread(|spec| spec["replicas"] = replicas.into()), &keyed(facts()));
        object(&plan, "ConfigMap")["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(files(1), ["hostfile-0"]);
    assert_eq!(files(3), ["hostfile-0", "hostfile-1", "hostfile-2"]);
}

#[test]
fn readiness_is_that_of_the_groups() {
    let cases = [
        (
            json!({"replicas": 1}),
            json!({"conditions": [{"type": "Available", "status": "True"}], "readyReplicas": 1}),
            "Ready",
            "is ready",
        ),
        (json!({"replicas": 1}), json!({}), "NotReady", "is not ready"),
        (json!({"replicas": 0}), json!({}), "NotReady", "is scaled down"),
    ];
    for (spec, status, state, message) in cases {
        let replicas = spec["replicas"].clone();
        let service = spread(|spec| spec["replicas"] = replicas);
        let first = plan(&service, &keyed(facts()));
        let facts = keyed(facts_after(&first, |reference, body| {
            if reference.gvk.kind == "LeaderWorkerSet" {
                body["status"] = status.clone();
            }
        }));
        let plan = plan(&service, &facts);
        assert_eq!(plan.status.state.as_deref(), Some(state));
        assert_eq!(condition(&plan, "Ready").2, format!("leaderworkerset \"llama-lws\" {message}"));
    }
}

#[test]
fn containers_of_the_user_are_in_both_roles_and_their_own_values_win() {
    let helper = |name: &str| {
        let env = json!([{"name": "NIM_MULTI_NODE", "value": "mine"}, {"name": "OWN", "value": "1"}]);
        json!([{"name": name, "image": {"repository": "r", "tag": "t"}, "env": env}])
    };
    let service = spread(|spec| {
        spec["initContainers"] = helper("first");
        spec["sidecarContainers"] = helper("beside");
    });
    let plan = plan(&service, &keyed(facts()));
    for role in ["leader", "worker"] {
        let pod = &template(&plan, role)["spec"];
        assert_eq!(names(&pod["initContainers"]), ["first"]);
        assert_eq!(names(&pod["containers"]), [format!("nim-{role}").as_str(), "beside"]);
        for helper in [&pod["initContainers"][0], &pod["containers"][1]] {
            assert_eq!(helper["env"][0], json!({"name": "NIM_MULTI_NODE", "value": "mine"}));
            let all = names(&helper["env"]);
            assert!(all.contains(&"NIM_CACHE_PATH") && all.contains(&"NIM_NODE_RANK"), "{all:?}");
            assert_eq!(all.iter().filter(|name| **name == "NIM_MULTI_NODE").count(), 1);
        }
    }
}

#[test]
fn arguments_and_further_ports_are_in_both_roles() {
    let service = spread(|spec| {
        spec["args"] = json!(["--verbose"]);
        spec["expose"]["service"] = json!({"port": 8123, "grpcPort": 50051, "metricsPort": 8002});
    });
    let plan = plan(&service, &keyed(facts()));
    for role in ["leader", "worker"] {
        let container = &template(&plan, role)["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["--verbose"]));
        assert_eq!(names(&container["ports"]), ["api", "grpc", "metrics"]);
    }
}

#[test]
fn without_a_number_there_is_one_group() {
    let service = spread(|spec| {
        spec.as_object_mut().unwrap().remove("replicas");
    });
    let plan = plan(&service, &keyed(facts()));
    assert_eq!(object(&plan, "LeaderWorkerSet")["spec"]["replicas"], 1);
    assert_eq!(object(&plan, "ConfigMap")["data"].as_object().unwrap().len(), 1);
}

#[test]
fn a_host_file_names_every_node_of_its_group() {
    let service = spread(|spec| {
        spec["replicas"] = 1.into();
        spec["multiNode"]["parallelism"] = json!({"pipeline": 3, "tensor": 4});
    });
    let plan = plan(&service, &keyed(facts()));
    assert_eq!(
        object(&plan, "ConfigMap")["data"]["hostfile-0"],
        "localhost slots=4\nllama-lws-0-1.llama-lws.nim.svc slots=4\nllama-lws-0-2.llama-lws.nim.svc slots=4\n"
    );
}

#[test]
fn the_start_script_may_be_run() {
    let plan = plan(&spread(|_| {}), &keyed(facts()));
    for role in ["leader", "worker"] {
        let volumes = template(&plan, role)["spec"]["volumes"].as_array().unwrap();
        let script = volumes.iter().find(|volume| volume["name"] == "start-mpi-script").unwrap();
        assert_eq!(script["configMap"]["defaultMode"], 0o555);
    }
}

#[test]
fn what_only_a_group_needs_goes_with_it() {
    let spread = spread(|spec| spec["multiNode"]["computeDomain"] = json!({"create": true}));
    let first = plan(&spread, &serving::<ComputeDomain>(keyed(facts())));
    let after = facts_after(&first, |_, body| body["metadata"]["uid"] = "x".into());
    let changes = capstan_plan::diff("u-llama", &plan(&service(plain()), &after).objects.unwrap(), &after.live);
    let mut gone: Vec<&str> = changes.delete.iter().map(|one| &*one.reference.gvk.kind).collect();
    gone.sort_unstable();
    assert_eq!(gone, ["ComputeDomain", "ConfigMap", "ConfigMap", "LeaderWorkerSet", "Secret"]);
}

#[test]
fn a_compute_domain_is_made_or_named_and_not_both() {
    for (domain, fault) in [
        (json!({}), "names no ComputeDomain"),
        (json!({"create": false, "name": ""}), "names no ComputeDomain"),
        (json!({"create": true, "name": "rack"}), "has both create: true and name"),
    ] {
        let service = spread(|spec| spec["multiNode"]["computeDomain"] = domain);
        let errors = check(&service, None, &facts()).errors;
        assert!(
            errors.len() == 1 && errors[0].starts_with(&format!("spec.multiNode.computeDomain {fault}")),
            "{errors:?}"
        );
    }
}
