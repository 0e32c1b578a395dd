//! Fault injection for tests: failed, delayed or dropped requests, lost responses, watches that end or replay events,
//! stale lists, disconnected clients, a paused server.
//!
//! ```
//! # use capstan_apiserver::faults::{Fault, Matcher, Verb};
//! # use capstan_apiserver::ops::{Server, Settings};
//! # use capstan_apiserver::error::Status;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let server = Server::new(Settings::default()); let third_pod = Matcher::new().verb(Verb::Create).resource("pods");
//! let handle = server.faults().add(Fault::fail(third_pod, Status::new(503, "ServiceUnavailable", "come back
//! later")).nth(3));
//! # assert_eq!(handle.hits(), 0);
//! # }
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::error::{Result, Status};
use crate::ops::{Caller, Target};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Watches objects.
    Watch,
    /// Adds an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes many objects.
    DeleteCollection,
}

/// Selects requests; the default selects all.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    verbs: Vec<Verb>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    user: Option<String>,
    user_agent: Option<String>,
}

impl Matcher {
    /// All requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only requests with this verb. May be called for several verbs.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Only requests that write.
    pub fn writes(mut self) -> Self {
        self.verbs.extend([Verb::Create, Verb::Update, Verb::Patch, Verb::Delete, Verb::DeleteCollection]);
        self
    }

    /// Only this API group.
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.to_owned());
        self
    }

    /// Only this resource, by its plural.
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Only this subresource; empty for requests without one.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only in this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only the object of this name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only requests of this user.
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Only clients whose `User-Agent` starts with this.
    pub fn user_agent(mut self, start: &str) -> Self {
        self.user_agent = Some(start.to_owned());
        self
    }

    /// Whether it selects a request.
    pub fn matches(&self, verb: Verb, caller: &Caller, target: &Target) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        (self.verbs.is_empty() || self.verbs.contains(&verb))
            && is(&self.group, &target.resource.group)
            && is(&self.resource, &target.resource.plural)
            && is(&self.subresource, target.subresource.as_deref().unwrap_or_default())
            && is(&self.namespace, target.namespace.as_deref().unwrap_or_default())
            && is(&self.name, target.name.as_deref().unwrap_or_default())
            && is(&self.user, &caller.user.name)
            && self.user_agent.as_deref().is_none_or(|start| caller.user_agent.starts_with(start))
    }
}

/// What the fault does to a request.
#[derive(Clone, Debug)]
enum Effect {
    Fail(Box<Status>),
    Delay(Duration),
    LoseAnswer,
    Stale(u64),
    EndWatch(usize),
}

/// A fault that affects the selected requests.
#[derive(Clone, Debug)]
pub struct Fault {
    matcher: Matcher,
    effect: Effect,
    /// Number of selected requests that pass before it takes effect, and number that it then affects.
    skip: usize,
    times: usize,
}

impl Fault {
    /// Requests fail with a status and have no effect.
    pub fn fail(matcher: Matcher, status: Status) -> Self {
        Self::new(matcher, Effect::Fail(Box::new(status)))
    }

    /// The connection drops before the request is processed.
    pub fn disconnect(matcher: Matcher) -> Self {
        Self::fail(matcher, disconnected())
    }

    /// The request is processed, but the connection drops before the response.
    pub fn lose_answer(matcher: Matcher) -> Self {
        Self::new(matcher, Effect::LoseAnswer)
    }

    /// Requests are delayed.
    pub fn delay(matcher: Matcher, by: Duration) -> Self {
        Self::new(matcher, Effect::Delay(by))
    }

    /// Lists are stale: they return the state of `revisions` revisions ago.
    pub fn stale(matcher: Matcher, revisions: u64) -> Self {
        Self::new(matcher.verb(Verb::List), Effect::Stale(revisions))
    }

    /// Watches end after `events` events.
    pub fn end_watch(matcher: Matcher, events: usize) -> Self {
        Self::new(matcher.verb(Verb::Watch), Effect::EndWatch(events))
    }

