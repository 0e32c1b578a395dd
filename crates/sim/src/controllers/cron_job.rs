//! CronJob controller: creates a Job at every scheduled time.

use std::sync::Arc;
use std::time::Duration;

use capstan_apiserver::error::Result;
use capstan_apiserver::ops::{DeleteOptions, Propagation};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::common::{
    Controller, Outcome, Reconciled, ignore_not_found, name_of, namespace_is_terminating, set_in, uid_of,
};
use super::cron_schedule::Schedule;
use super::pods::controller_ref;
use crate::context::Context;
use crate::events::reference;
use crate::writer::{is_already_exists, is_not_found};

/// More missed start times than this indicate clock skew.
const MAX_MISSED_SCHEDULES: usize = 100;
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub(crate) fn start(context: &Context) {
    let controller = Controller::new(context, "cronjob-controller", "cronjob-controller");
    controller.watch(&context.caches.cron_jobs);
    controller.watch_owned::<CronJob, _>(&context.caches.jobs);
    controller.run(2, |this, key| async move { reconcile(&this, &key).await });
}

async fn reconcile(this: &Controller, key: &str) -> Reconciled {
    let Some(cron) = this.context.caches.cron_jobs.get(key) else { return Ok(Outcome::Done) };
    let jobs = this.context.caches.jobs.controlled_by(uid_of(&*cron));
    let mut step = Step { this, status: cron.status.clone().unwrap_or_default(), cron, jobs };
    step.sync_active();
    let wait = if step.cron.metadata.deletion_timestamp.is_some() { Ok(None) } else { step.run().await };
    step.write_status().await?;
    step.clean_up().await?;
    wait.map(Outcome::requeue_after)
}

/// One reconcile of a cron job.
struct Step<'a> {
    this: &'a Controller,
    cron: Arc<CronJob>,
    jobs: Vec<Arc<Job>>,
    /// The new status.
    status: CronJobStatus,
}

