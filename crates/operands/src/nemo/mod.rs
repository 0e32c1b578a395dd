//! NeMo microservices: five kinds over one model of a service.
//!
//! Start with [`entitystore`], the smallest description, then `service`, which makes objects, conditions and events of
//! any of them. What a kind adds is data: ports, probes, environment, init containers, volumes, what it refers to and
//! what its pods may do. [`customizer`] adds a configuration file.

pub mod customizer;
mod database;
pub mod datastore;
pub mod entitystore;
pub mod evaluator;
pub mod guardrail;
mod otel;
mod service;
mod yaml;

pub use database::WAIT_CONTAINER;
pub use service::{MANAGED_BY, Service, Settings, Verdict, check, granted, mentions, part_of, references};

#[cfg(test)]
mod tests;
