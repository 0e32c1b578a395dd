//! Fake hardware, for tests and virtual nodes that run the real code.
//!
//! [`Fake`] is NVML: GPUs fed from recordings or models, with faults and MIG. [`Root`] builds the `/dev`, `/proc` and
//! `/sys` of a node below a directory, and [`Kernel`] reacts to writes there.

mod devices;
mod kernel;
mod nvidia;
mod root;

pub use devices::{ModuleFile, PciDevice, Port, Vfs};
pub use kernel::Kernel;
pub use nvidia::{Fake, Faults, Model, Recording, node};
pub use root::Root;
