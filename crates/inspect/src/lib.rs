//! What a cluster looks like and what is wrong with it: for the command line, and for whoever else shows it.
//!
//! Everything works on a [`Snapshot`], read from a cluster, watched, or loaded from a file. [`status`], [`doctor`],
//! [`versions`] and [`gather`] are pure functions over it that return data, with a rendering as text beside it. What a
//! product contributes is one entry in `products.rs`: start reading there.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod doctor;
mod error;
pub mod gather;
mod paint;
mod products;
pub mod snapshot;
pub mod status;
pub mod versions;

pub use error::Error;
pub use paint::Paint;
pub use snapshot::Snapshot;

/// A result whose error says why a cluster or a file could not be inspected.
pub type Result<T, E = Error> = std::result::Result<T, E>;
