//! Cutting GPUs into MIG devices.
//!
//! A GPU instance is a part of the GPU with memory of its own, at a place among eight memory slices; a compute instance is
//! a part of a GPU instance's computing. Only a compute instance can be used: each one is a MIG device.
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

/// Where a GPU instance is among the memory slices of its GPU.
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

    /// Whether two instances could not be there at once.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.slices().end && other.start < self.slices().end
    }
}

/// What a GPU instance of a GPU can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceProfile {
    /// The driver's number of it: 9 is `3g.71gb` on an H200.
    pub id: u32,
    /// Its name.
    pub name: Profile,
    /// What an instance of it has.
    pub slices: MigSlices,
    /// How many instances of it there can be on one GPU.
    pub most: u32,
    /// Where they can be.
    pub placements: Vec<Placement>,
}

/// A GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuInstance {
    /// The driver's number of it, one of its own on its GPU.
    pub id: u32,
    /// The number of its profile.
    pub profile: u32,
    /// Where it is.
    pub placement: Placement,
    /// Its compute instances, by number.
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ComputeInstance {
    /// The driver's number of it, one of its own in its GPU instance.
    pub id: u32,
    /// Slices of computing that it has.
    pub slices: u32,
}

/// Reads and changes what GPUs are cut into. GPUs are named by UUID; calls may take seconds.
///
/// Every change is one command to the driver, done when the call returns. A layout of several instances, and the way
/// back from it, is put together by the caller.
pub trait MigControl: Send + Sync {
    /// Whether a GPU is cut up now, and whether that changes with its next reset.
    fn mode(&self, gpu: &str) -> Result<MigMode>;
    /// Switches MIG on or off. What comes back is the mode after it: Ampere may need a reset, Hopper needs none.
    /// There may be no instances when it is switched off.
    fn set_mode(&self, gpu: &str, mig: Switch) -> Result<MigMode>;
    /// What the GPU instances of a GPU can be. A GPU without MIG has no profiles.
    fn profiles(&self, gpu: &str) -> Result<Vec<InstanceProfile>>;
    /// The GPU instances that there are, by number.
    fn instances(&self, gpu: &str) -> Result<Vec<GpuInstance>>;
    /// Makes a GPU instance of a profile, at a place or where the driver thinks best.
    fn create_gpu_instance(&self, gpu: &str, profile: u32, at: Option<Placement>) -> Result<GpuInstance>;
    /// Ends a GPU instance without compute instances.
    fn destroy_gpu_instance(&self, gpu: &str, gi: u32) -> Result<()>;
    /// Makes a compute instance with so many slices of a GPU instance's computing: a MIG device.
    fn create_compute_instance(&self, gpu: &str, gi: u32, slices: u32) -> Result<ComputeInstance>;
    /// Ends a compute instance that no process uses.
    fn destroy_compute_instance(&self, gpu: &str, gi: u32, ci: u32) -> Result<()>;
    /// Resets a GPU that no process uses: a mode that was pending holds, and all instances are gone.
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
