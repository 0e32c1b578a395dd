//! Limits on scaling: replica bounds, stabilization windows and scaling policies.

use std::collections::VecDeque;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler};
use tokio::time::Instant;

use super::status::Report;

/// Longest stabilization window or policy period; older history is dropped.
const HISTORY_RETENTION: Duration = Duration::from_secs(3600);
const DOWN_WINDOW: i32 = 300;

/// Recent recommendations and scale events of an autoscaler.
#[derive(Debug, Default)]
pub(super) struct ScalingHistory {
    recommendations: VecDeque<(Instant, i32)>,
    /// Change of the replica count: scale-up is positive.
    changes: VecDeque<(Instant, i32)>,
}

impl ScalingHistory {
    /// Records a scale event.
    pub(super) fn record_scale_event(&mut self, before: i32, after: i32) {
        self.changes.push_back((Instant::now(), after - before));
    }

    /// Limits a recommended replica count.
    pub(super) fn limit(
        &mut self,
        hpa: &HorizontalPodAutoscaler,
        current: i32,
        recommendation: i32,
        report: &mut Report,
    ) -> i32 {
        let now = Instant::now();
        self.expire(now);
        let behavior = hpa.spec.behavior.clone().unwrap_or_default();
        let up = behavior.scale_up.unwrap_or_default();
        let down = behavior.scale_down.unwrap_or_default();
        let stabilized = self.stabilize(now, &up, &down, current, recommendation, report);
        self.recommendations.push_back((now, recommendation));
        let bounded = self.apply_policies(now, hpa, &up, &down, current, stabilized, report);
        bounded.clamp(0, i32::MAX)
    }

    fn expire(&mut self, now: Instant) {
        for list in [&mut self.recommendations, &mut self.changes] {
            while list.front().is_some_and(|(at, _)| now - *at > HISTORY_RETENTION) {
                list.pop_front();
            }
        }
    }

    /// Applies the stabilization windows: the lowest recent recommendation for scale-up, the highest for scale-down.
    fn stabilize(
        &self,
        now: Instant,
        up: &HPAScalingRules,
        down: &HPAScalingRules,
        current: i32,
        recommendation: i32,
        report: &mut Report,
    ) -> i32 {
        let within = |seconds: i32| {
            let window = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            self.recommendations
                .iter()
                .filter(move |(at, _)| now - *at < window)
                .map(|(_, recommendation)| *recommendation)
        };
        let least = within(up.stabilization_window_seconds.unwrap_or(0)).fold(recommendation, i32::min);
        let most = within(down.stabilization_window_seconds.unwrap_or(DOWN_WINDOW)).fold(recommendation, i32::max);
        let stabilized = if current < least { least } else { current.min(most) };
        let (reason, message) = match stabilized {
            stabilized if stabilized == recommendation => ("ReadyForNewScale", "recommended size matches current size"),
            stabilized if stabilized > recommendation => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
            _ => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
        };
        report.set("AbleToScale", "True", reason, message);
        stabilized
    }

    #[allow(clippy::too_many_arguments)]
    fn apply_policies(
        &self,
        now: Instant,
        hpa: &HorizontalPodAutoscaler,
        up: &HPAScalingRules,
        down: &HPAScalingRules,
        current: i32,
        recommendation: i32,
        report: &mut Report,
    ) -> i32 {
        let (min, max) = (hpa.spec.min_replicas.unwrap_or(1), hpa.spec.max_replicas);
        let (bound, reason, message) = if recommendation > current {
            let scaling_history = self.scale_up_limit(now, up, current).max(current);
            match scaling_history < max {
                true => (
                    scaling_history,
                    "ScaleUpLimit",
                    "the desired replica count is increasing faster than the maximum scale rate",
                ),
                false => (max, "TooManyReplicas", "the desired replica count is more than the maximum replica count"),
            }
        } else if recommendation < current {
            let scaling_history = self.scale_down_limit(now, down, current).min(current);
            match scaling_history > min {
                true => (
                    scaling_history,
                    "ScaleDownLimit",
                    "the desired replica count is decreasing faster than the maximum scale rate",
                ),
                false => (min, "TooFewReplicas", "the desired replica count is less than the minimum replica count"),
            }
        } else {
            (recommendation, "", "")
        };
        if (recommendation > current && recommendation > bound) || (recommendation < current && recommendation < bound)
        {
            report.set("ScalingLimited", "True", reason, message);
            return bound;
        }
        let message = "the desired count is within the acceptable range";
        report.set("ScalingLimited", "False", "DesiredWithinRange", message);
        recommendation
    }

    /// Sum of scale events within the period of a policy, in one direction.
    fn changed(&self, now: Instant, policy: &HPAScalingPolicy, sign: i32) -> i32 {
        let window = Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or(0));
        let recent = self.changes.iter().filter(|(at, _)| now - *at < window).map(|(_, change)| change * sign);
        recent.filter(|change| *change > 0).sum()
    }

    fn scale_up_limit(&self, now: Instant, rules: &HPAScalingRules, current: i32) -> i32 {
        let policies = rules.policies.clone().unwrap_or_else(|| vec![policy("Pods", 4), policy("Percent", 100)]);
        let of = |policy: &HPAScalingPolicy| {
            let start = current - self.changed(now, policy, 1);
            match policy.type_.as_str() {
                "Pods" => start + policy.value,
                _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        };
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => policies.iter().map(of).min().unwrap_or(i32::MAX),
            _ => policies.iter().map(of).max().unwrap_or(i32::MAX),
        }
    }

    fn scale_down_limit(&self, now: Instant, rules: &HPAScalingRules, current: i32) -> i32 {
        let policies = rules.policies.clone().unwrap_or_else(|| vec![policy("Percent", 100)]);
        let of = |policy: &HPAScalingPolicy| {
            let start = current + self.changed(now, policy, -1);
            match policy.type_.as_str() {
                "Pods" => start - policy.value,
                _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        };
        match rules.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => policies.iter().map(of).max().unwrap_or(0),
            _ => policies.iter().map(of).min().unwrap_or(0),
        }
    }
}

fn policy(kind: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { type_: kind.to_owned(), value, period_seconds: 15 }
}
