//! Shared by the tests in this crate: [`world`] for stories, [`wire`] for crashes, [`exchange`] for comparisons,
//! [`real`] for stories on a real control plane.

pub mod exchange;
pub mod real;
mod stand_in;
pub mod wire;
pub mod world;
