//! Trial runs: the real operator in this process and in virtual time, on a copy of a cluster ([`plan`]) or on a
//! simulated fleet ([`fleet`]). Nothing is written to any cluster.
//!
//! Start reading at [`plan::run`] and [`fleet::simulate`].

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod error;
pub mod fleet;
pub mod manifests;
pub mod plan;

pub use error::Error;
pub use manifests::Manifest;

/// A result with the error of a trial run.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Runs a function on its own thread with a paused clock: time advances only when all tasks are idle.
fn in_virtual_time<T: Send>(work: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.map_err(Error::Runtime)?;
        let outcome = runtime.block_on(work());
        // Dropping thousands of nodes takes a second: do it in the background.
        std::thread::spawn(move || drop(runtime));
        outcome
    };
    std::thread::scope(|scope| scope.spawn(work).join().map_err(|_| Error::Panicked)?)
}
