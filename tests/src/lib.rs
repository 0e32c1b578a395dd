//! Shared by the tests in this crate: [`world`] and [`nim`] for stories, [`wire`] for crashes, [`real`] for stories on a real control
//! plane, [`exchange`] for comparisons of the embedded API server with a real one.

pub mod exchange;
pub mod nim;
pub mod normal;
pub mod real;
pub mod recorded;
pub mod servers;
mod stand_in;
pub mod wire;
pub mod world;
