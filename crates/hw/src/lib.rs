//! The hardware of a node by device family: GPUs through NVML, PCI devices through sysfs, and fakes fed from recordings
//! of real nodes.
//!
//! Everything above this crate sees devices through small traits and plain data, never through a handle of a library or
//! a file of the kernel. `unsafe` is allowed in `gpu::nvidia::nvml::raw` and `gpu::nvidia::cuda::raw` alone.
//!
//! Start reading at [`gpu::nvidia::Hardware`] and [`pci`]; [`fake`] has what tests use in their place.

mod error;
pub mod fake;
pub mod gpu;
pub mod pci;
pub mod root;

pub use error::Error;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
