//! Hardware that is not there: GPUs fed from recordings, and a root with a kernel that shows devices as files and changes
//! them as a real one would.
//!
//! [`Fake`] stands for NVML, [`Root`] builds a node's files, [`Kernel`] reacts to writes. All of it is what tests, virtual
//! nodes and stories run the real code on.

mod devices;
mod kernel;
mod nvidia;
mod root;

pub use devices::{ModuleFile, PciDevice, Port, Vfs};
pub use kernel::Kernel;
pub use nvidia::{Fake, Faults, Model, Recording, node};
pub use root::Root;
