//! Multi-Instance GPU: names of profiles, and the trait that partitions GPUs.

mod control;
mod profile;

pub use control::{ComputeInstance, GpuInstance, InstanceProfile, MigControl, Placement, Switch};
pub use profile::{Attribute, NoProfile, Profile, attribute_of_index, legacy};
