//! Faults for tests: requests that fail, hang or lose their answers, watches that end or repeat themselves, stale lists,
//! clients that are cut off, a world that stands still.
//!
//! ```
//! # use capstan_apiserver::faults::{Fault, Matcher, Verb};
//! # use capstan_apiserver::ops::{Server, Settings};
//! # use capstan_apiserver::error::Status;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let server = Server::new(Settings::default());
//! let third_pod = Matcher::new().verb(Verb::Create).resource("pods");
//! let handle = server.faults().add(Fault::fail(third_pod, Status::new(503, "ServiceUnavailable", "come back later")).nth(3));
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

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Follows objects.
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

/// Which requests: all, unless something is said.
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

    /// Only requests with this verb, or another one that is named as well.
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

    /// Whether a request is meant.
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

/// What goes wrong.
#[derive(Clone, Debug)]
enum Effect {
    Fail(Box<Status>),
    Delay(Duration),
    LoseAnswer,
    Stale(u64),
    EndWatch(usize),
}

/// Something that goes wrong with some requests.
#[derive(Clone, Debug)]
pub struct Fault {
    matcher: Matcher,
    effect: Effect,
    /// How many requests pass before it begins, and how many it then meets.
    skip: usize,
    times: usize,
}

impl Fault {
    /// Requests fail with a status and do nothing.
    pub fn fail(matcher: Matcher, status: Status) -> Self {
        Self::new(matcher, Effect::Fail(Box::new(status)))
    }

    /// Requests lose their connection before they do anything.
    pub fn disconnect(matcher: Matcher) -> Self {
        Self::fail(matcher, disconnected())
    }

    /// Requests are carried out, but the connection is lost before the answer.
    pub fn lose_answer(matcher: Matcher) -> Self {
        Self::new(matcher, Effect::LoseAnswer)
    }

    /// Requests take longer.
    pub fn delay(matcher: Matcher, by: Duration) -> Self {
        Self::new(matcher, Effect::Delay(by))
    }

    /// Lists show the past: the state of so many revisions ago.
    pub fn stale(matcher: Matcher, revisions: u64) -> Self {
        Self::new(matcher.verb(Verb::List), Effect::Stale(revisions))
    }

    /// Watches end after so many events.
    pub fn end_watch(matcher: Matcher, events: usize) -> Self {
        Self::new(matcher.verb(Verb::Watch), Effect::EndWatch(events))
    }

    /// Only the n-th request, counted from 1, meets it.
    pub fn nth(self, n: usize) -> Self {
        Self { skip: n.saturating_sub(1), times: 1, ..self }
    }

    /// Only the first n requests meet it.
    pub fn first(self, n: usize) -> Self {
        Self { skip: 0, times: n, ..self }
    }

    fn new(matcher: Matcher, effect: Effect) -> Self {
        Self { matcher, effect, skip: 0, times: usize::MAX }
    }
}

/// A fault that was added. It stays when the handle goes, until [`Handle::remove`].
#[derive(Debug)]
pub struct Handle {
    id: u64,
    hits: Arc<AtomicUsize>,
    inner: Weak<Inner>,
}

impl Handle {
    /// How many requests met the fault.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Takes the fault away.
    pub fn remove(self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut state = inner.lock();
            state.faults.retain(|active| active.id != self.id);
            state.cuts.remove(&self.id);
            inner.refresh(&state);
        }
    }
}

/// The faults of a server. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether there is anything to look at: requests pay nothing for faults that are not there.
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

/// What a running watch is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// End.
    End,
    /// Send everything after this revision again.
    Replay(u64),
}

/// How a request goes on.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// Show the state of so many revisions ago.
    pub(crate) stale: Option<u64>,
    /// End the watch after so many events.
    pub(crate) end_after: Option<usize>,
    lose_answer: bool,
}

impl Pass {
    /// The answer that the caller gets.
    pub(crate) fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if self.lose_answer { Err(disconnected()) } else { answer }
    }
}

/// The error of a connection that was lost. HTTP turns it into exactly that.
pub fn disconnected() -> Status {
    Status::new(0, "", "connection lost")
}

/// Whether an error stands for a connection that was lost.
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
    /// Lets something go wrong from now on.
    pub fn add(&self, fault: Fault) -> Handle {
        let mut state = self.inner.lock();
        state.next += 1;
        let (id, hits) = (state.next, Arc::<AtomicUsize>::default());
        state.faults.push(Active { id, fault, seen: 0, hits: hits.clone() });
        self.inner.refresh(&state);
        Handle { id, hits, inner: Arc::downgrade(&self.inner) }
    }

    /// Cuts clients off: their watches end and their requests lose their connection, until the handle is removed.
    pub fn cut_off(&self, matcher: Matcher) -> Handle {
        self.end_watches(&matcher);
        let mut state = self.inner.lock();
        state.next += 1;
        let (id, hits) = (state.next, Arc::<AtomicUsize>::default());
        state.cuts.insert(id, (matcher, hits.clone()));
        self.inner.refresh(&state);
        Handle { id, hits, inner: Arc::downgrade(&self.inner) }
    }

    /// Takes all faults away and lets the world go on.
    pub fn clear(&self) {
        let mut state = self.inner.lock();
        state.faults.clear();
        state.cuts.clear();
        drop(state);
        self.resume();
    }

    /// Ends running watches; clients may open new ones. Returns how many.
    pub fn end_watches(&self, matcher: &Matcher) -> usize {
        self.tell(matcher, || Command::End)
    }

    /// Lets running watches send everything after a revision again. Returns how many.
    pub fn replay_watches(&self, matcher: &Matcher, after: u64) -> usize {
        self.tell(matcher, || Command::Replay(after))
    }

    /// How many watches run.
    pub fn watches(&self, matcher: &Matcher) -> usize {
        let state = self.inner.lock();
        state.watches.values().filter(|one| matcher.matches(Verb::Watch, &one.caller, &one.target)).count()
    }

    /// Stops the world: no request is answered and no watch sends anything until [`Faults::resume`].
    pub fn pause(&self) {
        self.inner.paused.send_replace(true);
        self.inner.refresh(&self.inner.lock());
    }

    /// Lets the world go on.
    pub fn resume(&self) {
        self.inner.paused.send_replace(false);
        self.inner.refresh(&self.inner.lock());
    }

    fn tell(&self, matcher: &Matcher, command: impl Fn() -> Command) -> usize {
        let state = self.inner.lock();
        let meant = state.watches.values().filter(|one| matcher.matches(Verb::Watch, &one.caller, &one.target));
        meant.filter(|one| one.commands.send(command()).is_ok()).count()
    }

    /// Lets a request in, sooner or later, or not.
    pub(crate) async fn enter(&self, verb: Verb, caller: &Caller, target: &Target) -> Result<Pass> {
        // A caller in the same process may never wait for anything: let others run now and then.
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

    /// Waits while the world stands still.
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

    /// Makes a watch known, so that it can be told to end or to repeat itself.
    pub(crate) fn follow(&self, caller: &Caller, target: &Target) -> Following {
        let (commands, told) = mpsc::unbounded_channel();
        let mut state = self.inner.lock();
        state.next += 1;
        let id = state.next;
        state.watches.insert(id, Control { caller: caller.clone(), target: target.clone(), commands });
        Following { id, told, inner: Arc::downgrade(&self.inner) }
    }
}

/// A watch that is known.
#[derive(Debug)]
pub(crate) struct Following {
    id: u64,
    pub(crate) told: mpsc::UnboundedReceiver<Command>,
    inner: Weak<Inner>,
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.lock().watches.remove(&self.id);
        }
    }
}