    /// Affects only the n-th selected request, counted from 1.
    pub fn nth(self, n: usize) -> Self {
        Self { skip: n.saturating_sub(1), times: 1, ..self }
    }

    /// Affects only the first n selected requests.
    pub fn first(self, n: usize) -> Self {
        Self { skip: 0, times: n, ..self }
    }

    fn new(matcher: Matcher, effect: Effect) -> Self {
        Self { matcher, effect, skip: 0, times: usize::MAX }
    }
}

/// A registered fault. Dropping the handle does not remove the fault: see [`Handle::remove`].
#[derive(Debug)]
pub struct Handle {
    id: u64,
    hits: Arc<AtomicUsize>,
    inner: Weak<Inner>,
}

impl Handle {
    /// Number of requests that the fault affected.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes the fault.
    pub fn remove(self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut state = inner.lock();
            state.faults.retain(|active| active.id != self.id);
            state.cuts.remove(&self.id);
            inner.refresh(&state);
        }
    }
}

/// The registered faults of a server. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether any fault is registered: without one, requests skip the lock.
    active: AtomicBool,
    state: Mutex<State>,
    paused: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    faults: Vec<Active>,
    cuts: HashMap<u64, (Matcher, Arc<AtomicUsize>)>,
    watches: HashMap<u64, Control>,
}

#[derive(Debug)]
struct Active {
    id: u64,
    fault: Fault,
    seen: usize,
    hits: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Control {
    caller: Caller,
    target: Target,
    commands: mpsc::UnboundedSender<Command>,
}

/// A command to a running watch.
#[derive(Debug)]
pub(crate) enum Command {
    /// End the stream.
    End,
    /// Resend all events after this revision.
    Replay(u64),
}

/// Effects on a request that was let through.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// List the state of this many revisions ago.
    pub(crate) stale: Option<u64>,
    /// End the watch after this many events.
    pub(crate) end_after: Option<usize>,
    lose_answer: bool,
}

impl Pass {
    /// The response that the caller receives.
    pub(crate) fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if self.lose_answer { Err(disconnected()) } else { answer }
    }
}

/// The error for a dropped connection. The HTTP layer closes the connection instead of responding.
pub fn disconnected() -> Status {
    Status::new(0, "", "connection lost")
}

/// Whether an error means a dropped connection.
pub fn is_disconnected(status: &Status) -> bool {
    status.code == 0
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refresh(&self, state: &State) {
        let active = *self.paused.borrow() || !state.faults.is_empty() || !state.cuts.is_empty();
        self.active.store(active, Ordering::Release);
    }
}

impl Faults {
    /// Registers a fault.
    pub fn add(&self, fault: Fault) -> Handle {
        let mut state = self.inner.lock();
        state.next += 1;
        let (id, hits) = (state.next, Arc::<AtomicUsize>::default());
        state.faults.push(Active { id, fault, seen: 0, hits: hits.clone() });
        self.inner.refresh(&state);
        Handle { id, hits, inner: Arc::downgrade(&self.inner) }
    }

    /// Disconnects clients: their watches end and their requests fail with a dropped connection, until the handle is
    /// removed.
    pub fn cut_off(&self, matcher: Matcher) -> Handle {
        self.end_watches(&matcher);
        let mut state = self.inner.lock();
        state.next += 1;
        let (id, hits) = (state.next, Arc::<AtomicUsize>::default());
        state.cuts.insert(id, (matcher, hits.clone()));
        self.inner.refresh(&state);
        Handle { id, hits, inner: Arc::downgrade(&self.inner) }
    }

    /// Removes all faults and resumes a paused server.
    pub fn clear(&self) {
        let mut state = self.inner.lock();
        state.faults.clear();
        state.cuts.clear();
        drop(state);
        self.resume();
    }

    /// Ends running watches; clients may reconnect. Returns their number.
    pub fn end_watches(&self, matcher: &Matcher) -> usize {
        self.send_command(matcher, || Command::End)
    }

