//! MIG: the names of what a GPU can be cut into, and cutting it.

mod control;
mod profile;

pub use control::{ComputeInstance, GpuInstance, InstanceProfile, MigControl, Placement, Switch};
pub use profile::{Attribute, NoProfile, Profile, attribute_of_index, legacy};
