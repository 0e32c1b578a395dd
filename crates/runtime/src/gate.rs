//! The write gate: every write passes it. Leadership opens it, always only until a deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// Timeout of a write.
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
    in_flight: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// A gate that is always open, without leader election.
    pub fn open() -> Self {
        Self::new(State::Open)
    }

    /// A gate that is closed until [`open_until`](Self::open_until).
    pub fn closed() -> Self {
        Self::new(State::Closed)
    }

    fn new(state: State) -> Self {
        Self { state: Arc::new(watch::Sender::new(state)), in_flight: Arc::default() }
    }

    /// Opens it until `deadline`, after which it counts as closed without any further call.
    pub fn open_until(&self, deadline: Instant) {
        self.state.send_replace(State::Until(deadline));
    }

    /// Closes it: no write starts from now on.
    pub fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    /// Whether writes may start.
    pub fn is_open(&self) -> bool {
        is_open_now(*self.state.borrow())
    }

    /// Waits until writes may start.
    pub async fn opened(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| is_open_now(*state)).await;
    }

    /// Waits until no write is in flight.
    pub async fn drained(&self) {
        let mut in_flight = self.in_flight.subscribe();
        // The sender lives as long as `self`.
        let _ = in_flight.wait_for(|in_flight| *in_flight == 0).await;
    }

    /// Runs a write if the gate is open, and cancels it at the deadline.
    pub(crate) async fn pass<T>(
        &self,
        verb: &'static str,
        what: impl ToString,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let timeout = Instant::now() + WRITE_TIMEOUT;
        let deadline = match *self.state.borrow() {
            State::Open => timeout,
            State::Until(deadline) if deadline > Instant::now() => deadline.min(timeout),
            State::Closed | State::Until(_) => return Err(Error::NotLeader),
        };
        let _in_flight = InFlight::begin(&self.in_flight);
        match timeout_at(deadline, write).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Error::request(verb, what, error)),
            Err(_) => Err(Error::Timeout { verb, what: what.to_string() }),
        }
    }
}

/// Counts a write while it is in flight, also when it is cancelled.
struct InFlight<'a>(&'a watch::Sender<usize>);

impl<'a> InFlight<'a> {
    fn begin(in_flight: &'a watch::Sender<usize>) -> Self {
        in_flight.send_modify(|in_flight| *in_flight += 1);
        Self(in_flight)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|in_flight| *in_flight -= 1);
    }
}

fn is_open_now(state: State) -> bool {
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
        let in_flight = gate.pass("apply", "x", pending::<kube::Result<()>>()).await;
        assert!(matches!(in_flight, Err(Error::Timeout { .. })));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert!(matches!(gate.pass("apply", "x", ready(Ok(()))).await, Err(Error::NotLeader)));
    }
}
