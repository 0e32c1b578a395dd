//! The gate that every write passes. Leadership opens it, always only until a deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// No write waits longer than this for its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Until(Instant),
    Open,
}

/// The gate. Clones share one state.
#[derive(Clone, Debug)]
pub struct Gate {
    state: Arc<watch::Sender<State>>,
    running: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// A gate that stays open: for a process that need not lead.
    pub fn open() -> Self {
        Self::new(State::Open)
    }

    /// A gate that is closed until [`open_until`](Self::open_until).
    pub fn closed() -> Self {
        Self::new(State::Closed)
    }

    fn new(state: State) -> Self {
        Self { state: Arc::new(watch::Sender::new(state)), running: Arc::default() }
    }

    /// Opens it until `deadline`. When that passes it is closed, whoever sleeps.
    pub fn open_until(&self, deadline: Instant) {
        self.state.send_replace(State::Until(deadline));
    }

    /// Closes it: no write begins from now on.
    pub fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    /// Whether writes may begin.
    pub fn is_open(&self) -> bool {
        passes(*self.state.borrow())
    }

    /// Waits until writes may begin.
    pub async fn opened(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| passes(*state)).await;
    }

    /// Waits until no write runs.
    pub async fn drained(&self) {
        let mut running = self.running.subscribe();
        // The sender lives as long as `self`.
        let _ = running.wait_for(|running| *running == 0).await;
    }

    /// Runs a write if the gate is open, and gives it up at the deadline.
    pub(crate) async fn pass<T>(
        &self,
        verb: &'static str,
        what: impl ToString,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let patience = Instant::now() + WRITE_TIMEOUT;
        let deadline = match *self.state.borrow() {
            State::Open => patience,
            State::Until(deadline) if deadline > Instant::now() => deadline.min(patience),
            State::Closed | State::Until(_) => return Err(Error::NotLeader),
        };
        let _running = Running::begin(&self.running);
        match timeout_at(deadline, write).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Error::request(verb, what, error)),
            Err(_) => Err(Error::Timeout { verb, what: what.to_string() }),
        }
    }
}

/// Counts a write for as long as it runs, also when it is given up.
struct Running<'a>(&'a watch::Sender<usize>);

impl<'a> Running<'a> {
    fn begin(running: &'a watch::Sender<usize>) -> Self {
        running.send_modify(|running| *running += 1);
        Self(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

fn passes(state: State) -> bool {
    match state {
        State::Open => true,
        State::Until(deadline) => deadline > Instant::now(),
        State::Closed => false,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_lets_nothing_begin() {
        let gate = Gate::closed();
        assert!(matches!(gate.pass("apply", "x", ready(Ok(()))).await, Err(Error::NotLeader)));
        gate.open_until(Instant::now() + Duration::from_secs(5));
        assert!(gate.pass("apply", "x", ready(Ok(()))).await.is_ok());
        gate.close();
        assert!(!gate.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_closes_it_and_ends_what_runs() {
        let (gate, start) = (Gate::closed(), Instant::now());
        gate.open_until(start + Duration::from_secs(5));
        let running = gate.pass("apply", "x", pending::<kube::Result<()>>()).await;
        assert!(matches!(running, Err(Error::Timeout { .. })));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert!(matches!(gate.pass("apply", "x", ready(Ok(()))).await, Err(Error::NotLeader)));
    }
}
