//! Shared by the tests in this crate: [`world`], [`nim`], [`gpu`], [`upgrade`] and [`examples`] for stories,
//! [`rendered`] for rendered objects, [`wire`] and [`crash`] for crashes, [`real`] for stories on a real control plane,
//! [`rights`] for RBAC of the operator, [`exchange`] for comparisons of the embedded API server with a real one.

mod bridge;
pub mod counting;
pub mod crash;
mod end_state;
pub mod examples;
pub mod exchange;
pub mod gpu;
pub mod nemo;
pub mod nim;
pub mod normal;
pub mod programs;
pub mod real;
pub mod recorded;
pub mod rendered;
pub mod rights;
pub mod servers;
pub mod simulated;
pub mod upgrade;
pub mod wire;
pub mod world;
