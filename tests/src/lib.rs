//! Shared by the tests in this crate.

pub mod exchange;
