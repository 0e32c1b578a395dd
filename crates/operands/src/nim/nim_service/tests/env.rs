//! Environments: which variable wins, and in which order they stand.

use super::*;

fn names(container: &Value) -> Vec<String> {
    let list = container["env"].as_array().unwrap();
    list.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn value<'a>(container: &'a Value, name: &str) -> &'a Value {
    let list = container["env"].as_array().unwrap();
    list.iter().find(|one| one["name"] == name).map_or(&Value::Null, |one| &one["value"])
}

fn secret<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    let list = container["env"].as_array().unwrap();
    list.iter().find(|one| one["name"] == name).map(|one| &one["valueFrom"]["secretKeyRef"])
}

#[test]
fn the_user_wins_over_us_and_leads() {
    let plan = plan(
        &edited(|spec| spec["env"] = json!([{"name": "B", "value": "1"}, {"name": "NIM_LOG_LEVEL", "value": "DEBUG"}])),
        &facts(),
    );
    let expected = [
        "B",
        "NIM_LOG_LEVEL",
        "NIM_CACHE_PATH",
        "OUTLINES_CACHE_DIR",
        "NIM_SERVER_PORT",
        "NIM_HTTP_API_PORT",
        "NIM_JSONL_LOGGING",
        "NGC_API_KEY",
    ];
    assert_eq!(names(container(&plan)), expected);
}

#[test]
fn all_standard_names_set_by_the_user_are_exactly_what_is_left() {
    let own = [
        "NIM_CACHE_PATH",
        "OUTLINES_CACHE_DIR",
        "NIM_SERVER_PORT",
        "NIM_HTTP_API_PORT",
        "NIM_JSONL_LOGGING",
        "NIM_LOG_LEVEL",
        "NGC_API_KEY",
    ];
    let env: Vec<_> = own.iter().map(|name| json!({"name": name, "value": "mine"})).collect();
    let plan = plan(&edited(|spec| spec["env"] = env.clone().into()), &facts());
    assert_eq!(container(&plan)["env"], Value::from(env));
}

