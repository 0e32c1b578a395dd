//! Shared by the tests in this crate: [`world`] for stories, [`wire`] for crashes, [`exchange`] for comparisons.

pub mod exchange;
pub mod wire;
pub mod world;