impl Step<'_> {
    /// Removes finished and deleted jobs from `status.active`.
    fn sync_active(&mut self) {
        for job in self.jobs.clone() {
            let active = self.status.active.iter().flatten().any(|one| one.uid == job.metadata.uid);
            match (end(&job), active) {
                (None, false) if job.metadata.deletion_timestamp.is_none() => {
                    let name = name_of(&*job);
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.this.warning(&*self.cron, "UnexpectedJob", message);
                }
                (Some((how, _)), true) => {
                    self.forget(uid_of(&*job));
                    let message = format!("Saw completed job: {}, condition: {how}", name_of(&*job));
                    self.this.normal(&*self.cron, "SawCompletedJob", message);
                }
                _ => {}
            }
            if let Some(("Complete", Some(time))) = end(&job)
                && self.status.last_successful_time.as_ref().is_none_or(|last| *last < time)
            {
                self.status.last_successful_time = Some(time);
            }
        }
        for missing in self.status.active.clone().unwrap_or_default() {
            if self.jobs.iter().all(|job| job.metadata.uid != missing.uid) {
                let message = format!("Active job went missing: {}", missing.name.unwrap_or_default());
                self.this.normal(&*self.cron, "MissingJob", message);
                self.forget(missing.uid.as_deref().unwrap_or_default());
            }
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(active) = &mut self.status.active {
            active.retain(|one| one.uid.as_deref() != Some(uid));
            if active.is_empty() {
                self.status.active = None;
            }
        }
    }

    /// Creates a job if one is due. Returns the delay until the next one.
    async fn run(&mut self) -> Result<Option<Duration>> {
        let Some((schedule, zone)) = self.schedule() else { return Ok(None) };
        if self.cron.spec.suspend == Some(true) {
            return Ok(None);
        }
        let now = self.this.context.clock().now();
        if let Some(due) = self.due(&schedule, &zone, now)
            && !self.is_late(due, now)
            && self.status.last_schedule_time.as_ref().is_none_or(|last| last.0 < due)
        {
            self.start_job(due, &zone).await?;
        }
        let next = schedule.next(now, &zone);
        Ok(next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default()))
    }

    fn schedule(&self) -> Option<(Schedule, TimeZone)> {
        let zone = match self.cron.spec.time_zone.as_deref() {
            None | Some("") => TimeZone::UTC,
            Some(name) => match TimeZone::get(name) {
                Ok(zone) => zone,
                Err(error) => {
                    let message = format!("invalid timeZone: \"{name}\": {error}");
                    self.this.warning(&*self.cron, "UnknownTimeZone", message);
                    return None;
                }
            },
        };
        match self.cron.spec.schedule.parse::<Schedule>() {
            Ok(schedule) => Some((schedule, zone)),
            Err(error) => {
                let message = format!("unparseable schedule: {} : {error}", self.cron.spec.schedule);
                self.this.warning(&*self.cron, "UnparseableSchedule", message);
                None
            }
        }
    }

    /// The latest scheduled time that is due by now.
    fn due(&self, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let since = self.status.last_schedule_time.as_ref().or(self.cron.metadata.creation_timestamp.as_ref())?.0;
        let since = match self.cron.spec.starting_deadline_seconds {
            Some(deadline) => since.max(now.checked_sub(jiff::SignedDuration::from_secs(deadline)).unwrap_or(since)),
            None => since,
        };
        let (mut due, mut count) = (None, 0);
        let mut at = schedule.next(since, zone)?;
        while at <= now {
            due = Some(at);
            count += 1;
            if count > MAX_MISSED_SCHEDULES {
                let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check \
                               clock skew";
                self.this.warning(&*self.cron, "TooManyMissedTimes", message);
                return last_before(schedule, zone, now);
            }
            at = schedule.next(at, zone)?;
        }
        due
    }

    fn is_late(&self, due: Timestamp, now: Timestamp) -> bool {
        let Some(deadline) = self.cron.spec.starting_deadline_seconds else { return false };
        let late = due.as_second() + deadline < now.as_second();
        if late {
            let time = due.strftime("%a, %d %b %Y %H:%M:%S %z");
            let message = format!("Missed scheduled time to start a job: {time}");
            self.this.warning(&*self.cron, "MissSchedule", message);
        }
        late
    }

    async fn start_job(&mut self, due: Timestamp, zone: &TimeZone) -> Result<()> {
        let active = self.status.active.clone().unwrap_or_default();
        match self.cron.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.this.normal(&*self.cron, "JobAlreadyActive", message);
                return Ok(());
            }
            Some("Replace") => {
                for job in self.jobs.clone().iter().filter(|job| end(job).is_none()) {
                    self.delete(job).await?;
                    self.forget(uid_of(&**job));
                }
            }
            _ => {}
        }
        let job = match self.this.writer.create(&self.job_at(due, zone)).await {
            Ok(job) => job,
            Err(error) if is_already_exists(&error) || namespace_is_terminating(&error) => return Ok(()),
            Err(error) => {
                self.this.warning(&*self.cron, "FailedCreate", format!("Error creating job: {error}"));
                return Err(error);
            }
        };
        self.this.normal(&*self.cron, "SuccessfulCreate", format!("Created job {}", name_of(&*job)));
        self.status.active.get_or_insert_default().push(reference(&*job));
        self.status.last_schedule_time = Some(Time(due));
        Ok(())
    }

    fn job_at(&self, due: Timestamp, zone: &TimeZone) -> Job {
        let template = &self.cron.spec.job_template;
        let meta = template.metadata.clone().unwrap_or_default();
        let mut annotations = meta.annotations;
        let scheduled_time = due.to_zoned(zone.clone());
        let scheduled_time = if *zone == TimeZone::UTC {
            due.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        } else {
            scheduled_time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        };
        set_in(&mut annotations, SCHEDULED_AT, scheduled_time);
        Job {
            metadata: ObjectMeta {
                name: Some(format!("{}-{}", name_of(&*self.cron), due.as_second() / 60)),
                namespace: self.cron.metadata.namespace.clone(),
                labels: meta.labels,
                annotations,
                owner_references: Some(vec![controller_ref(&*self.cron)]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    }

    async fn write_status(&mut self) -> Result<()> {
        let mut next = CronJob::clone(&self.cron);
        next.status = Some(self.status.clone());
        self.cron = self.this.writer.update_status(&self.cron, &next).await?;
        Ok(())
    }

    /// Deletes the oldest finished jobs beyond the history limits.
    async fn clean_up(&self) -> Result<()> {
        let spec = &self.cron.spec;
        for (how, limit) in [
            ("Complete", spec.successful_jobs_history_limit.unwrap_or(3)),
            ("Failed", spec.failed_jobs_history_limit.unwrap_or(1)),
        ] {
            let mut ended: Vec<_> =
                self.jobs.iter().filter(|job| end(job).is_some_and(|(kind, _)| kind == how)).collect();
            ended.retain(|job| job.metadata.deletion_timestamp.is_none());
            ended.sort_by_key(|job| {
                (job.status.as_ref().and_then(|status| status.start_time.clone()), name_of(&***job).to_owned())
            });
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            for job in &ended[..surplus] {
                self.delete(job).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, job: &Job) -> Result<()> {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        match self.this.writer.delete(job, options).await {
            Ok(()) => {
                self.this.normal(&*self.cron, "SuccessfulDelete", format!("Deleted job {}", name_of(job)));
                Ok(())
            }
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                self.this.warning(&*self.cron, "FailedDelete", format!("Deleted job: {error}"));
                ignore_not_found(Err(error))
            }
        }
    }
}

/// The last scheduled time before `now`, searched from ever earlier starts.
fn last_before(schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
    for hours in [1, 24, 24 * 32, 24 * 366, 24 * 366 * 9] {
        let from = now.checked_sub(jiff::SignedDuration::from_hours(hours)).ok()?;
        let mut at = schedule.next(from, zone).filter(|at| *at <= now);
        if at.is_some() {
            while let Some(later) = schedule.next(at?, zone).filter(|later| *later <= now) {
                at = Some(later);
            }
            return at;
        }
    }
    None
}

/// Condition type and time of a finished job.
fn end(job: &Job) -> Option<(&'static str, Option<Time>)> {
    let status = job.status.as_ref()?;
    let has = |kind: &str| status.conditions.iter().flatten().any(|one| one.type_ == kind && one.status == "True");
    if has("Complete") {
        Some(("Complete", status.completion_time.clone()))
    } else if has("Failed") {
        Some(("Failed", None))
    } else {
        None
    }
}