    /// Makes running watches resend all events after a revision. Returns their number.
    pub fn replay_watches(&self, matcher: &Matcher, after: u64) -> usize {
        self.send_command(matcher, || Command::Replay(after))
    }

    /// Number of running watches.
    pub fn watches(&self, matcher: &Matcher) -> usize {
        let state = self.inner.lock();
        state.watches.values().filter(|one| matcher.matches(Verb::Watch, &one.caller, &one.target)).count()
    }

    /// Pauses the server: no request is answered and no watch sends events until [`Faults::resume`].
    pub fn pause(&self) {
        self.inner.paused.send_replace(true);
        self.inner.refresh(&self.inner.lock());
    }

    /// Resumes a paused server.
    pub fn resume(&self) {
        self.inner.paused.send_replace(false);
        self.inner.refresh(&self.inner.lock());
    }

    fn send_command(&self, matcher: &Matcher, command: impl Fn() -> Command) -> usize {
        let state = self.inner.lock();
        let meant = state.watches.values().filter(|one| matcher.matches(Verb::Watch, &one.caller, &one.target));
        meant.filter(|one| one.commands.send(command()).is_ok()).count()
    }

    /// Applies the faults to a request: delays it, fails it or lets it through.
    pub(crate) async fn enter(&self, verb: Verb, caller: &Caller, target: &Target) -> Result<Pass> {
        // In-process callers may never yield: cooperate with the scheduler.
        tokio::task::coop::consume_budget().await;
        if !self.inner.active.load(Ordering::Acquire) {
            return Ok(Pass::default());
        }
        self.running().await;
        let (mut pass, mut delay) = (Pass::default(), Duration::ZERO);
        for effect in self.effects(verb, caller, target) {
            match effect {
                Effect::Fail(status) => return Err(*status),
                Effect::Delay(by) => delay += by,
                Effect::LoseAnswer => pass.lose_answer = true,
                Effect::Stale(revisions) => pass.stale = Some(revisions),
                Effect::EndWatch(events) => pass.end_after = Some(events),
            }
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Ok(pass)
    }

    /// Waits while the server is paused.
    pub(crate) async fn running(&self) {
        if *self.inner.paused.borrow() {
            let mut paused = self.inner.paused.subscribe();
            // The sender lives as long as `self`.
            let _ = paused.wait_for(|paused| !paused).await;
        }
    }

    fn effects(&self, verb: Verb, caller: &Caller, target: &Target) -> Vec<Effect> {
        let mut state = self.inner.lock();
        let mut effects = Vec::new();
        for (_, hits) in state.cuts.values().filter(|(matcher, _)| matcher.matches(verb, caller, target)) {
            hits.fetch_add(1, Ordering::Relaxed);
            effects.push(Effect::Fail(Box::new(disconnected())));
        }
        for active in &mut state.faults {
            let fault = &active.fault;
            if !fault.matcher.matches(verb, caller, target) {
                continue;
            }
            active.seen += 1;
            if active.seen > fault.skip && active.seen - fault.skip <= fault.times {
                active.hits.fetch_add(1, Ordering::Relaxed);
                effects.push(fault.effect.clone());
            }
        }
        effects
    }

    /// Registers a watch, so that it can be ended or made to replay events.
    pub(crate) fn register_watch(&self, caller: &Caller, target: &Target) -> WatchRegistration {
        let (sender, commands) = mpsc::unbounded_channel();
        let mut state = self.inner.lock();
        state.next += 1;
        let id = state.next;
        state.watches.insert(id, Control { caller: caller.clone(), target: target.clone(), commands: sender });
        WatchRegistration { id, commands, inner: Arc::downgrade(&self.inner) }
    }
}

/// A registered watch.
#[derive(Debug)]
pub(crate) struct WatchRegistration {
    id: u64,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    inner: Weak<Inner>,
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.lock().watches.remove(&self.id);
        }
    }
}
