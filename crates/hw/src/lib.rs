//! The hardware of a node by device family: GPUs ([`gpu`]), PCI devices ([`pci`]), network interfaces ([`net`]), kernel
//! modules ([`modules`]), and fakes of all of them ([`fake`]).
//!
//! The rest of the workspace sees devices as plain data, never through a library handle or a kernel file, and changes
//! them through small traits: [`gpu::nvidia::mig::MigControl`], [`pci::Bus`], [`pci::VirtualFunctions`],
//! [`modules::Modules`]. Tests replay what a node reports. `unsafe` is allowed only in `gpu::nvidia::nvml::raw` and
//! `gpu::nvidia::cuda::raw`.
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

/// Result of hardware calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;
