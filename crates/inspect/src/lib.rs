//! Inspection of clusters: status, diagnosis, versions and support archives.
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

/// A result with the error of an inspection.
pub type Result<T, E = Error> = std::result::Result<T, E>;
