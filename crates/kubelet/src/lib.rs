//! The kubelet's gRPC APIs over unix sockets: device plugins ([`device_plugin`]), pod resources ([`pod_resources`]),
//! plugin registration ([`registration`]), and a fake kubelet ([`fake`]).
//!
//! Messages are Rust types with field numbers, not generated: they have not changed incompatibly in years, and building
//! them needs only Rust. Public field names follow the protocol; only numbers and types are on the wire.

pub mod client;
pub mod device_plugin;
pub mod fake;
pub mod pod_resources;
pub mod registration;
pub mod server;

pub use client::{Connection, Error};
pub use tonic::{Code, Status};
