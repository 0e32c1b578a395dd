//! The last words of containers that do not run as they should: that is where causes stand.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::LogParams;
use kube::{Api, Client, ResourceExt};

use super::Snapshot;

/// Lines of each log.
const LINES: i64 = 200;
/// Logs in all: on a large cluster most say the same.
const MOST: usize = 100;
/// Logs that are asked for at the same time.
const AT_ONCE: usize = 8;

/// A log to read.
struct Wanted {
    namespace: String,
    pod: String,
    container: String,
    previous: bool,
}

/// The ends of the logs of containers that are of interest, by the names that [`Snapshot`] gives them.
pub(super) async fn read(client: &Client, snapshot: &Snapshot) -> BTreeMap<String, String> {
    let pods = snapshot.typed::<Pod>();
    let wanted: Vec<Wanted> = pods.iter().flat_map(wanted).take(MOST).collect();
    let read = futures::stream::iter(wanted).map(|one| async move {
        let api: Api<Pod> = Api::namespaced(client.clone(), &one.namespace);
        let params = LogParams {
            container: Some(one.container.clone()),
            previous: one.previous,
            tail_lines: Some(LINES),
            ..LogParams::default()
        };
        let text = api.logs(&one.pod, &params).await.ok().filter(|text| !text.is_empty())?;
        let previous = if one.previous { "#previous" } else { "" };
        Some((format!("{}/{}/{}{previous}", one.namespace, one.pod, one.container), text))
    });
    read.buffer_unordered(AT_ONCE).filter_map(|read| async { read }).collect().await
}

fn wanted(pod: &Pod) -> Vec<Wanted> {
    let status = pod.status.as_ref();
    let containers = status
        .iter()
        .flat_map(|status| status.init_container_statuses.iter().chain(status.container_statuses.iter()).flatten());
    let one = |container: &ContainerStatus, previous| Wanted {
        namespace: pod.namespace().unwrap_or_default(),
        pod: pod.name_any(),
        container: container.name.clone(),
        previous,
    };
    let mut all = Vec::new();
    for container in containers {
        let state = container.state.clone().unwrap_or_default();
        let failed = state.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0);
        let runs_unready = state.running.is_some() && !container.ready;
        if failed || runs_unready {
            all.push(one(container, false));
        }
        if container.restart_count > 0 && !container.ready {
            all.push(one(container, true));
        }
    }
    all
}
