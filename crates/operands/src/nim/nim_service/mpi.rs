//! MPI for multi-node models: host files, start script and key.

use std::collections::BTreeMap;
use std::fmt::Write;

use capstan_api::nim::multi_node::MultiNode;
use capstan_plan::kit::pod::{Mount, at, empty_dir_volume};
use capstan_plan::{Object, Query, QueryResult, Ref};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, Container, Secret, SecretVolumeSource, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::parts::{Parts, Stop};
use super::{Cx, multi_node, names};

const SCRIPT: &str = "start-mpi-cluster.sh";
const KEY: &str = "private.key";

/// Starts the API server. Its output goes through the image's own JSON formatter, where that is wanted and there.
const START: &str = r#"#!/bin/bash
set -o pipefail

python=/opt/nim/llm/.venv/bin/python3
server=nim_llm_sdk.entrypoints.openai.api_server
formatter=nim_llm_sdk.logging.pack_all_logs_into_json

if [ "${NIM_JSONL_LOGGING:-0}" = "1" ] && "$python" -c "import $formatter" 2>/dev/null; then
  "$python" -m "$server" 2>&1 | "$python" -m "$formatter"
else
  exec "$python" -m "$server"
fi
"#;

/// Adds them, once the key is generated.
pub(super) fn add(cx: &Cx<'_>, spread: &MultiNode, parts: &mut Parts) -> Option<Stop> {
    let [hosts, script, key] = names::of_mpi(cx);
    let config = |name: &str, data| ConfigMap { metadata: meta(cx, name), data: Some(data), ..ConfigMap::default() };
    parts.add(&config(&hosts, host_files(cx, spread)));
    parts.add(&config(&script, BTreeMap::from([(SCRIPT.to_owned(), START.to_owned())])));
    let secret = Ref::of::<Secret>(&cx.namespace, &key);
    let query = Query::PrivateKey { secret: secret.clone() };
    let pem = match cx.facts.query_results.get(&query) {
        Some(QueryResult::PrivateKey(pem)) => Some(pem.clone()),
        _ => None,
    };
    let there = cx.facts.live.get(&secret).is_some();
    if !there && pem.is_none() {
        parts.queries.push(query);
        return Some(Stop::wait("NotReady", format!("a key for Secret {key} is being made")));
    }
    if !there {
        // Queried until the Secret is cached: a failed write needs the key again.
        parts.queries.push(query);
    }
    let data = pem.map(|pem| BTreeMap::from([(KEY.to_owned(), ByteString(pem.into_bytes()))]));
    parts.objects.push(Object::new(&Secret { metadata: meta(cx, &key), data, ..Secret::default() }).create_once());
    None
}

/// Metadata with the annotations of the service itself.
fn meta(cx: &Cx<'_>, name: &str) -> ObjectMeta {
    ObjectMeta { annotations: cx.service.metadata.annotations.clone(), ..names::bare(cx, name) }
}

/// One host file per group: this node first, then the others by the names that their LeaderWorkerSet gives them.
fn host_files(cx: &Cx<'_>, spread: &MultiNode) -> BTreeMap<String, String> {
    let (group, slots) = (names::of_group(cx), multi_node::gpus(spread));
    let file = |replica: i32| {
        let mut text = format!("localhost slots={slots}\n");
        for node in 1..multi_node::nodes(spread) {
            let _ = writeln!(text, "{group}-{replica}-{node}.{group}.{}.svc slots={slots}", cx.namespace);
        }
        (format!("hostfile-{replica}"), text)
    };
    (0..multi_node::replicas(cx)).map(file).collect()
}

/// Mounts them into leader and worker.
pub(super) fn mount(cx: &Cx<'_>, [of_leader, of_worker]: &mut [Vec<Volume>; 2], [leader, worker]: &mut [Container; 2]) {
    let [hosts, script, key] = names::of_mpi(cx);
    let config = |name: &str, map: &str| Volume {
        name: name.into(),
        config_map: Some(ConfigMapVolumeSource {
            name: map.into(),
            default_mode: Some(0o555),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let shared = [
        empty_dir_volume("ssh-dotfiles"),
        Volume {
            name: "ssh-pk".into(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(key),
                default_mode: Some(0o400),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        },
        config("start-mpi-script", &script),
    ];
    let mounts = [
        at("ssh-dotfiles", "/opt/nim/llm/.ssh"),
        at("ssh-pk", "/opt/nim/llm/pk"),
        at("start-mpi-script", &format!("/opt/nim/{SCRIPT}")).sub(SCRIPT),
    ];
    of_leader.push(config("mpi-config", &hosts));
    of_worker.push(empty_dir_volume("ssh-confs"));
    let own = [at("mpi-config", "/etc/mpi"), at("ssh-confs", "/ssh-confs")];
    for ((volumes, container), own) in [(of_leader, leader), (of_worker, worker)].into_iter().zip(own) {
        volumes.extend(shared.clone());
        container.volume_mounts.get_or_insert_default().extend(std::iter::once(own).chain(mounts.clone()));
    }
}
