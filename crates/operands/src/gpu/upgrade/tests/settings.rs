//! How policy and annotations are read.

use std::collections::BTreeMap;

use capstan_api::gpu::upgrade::UpgradePolicy;
use serde_json::{Value, json};

use super::*;

fn policy(policy: Value) -> UpgradePolicy {
    serde_json::from_value(policy).unwrap()
}

fn annotated(name: &str, value: &str) -> Settings {
    Settings::of(None, Some(&BTreeMap::from([(format!("{PREFIX}{name}"), value.to_owned())])))
}

#[test]
fn without_a_policy_the_defaults_of_the_api_hold() {
    let settings = Settings::of(None, None);
    assert_eq!((settings.max_parallel, settings.max_unavailable), (1, Some(Amount::Percent(25))));
    let eviction = Eviction { force: false, delete_empty_dir: false, timeout: Some(300) };
    assert_eq!(settings.pod_deletion, Some(eviction), "without podDeletion pods are evicted all the same");
    assert_eq!((settings.wait, settings.drain, settings.hold), (None, None, None));
    assert_eq!((settings.validation_timeout, settings.restart_threshold, settings.retries), (600, 10, 3));
}

#[test]
fn the_policy_is_read() {
    let settings = Settings::of(
        Some(&policy(json!({
            "maxParallelUpgrades": 0, "maxUnavailable": 3,
            "waitForCompletion": {"podSelector": "app=job", "timeoutSeconds": 60},
            "podDeletion": {"force": true, "timeoutSeconds": 0, "deleteEmptyDir": true},
            "drain": {"enable": true, "timeoutSeconds": 30, "force": true},
        }))),
        None,
    );
    assert_eq!((settings.max_parallel, settings.max_unavailable), (0, Some(Amount::Count(3))));
    assert_eq!(settings.wait.unwrap().timeout, Some(60));
    assert_eq!(settings.pod_deletion, Some(Eviction { force: true, delete_empty_dir: true, timeout: None }));
    assert_eq!(settings.drain.unwrap().eviction, Eviction { force: true, delete_empty_dir: false, timeout: Some(30) });
}

#[test]
fn pods_can_be_kept_out_of_drains() {
    let skip = "nvidia.com/gpu-driver-upgrade-drain.skip!=true";
    assert_eq!(drain_selector(None), skip);
    assert_eq!(drain_selector(Some("")), skip);
    assert_eq!(drain_selector(Some("app=web")), format!("app=web,{skip}"));
}

#[test]
fn our_annotations_are_read() {
    assert_eq!(annotated("canary-size", "5%").canary, Some(Canary { size: Amount::Percent(5), soak: 0 }));
    assert_eq!(annotated("canary-size", "0").canary, None);
    assert_eq!(annotated("max-failures", "0").max_failures, Some(Amount::Count(0)));
    assert!(annotated("rollback", "true").rollback);
    assert_eq!(annotated("retries", "0").retries, 0);
    assert_eq!(annotated("retry-backoff", "2h").backoff, 7200);
    assert_eq!(annotated("validation-timeout", "15m").validation_timeout, 900);
    assert_eq!(annotated("restart-timeout", "90").restart_timeout, 90);
    assert_eq!(annotated("restart-threshold", "3").restart_threshold, 3);
}

#[test]
fn a_bad_value_is_named_with_a_fix() {
    let cases = [
        (
            annotated("validation-timeout", "soon"),
            r#"annotation capstan.dev/upgrade-validation-timeout: "soon" cannot be read; write a time such as 90s, 15m or 2h"#,
        ),
        (
            annotated("validation-timeout", "0"),
            r#"annotation capstan.dev/upgrade-validation-timeout: "0" cannot be read; write a time such as 90s, 15m or 2h"#,
        ),
        (
            annotated("canary-size", "-1"),
            r#"annotation capstan.dev/upgrade-canary-size: "-1" cannot be read; write a number of nodes such as 2, or a share such as 5%"#,
        ),
        (
            annotated("rollback", "yes"),
            r#"annotation capstan.dev/upgrade-rollback: "yes" cannot be read; write true or false"#,
        ),
        (
            Settings::of(Some(&policy(json!({"maxUnavailable": "10%abc"}))), None),
            r#"upgradePolicy.maxUnavailable: "10%abc" cannot be read; write a number of nodes such as 2, or a share such as 25%"#,
        ),
        (
            Settings::of(Some(&policy(json!({"waitForCompletion": {"podSelector": "a b"}}))), None),
            r#"upgradePolicy.waitForCompletion.podSelector: "a b" is no term of a label selector; write one such as app=job"#,
        ),
    ];
    for (settings, expected) in cases {
        assert_eq!(settings.hold.as_deref(), Some(expected));
    }
    let typo = annotated("canarysize", "1").hold.unwrap();
    assert!(
        typo.starts_with("annotation capstan.dev/upgrade-canarysize is not known; known are canary-size,"),
        "{typo}"
    );
}
