//! Context of every component: the server, caches, clock, event recorder and task set.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use capstan_apiserver::clock::Clock;
use capstan_apiserver::ops::{Caller, Server, UserInfo};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::task::AbortHandle;

use crate::caches::Caches;
use crate::events::{EventSink, Recorder};
use crate::gauges::Gauges;
use crate::writer::Writer;

/// Context of every component. Clones share one state.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub server: Server,
    /// Typed caches of its objects.
    pub caches: Arc<Caches>,
    events: EventSink,
    tasks: Tasks,
    pub(crate) gauges: Gauges,
}

impl Context {
    pub(crate) fn new(server: Server, tasks: Tasks, events: bool) -> Self {
        let caches = Arc::new(Caches::new(server.registry()));
        caches.feed(&server, &Caller::system("kube-controller-manager"), &tasks);
        let gauges = Gauges::default();
        caches.count(&gauges);
        let running = tasks.clone();
        gauges.add("tasks", move || running.len());
        let writer = |user: &str| {
            let user = UserInfo::service_account("kube-system", user, "");
            Writer::new(server.clone(), caches.clone(), user, "kube-controller-manager")
        };
        let events = match events {
            true => EventSink::start(writer("event-controller"), &tasks),
            false => EventSink::disabled(),
        };
        Self { server, caches, events, tasks, gauges }
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.server.clock()
    }

    /// The current time in whole seconds, as Kubernetes objects carry it.
    pub fn now(&self) -> Time {
        let now = self.clock().now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// A client of a controller: the service account `NAME` in `kube-system`.
    pub fn controller(&self, account: &str) -> Writer {
        self.writer(UserInfo::service_account("kube-system", account, ""), "kube-controller-manager")
    }

    /// A client of a user; `manager` is the field manager.
    pub fn writer(&self, user: UserInfo, manager: &str) -> Writer {
        Writer::new(self.server.clone(), self.caches.clone(), user, manager)
    }

    /// An event recorder of a component.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.events.recorder(component, "", self.clock())
    }

    /// An event recorder of a component on a host.
    pub fn recorder_on(&self, component: &str, host: &str) -> Recorder {
        self.events.recorder(component, host, self.clock())
    }

    /// Runs a task until the cluster stops.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}

/// Tasks that end when the cluster stops. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    running: Arc<Mutex<Running>>,
}

#[derive(Debug, Default)]
struct Running {
    stopped: bool,
    handles: Vec<AbortHandle>,
}

impl Tasks {
    /// Runs a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.stopped {
            return;
        }
        if running.handles.len() == running.handles.capacity() {
            running.handles.retain(|handle| !handle.is_finished());
        }
        running.handles.push(tokio::spawn(task).abort_handle());
    }

    /// Number of running tasks.
    pub(crate) fn len(&self) -> usize {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.handles.iter().filter(|handle| !handle.is_finished()).count()
    }

    /// Aborts all tasks.
    pub fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.stopped = true;
        for handle in running.handles.drain(..) {
            handle.abort();
        }
    }
}
