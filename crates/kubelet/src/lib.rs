//! What is spoken with a kubelet over its unix sockets: device plugins ([`device_plugin`]), which pod holds which
//! device ([`pod_resources`]), plugins that announce themselves ([`registration`]), and a kubelet for tests
//! ([`fake`]).
//!
//! The messages are written here as Rust types with their field numbers, not generated: they have not changed
//! incompatibly in years, and nothing but Rust is needed to build them. Field names follow the protocol where they
//! are seen by others, and Rust elsewhere; only numbers and types go over the wire.

pub mod client;
pub mod device_plugin;
pub mod fake;
pub mod pod_resources;
pub mod registration;
pub mod server;

pub use client::{Connection, Error};
pub use tonic::{Code, Status};
