//! How far the rollout of a Deployment is, in the words that `kubectl rollout status` uses.

use k8s_openapi::api::apps::v1::Deployment;

/// How far a workload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Whether the workload is there.
    pub exists: bool,
    /// Whether all of its pods are of the newest kind and answer.
    pub ready: bool,
    /// Whether it has given up.
    pub stuck: bool,
    /// Pods that answer.
    pub available: i32,
    /// The same for people.
    pub message: String,
}

/// How far the Deployment `name` is, of which `replicas` are wanted while it is not there.
pub fn of_deployment(name: &str, live: Option<&Deployment>, replicas: i32) -> Rollout {
    let available_of = |available: i32, updated: i32| {
        let count = format!("{available} of {updated} updated replicas are available...");
        format!("Waiting for deployment \"{name}\" rollout to finish: {count}")
    };
    let Some(live) = live else {
        // What is true a moment later as well need not be written again.
        let message = available_of(0, replicas);
        return Rollout { exists: false, ready: false, stuck: false, available: 0, message };
    };
    let status = live.status.clone().unwrap_or_default();
    let wanted = live.spec.replicas.unwrap_or(1);
    let (updated, available) = (status.updated_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    let stuck = status.conditions.iter().flatten().any(|condition| {
        condition.type_.as_deref() == Some("Progressing")
            && condition.reason.as_deref() == Some("ProgressDeadlineExceeded")
    });
    let observed = status.observed_generation >= live.metadata.generation;
    let (ready, message) = if wanted == 0 {
        (false, format!("deployment \"{name}\" is scaled down"))
    } else if stuck {
        (false, format!("deployment \"{name}\" exceeded its progress deadline"))
    } else if status.observed_generation.is_none() {
        (false, available_of(0, wanted))
    } else if !observed {
        (false, format!("Waiting for deployment \"{name}\" spec update to be observed..."))
    } else if updated < wanted {
        let count = format!("{updated} out of {wanted} new replicas have been updated...");
        (false, format!("Waiting for deployment \"{name}\" rollout to finish: {count}"))
    } else if available < updated {
        (false, available_of(available, updated))
    } else {
        (true, format!("deployment \"{name}\" successfully rolled out"))
    };
    Rollout { exists: true, ready, stuck, available, message }
}
