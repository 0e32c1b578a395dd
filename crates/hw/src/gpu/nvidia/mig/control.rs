//! Partitioning GPUs into MIG devices.
//!
//! A GPU instance is a part of the GPU with its own memory, placed on eight memory slices; a compute instance is a part
//! of the compute slices of a GPU instance. Each compute instance is a MIG device.
//!
//! See <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>.

use serde::Serialize;

use super::Profile;
use crate::Result;
use crate::gpu::nvidia::{MigMode, MigSlices};

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Placement of a GPU instance on the memory slices of its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Placement {
    /// The first slice.
    pub start: u32,
    /// How many slices.
    pub size: u32,
}

impl Placement {
    /// The slices that it covers.
    pub fn slices(self) -> std::ops::Range<u32> {
        self.start..self.start + self.size
    }

    /// Whether two placements share a slice.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.slices().end && other.start < self.slices().end
    }
}

/// A GPU instance profile of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceProfile {
    /// Profile ID of the driver: 9 is `3g.71gb` on an H200.
    pub id: u32,
    /// Its name.
    pub name: Profile,
    /// Slices and engines of an instance.
    pub slices: MigSlices,
    /// Maximum number of instances on one GPU.
    pub max_instances: u32,
    /// Possible placements.
    pub placements: Vec<Placement>,
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuInstance {
    /// Instance id, unique on its GPU.
    pub id: u32,
    /// Profile id.
    pub profile: u32,
    /// Its memory slices.
    pub placement: Placement,
    /// Its compute instances, by id.
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ComputeInstance {
    /// Instance id, unique in its GPU instance.
    pub id: u32,
    /// Its compute slices.
    pub slices: u32,
}

/// Reads and changes the MIG geometry of GPUs. GPUs are named by UUID; calls may take seconds.
///
/// Every write is one driver call, complete when it returns. Layouts of several instances, and rollback, are up to the
/// caller.
pub trait MigControl: Send + Sync {
    /// The MIG mode, current and pending.
    fn mode(&self, gpu: &str) -> Result<MigMode>;
    /// Enables or disables MIG and returns the resulting mode: pending if the GPU needs a [`reset`](Self::reset) first,
    /// as Ampere does while in use. Disabling needs all instances destroyed.
    fn set_mode(&self, gpu: &str, mig: Switch) -> Result<MigMode>;
    /// The GPU instance profiles of a GPU with their possible placements; none without MIG.
    fn profiles(&self, gpu: &str) -> Result<Vec<InstanceProfile>>;
    /// GPU instances with their compute instances, by id.
    fn instances(&self, gpu: &str) -> Result<Vec<GpuInstance>>;
    /// Creates a GPU instance of a profile, at a placement or where the driver chooses.
    fn create_gpu_instance(&self, gpu: &str, profile: u32, at: Option<Placement>) -> Result<GpuInstance>;
    /// Destroys a GPU instance; its compute instances must be destroyed first.
    fn destroy_gpu_instance(&self, gpu: &str, gi: u32) -> Result<()>;
    /// Creates a compute instance with this many compute slices of a GPU instance: a MIG device.
    fn create_compute_instance(&self, gpu: &str, gi: u32, slices: u32) -> Result<ComputeInstance>;
    /// Destroys a compute instance that no process uses.
    fn destroy_compute_instance(&self, gpu: &str, gi: u32, ci: u32) -> Result<()>;
    /// Resets a GPU that no process uses: a pending mode becomes current, all instances are destroyed.
    fn reset(&self, gpu: &str) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn placements_overlap_when_they_share_a_slice(a in 0u32..8, b in 0u32..8, long in 1u32..8, short in 1u32..8) {
            let (a, b) = (Placement { start: a, size: long }, Placement { start: b, size: short });
            let shared = a.slices().any(|slice| b.slices().contains(&slice));
            prop_assert_eq!(a.overlaps(b), shared);
            prop_assert_eq!(b.overlaps(a), shared);
        }
    }
}
