//! MIG geometries as listed by `nvidia-smi mig -lgip` and `-lgipp`, and the driver's placement of instances.
//!
//! All data centre GPUs since A100 have seven compute slices and eight memory slices. See
//! <https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>.

use crate::fake::Model;
use crate::gpu::nvidia::mig::{GpuInstance, InstanceProfile, Placement, Profile, attribute_of_index};
use crate::gpu::nvidia::{Gpu, MigMode, MigSlices};

/// Memory slices of a GPU.
const SLICES: u32 = 8;
/// Memory slices with a compute slice: the last one has none.
const USABLE: u32 = 7;

/// A profile: NVML's index, profile id, compute slices, memory slices, maximum instances, possible starts.
struct Row(u32, u32, u32, u32, u32, &'static [u32]);

const ROWS: [Row; 7] = [
    Row(0, 19, 1, 1, 7, &[0, 1, 2, 3, 4, 5, 6]),
    Row(7, 20, 1, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    Row(9, 15, 1, 2, 4, &[0, 2, 4, 6]),
    Row(1, 14, 2, 2, 3, &[0, 2, 4]),
    Row(2, 9, 3, 4, 2, &[0, 4]),
    Row(3, 5, 4, 4, 1, &[0]),
    Row(4, 0, 7, 8, 1, &[0]),
];

/// Differences between models: memory in MiB by memory slices (1, 2, 4, 8), and multiprocessors by row.
struct Figures {
    memory: [u64; 4],
    multiprocessors: [u32; 7],
}

fn figures(gpu: &Gpu) -> Figures {
    let (memory, multiprocessors) = match Model::of(gpu) {
        Some(Model::A100) => ([4864, 9984, 20_096, 40_320], [14, 14, 14, 28, 42, 56, 98]),
        Some(Model::A100x80) => ([9728, 19_968, 40_192, 80_640], [14, 14, 14, 28, 42, 56, 98]),
        Some(Model::H100) => ([9984, 20_096, 40_448, 81_152], [16, 16, 26, 32, 60, 64, 132]),
        Some(Model::H200) => ([16_384, 33_280, 71_424, 143_360], [16, 16, 26, 32, 60, 64, 132]),
        // Each slice, without the memory that the driver reserves.
        _ => ([1, 2, 4, 8].map(|slices| gpu.memory_mib() * slices * 31 / 256), [18, 18, 30, 36, 70, 72, 148]),
    };
    Figures { memory, multiprocessors }
}

/// The GPU instance profiles of a GPU; none without MIG.
pub(super) fn profiles(gpu: &Gpu) -> Vec<InstanceProfile> {
    if gpu.mig == MigMode::Unsupported {
        return Vec::new();
    }
    let figures = figures(gpu);
    let rows = ROWS.iter().zip(figures.multiprocessors);
    rows.map(|(&Row(index, id, compute, size, max_instances, starts), multiprocessors)| {
        let memory_mib = figures.memory[size.ilog2() as usize];
        let slices = MigSlices { multiprocessors, ..engines(gpu, index, compute, memory_mib) };
        let name =
            Profile::of(compute, compute, memory_mib, gpu.memory_bytes).with_attribute(attribute_of_index(index));
        let placements = starts.iter().map(|&start| Placement { start, size }).collect();
        InstanceProfile { id, name, slices, max_instances, placements }
    })
    .collect()
}

/// Engines of a profile: Ampere has few to share, later GPUs have a set per slice.
fn engines(gpu: &Gpu, index: u32, compute: u32, memory_mib: u64) -> MigSlices {
    let (media, whole) = (index == 7, compute == USABLE);
    let (copy_engines, decoders, jpeg) = match gpu.compute.major {
        8 if whole => (7, 5, 1),
        8 => (compute, if index == 0 { 0 } else { compute.div_ceil(2) }, u32::from(media)),
        _ if whole => (8, 7, 7),
        _ => (compute, compute, compute),
    };
    let ofa = u32::from(media || whole);
    MigSlices { gpu: compute, compute, memory_mib, multiprocessors: 0, copy_engines, decoders, encoders: 0, jpeg, ofa }
}

/// Multiprocessors of one compute slice.
pub(super) fn slice_multiprocessors(gpu: &Gpu) -> u32 {
    figures(gpu).multiprocessors[0]
}

/// Possible compute slices of the compute instances of a GPU instance.
pub(super) fn compute_sizes(slices: u32) -> &'static [u32] {
    match slices {
        1 => &[1],
        2 => &[1, 2],
        3 => &[1, 2, 3],
        4 => &[1, 2, 4],
        _ => &[1, 2, 3, 4, 7],
    }
}

/// The driver's ID of a GPU instance: ordered by size, then by start.
pub(super) fn instance_id(at: Placement) -> u32 {
    SLICES / at.size - 1 + at.start / at.size
}

/// The placement of the GPU instance with an id: the inverse of [`instance_id`].
pub(super) fn placement(id: u32) -> Placement {
    let size = SLICES >> (id + 1).ilog2().min(3);
    Placement { start: (id + 1 - SLICES / size) * size, size }
}

/// The placement that the driver chooses: best fit, so that large instances stay possible.
pub(super) fn best_placement(profile: &InstanceProfile, there: &[GpuInstance]) -> Option<Placement> {
    let free = |at: Placement| there.iter().all(|instance| !instance.placement.overlaps(at));
    let possible = profile.placements.iter().copied().filter(|&at| free(at));
    possible.min_by_key(|&at| (free_block(at, &free), at.start))
}

/// Size of the largest free aligned block around a placement, in slices with compute.
fn free_block(at: Placement, free: &impl Fn(Placement) -> bool) -> u32 {
    if at.slices().end > USABLE {
        return USABLE - at.start;
    }
    let around = |size: u32| Placement { start: at.start / size * size, size };
    let blocks = [4, 2, 1].map(around).into_iter().filter(|block| block.size >= at.size);
    blocks.filter(|&block| block.slices().end <= USABLE && free(block)).map(|block| block.size).max().unwrap_or(at.size)
}