#[test]
fn the_proxy_wins_over_the_user_with_all_its_seven_variables() {
    let plan = plan(
        &edited(|spec| {
            spec["env"] = json!([{"name": "HTTP_PROXY", "value": "mine"}]);
            spec["proxy"] = json!({"httpsProxy": "http://proxy:3128"});
        }),
        &facts(),
    );
    let expected =
        ["NIM_SDK_USE_NATIVE_TLS", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"];
    assert_eq!(names(container(&plan))[..7], expected);
    assert_eq!(
        (value(container(&plan), "HTTP_PROXY"), value(container(&plan), "https_proxy")),
        (&json!(""), &json!("http://proxy:3128"))
    );
}

#[test]
fn a_universal_cache_names_the_model_unless_the_user_does() {
    let facts = with([cache(hugging_face(), json!({}))]);
    let plain = plan(&cached("", |_| {}), &facts);
    assert_eq!(value(container(&plain), "NIM_MODEL_NAME"), "/model-store");
    assert_eq!(value(container(&plain), "HF_HOME"), "/model-store/huggingface/hub");
    assert_eq!(value(container(&plain), "NIM_MODEL_PATH"), "hf://meta/llama");
    let own = plan(&cached("", |spec| spec["env"] = json!([{"name": "NIM_MODEL_NAME", "value": "mine"}])), &facts);
    assert_eq!(value(container(&own), "NIM_MODEL_NAME"), "mine");
    let optimized = plan(&cached("p1", |_| {}), &with([cache(ngc(), json!({}))]));
    assert_eq!(value(container(&optimized), "NIM_MODEL_NAME"), &Value::Null);
    assert_eq!(value(container(&optimized), "NIM_MODEL_PROFILE"), "p1");
}

#[test]
fn caches_that_name_no_model_set_no_path_and_break_nothing() {
    let mut endpoint = ngc();
    endpoint["ngc"]["modelEndpoint"] = "ngc://x".into();
    let mut dataset = hugging_face();
    dataset["hf"]["modelName"] = Value::Null;
    dataset["hf"]["datasetName"] = "d".into();
    for source in [endpoint, dataset] {
        let plan = plan(&cached("", |_| {}), &with([cache(source, json!({}))]));
        assert!(!names(container(&plan)).contains(&"NIM_MODEL_PATH".to_owned()));
        assert_eq!(value(container(&plan), "NIM_MODEL_NAME"), "/model-store");
    }
}

#[test]
fn models_of_a_hub_need_its_token_and_may_do_without_ours() {
    let store = json!({"dataStore": {
        "endpoint": "http://store/v1/hf", "namespace": "default", "modelName": "m", "authSecret": "hf",
        "modelPuller": "p", "pullSecret": "s",
    }});
    let by_name = edited(|spec| spec["env"] = json!([{"name": "NIM_MODEL_NAME", "value": "hf://meta/llama"}]));
    let cases = [
        (cached("", |_| {}), with([cache(hugging_face(), json!({}))])),
        (cached("", |_| {}), with([cache(store, json!({}))])),
        (by_name, facts()),
    ];
    for (service, facts) in cases {
        let plan = plan(&service, &facts);
        assert_eq!(names(container(&plan))[..2], ["NGC_API_KEY", "HF_TOKEN"]);
        assert_eq!(secret(container(&plan), "NGC_API_KEY").unwrap()["optional"], true);
        assert_eq!(secret(container(&plan), "HF_TOKEN").unwrap()["optional"], Value::Null);
    }
    let plan = plan(&cached("p1", |_| {}), &with([cache(ngc(), json!({}))]));
    assert_eq!(secret(container(&plan), "NGC_API_KEY").unwrap()["optional"], Value::Null);
}

#[test]
fn without_a_secret_a_key_of_the_user_goes_from_the_server_but_not_from_its_helpers() {
    let service = cached("", |spec| {
        spec.as_object_mut().unwrap().remove("authSecret");
        spec["env"] = json!([{"name": "NGC_API_KEY", "value": "k"}]);
        spec["sidecarContainers"] =
            json!([{"name": "s", "image": {"repository": "r", "tag": "t"}, "env": [{"name": "OWN", "value": "1"}]}]);
    });
    let plan = plan(&service, &with([cache(hugging_face(), json!({}))]));
    assert!(!names(container(&plan)).contains(&"NGC_API_KEY".to_owned()));
    let sidecar = &object(&plan, "Deployment")["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(names(sidecar)[..2], ["OWN", "NGC_API_KEY"]);
    assert!(!names(sidecar).contains(&"NIM_MODEL_NAME".to_owned()));
}

#[test]
fn the_native_layout_has_its_own_path_and_mounts() {
    let service = cached("", |spec| spec["env"] = json!([{"name": "NIM_ENGINE_MODEL_PATH", "value": "mine"}]));
    let plan = plan(&service, &with([cache(hugging_face(), json!({"type": "native"}))]));
    assert_eq!(value(container(&plan), "NIM_ENGINE_MODEL_PATH"), "/model/models");
    assert!(!names(container(&plan)).contains(&"NIM_MODEL_NAME".to_owned()));
    let plan = super::plan(&cached("", |_| {}), &with([cache(ngc(), json!({"type": "native"}))]));
    for key in ["NGC_API_KEY", "HF_TOKEN"] {
        assert_eq!(secret(container(&plan), key).unwrap()["optional"], true);
    }
    let mounts = container(&plan)["volumeMounts"].as_array().unwrap();
    let paths: Vec<_> =
        mounts.iter().map(|mount| (mount["mountPath"].as_str().unwrap(), mount["subPath"].as_str())).collect();
    assert_eq!(paths, [("/model", Some("llama")), ("/opt/cache", Some("llama")), ("/dev/shm", None)]);
}
