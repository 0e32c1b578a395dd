//! Status of an autoscaler.

use std::sync::Arc;

use capstan_apiserver::error::Result;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::common::Controller;

/// A status under construction.
pub(super) struct Report {
    pub(super) status: HorizontalPodAutoscalerStatus,
    now: Time,
}

impl Report {
    /// Starts from the last status.
    pub(super) fn of(hpa: &HorizontalPodAutoscaler, now: Time) -> Self {
        let mut status = hpa.status.clone().unwrap_or_default();
        status.observed_generation = hpa.metadata.generation.or(status.observed_generation);
        Self { status, now }
    }

    /// Sets a condition. `lastTransitionTime` is the last change of its status.
    pub(super) fn set(&mut self, kind: &str, status: &str, reason: &str, message: impl Into<String>) {
        let conditions = self.status.conditions.get_or_insert_default();
        let fresh = HorizontalPodAutoscalerCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_transition_time: Some(self.now.clone()),
            observed_generation: None,
        };
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            Some(old) => {
                let since = if old.status == status { old.last_transition_time.clone() } else { None };
                *old = fresh;
                if since.is_some() {
                    old.last_transition_time = since;
                }
            }
            None => conditions.push(fresh),
        }
    }

    /// Writes the status, if it changed.
    pub(super) async fn write(self, this: &Controller, hpa: &Arc<HorizontalPodAutoscaler>) -> Result<()> {
        let mut next = HorizontalPodAutoscaler::clone(hpa);
        next.status = Some(self.status);
        this.writer.update_status(hpa, &next).await.map(drop)
    }
}
