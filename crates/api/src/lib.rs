//! Custom resources of Capstan: the API groups, kinds and fields of the operators that it replaces.
//!
//! Start with [`resource`], the root type of all kinds, then open a domain. [`crd`] generates CustomResourceDefinitions
//! from the types. Pure: no I/O, no clock, no client.

// Names that only attributes of schemas use.
#![cfg_attr(not(feature = "schemas"), allow(unused_imports, dead_code))]

pub mod amd;
pub mod common;
pub mod compute_domain;
pub mod crd;
pub mod foreign;
#[cfg(feature = "schemas")]
mod from_types;
pub mod gpu;
pub mod ignored;
pub mod json_schema;
pub mod nemo;
pub mod network;
pub mod nfd;
pub mod nim;
pub mod resource;
pub mod skew;
pub mod sriov;
pub mod wire;

pub use resource::{Cluster, Column, EmptyStatus, Handling, Kind, Layout, Namespaced, NoStatus, Resource};

/// Every custom resource, by domain.
// A static, not a const: a const is instantiated again, with all its generic code, in every crate that uses it.
pub static KINDS: &[&[crd::Entry]] =
    &[nim::KINDS, nemo::KINDS, gpu::KINDS, compute_domain::KINDS, network::KINDS, sriov::KINDS, nfd::KINDS, amd::KINDS];

/// Every custom resource, in the order of [`KINDS`].
pub fn kinds() -> impl Iterator<Item = &'static crd::Entry> {
    KINDS.iter().copied().flatten()
}
