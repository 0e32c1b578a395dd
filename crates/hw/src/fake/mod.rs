//! Hardware that is not there: GPUs fed from recordings, and a root with the files that a kernel would show for them.

mod nvidia;
mod root;

pub use nvidia::{Fake, Faults, Model, Recording, node};
pub use root::Root;
