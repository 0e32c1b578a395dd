//! The hardware of a node by device family: GPUs ([`gpu`]), PCI devices ([`pci`]), network interfaces ([`net`]), kernel
//! modules ([`modules`]), and fakes of all of them ([`fake`]).
//!
//! Everything above this crate sees devices as plain data, never through a handle of a library or a file of the kernel,
//! and changes them through small traits: [`gpu::nvidia::mig::MigControl`], [`pci::Bus`], [`pci::VirtualFunctions`],
//! [`modules::Modules`]. What a test feeds is what a node would have said. `unsafe` is allowed in
//! `gpu::nvidia::nvml::raw` and `gpu::nvidia::cuda::raw` alone.
//!
//! Start reading at [`gpu::nvidia::Hardware`] and [`sysfs::Attributes`].

mod error;
pub mod fake;
pub mod gpu;
pub mod modules;
pub mod net;
pub mod pci;
pub mod root;
pub mod sysfs;

pub use error::Error;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
