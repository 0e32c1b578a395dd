//! MIG on fake GPUs: the rules of the driver for modes, placements and instance ids.

mod layout;

use super::models::uuid;
use super::{Fake, State};
use crate::gpu::nvidia::mig::{ComputeInstance, GpuInstance, InstanceProfile, MigControl, Placement, Profile, Switch};
use crate::gpu::nvidia::{Gpu, MigDevice, MigMode, MigSlices, Reading};
use crate::{Error, Result};

impl Fake {
    /// Reads or changes one whole GPU.
    fn with_gpu<T>(&self, gpu: &str, act: impl FnOnce(&mut State, usize) -> Result<T>) -> Result<T> {
        self.about(gpu, |_| ())?;
        let mut state = self.state();
        let place = state.recording.inventory.gpus.iter().position(|it| it.uuid == gpu);
        let place = place.ok_or_else(|| Error::NotFound(gpu.to_owned()))?;
        if !state.instances.contains_key(gpu) {
            let known = recorded_instances(&state.recording.inventory.gpus[place]);
            state.instances.insert(gpu.to_owned(), known);
        }
        act(&mut state, place)
    }
}

impl State {
    fn gpu(&mut self, place: usize) -> &mut Gpu {
        &mut self.recording.inventory.gpus[place]
    }

    /// Whether a process uses a GPU or MIG device.
    fn in_use(&self, uuid: &str) -> bool {
        self.processes.get(uuid).is_some_and(|processes| !processes.is_empty())
    }

    fn instance(&self, gpu: &str, gi: u32) -> Result<&GpuInstance> {
        let found = self.instances.get(gpu).into_iter().flatten().find(|instance| instance.id == gi);
        found.ok_or_else(|| Error::NotFound(format!("GPU instance {gi}")))
    }
}

impl MigControl for Fake {
    fn mode(&self, gpu: &str) -> Result<MigMode> {
        self.with_gpu(gpu, |state, place| Ok(state.gpu(place).mig))
    }

    fn set_mode(&self, gpu: &str, mig: Switch) -> Result<MigMode> {
        self.with_gpu(gpu, |state, place| {
            let used = state.in_use(gpu) || (mig == Switch::Off && !state.instances[gpu].is_empty());
            let now = state.gpu(place);
            // The driver resets an idle Ampere GPU for it; if in use, the mode stays pending.
            let waits = used && now.compute.major == 8;
            now.mig = match (now.mig, mig) {
                (MigMode::Unsupported, _) => return Err(Error::NotSupported),
                (MigMode::Enabled { .. }, Switch::On) => MigMode::Enabled { pending_off: false },
                (MigMode::Disabled { .. }, Switch::Off) => MigMode::Disabled { pending: false },
                (MigMode::Enabled { .. }, Switch::Off) if waits => MigMode::Enabled { pending_off: true },
                (MigMode::Disabled { .. }, Switch::On) if waits => MigMode::Disabled { pending: true },
                _ if used => return Err(Error::InUse(format!("GPU {gpu}"))),
                (_, Switch::On) => MigMode::Enabled { pending_off: false },
                (_, Switch::Off) => MigMode::Disabled { pending: false },
            };
            Ok(now.mig)
        })
    }

    fn profiles(&self, gpu: &str) -> Result<Vec<InstanceProfile>> {
        self.with_gpu(gpu, |state, place| Ok(layout::profiles(state.gpu(place))))
    }

    fn instances(&self, gpu: &str) -> Result<Vec<GpuInstance>> {
        self.with_gpu(gpu, |state, place| {
            let devices = state.gpu(place).mig_devices.clone();
            let mut found = state.instances[gpu].clone();
            for instance in &mut found {
                instance.compute = compute_instances(&devices, instance.id);
            }
            found.sort_by_key(|instance| instance.id);
            Ok(found)
        })
    }

    fn create_gpu_instance(&self, gpu: &str, profile: u32, at: Option<Placement>) -> Result<GpuInstance> {
        const CALL: &str = "nvmlDeviceCreateGpuInstance";
        self.with_gpu(gpu, |state, place| {
            if !state.gpu(place).mig_enabled() {
                return Err(Error::NotSupported);
            }
            let profiles = layout::profiles(state.gpu(place));
            let wrong = || Error::Call { call: CALL, why: format!("there is no profile {profile}") };
            let chosen = profiles.iter().find(|known| known.id == profile).ok_or_else(wrong)?;
            let there = &state.instances[gpu];
            let like = there.iter().filter(|instance| instance.profile == profile).count();
            let free = |at: &Placement| there.iter().all(|instance| !instance.placement.overlaps(*at));
            let placement = match at {
                Some(at) => Some(at).filter(|at| chosen.placements.contains(at)).filter(free),
                None => layout::best_placement(chosen, there),
            };
            let full = || Error::Call { call: CALL, why: "the GPU has not enough free slices for it".into() };
            let placement = placement.filter(|_| like < chosen.max_instances as usize).ok_or_else(full)?;
            let instance = GpuInstance { id: layout::instance_id(placement), profile, placement, compute: Vec::new() };
            state.instances.entry(gpu.to_owned()).or_default().push(instance.clone());
            Ok(instance)
        })
    }

    fn destroy_gpu_instance(&self, gpu: &str, gi: u32) -> Result<()> {
        self.with_gpu(gpu, |state, place| {
            state.instance(gpu, gi)?;
            if state.gpu(place).mig_devices.iter().any(|device| device.gi == gi) {
                return Err(Error::InUse(format!("GPU instance {gi}")));
            }
            state.instances.entry(gpu.to_owned()).or_default().retain(|instance| instance.id != gi);
            Ok(())
        })
    }

    fn create_compute_instance(&self, gpu: &str, gi: u32, slices: u32) -> Result<ComputeInstance> {
        const CALL: &str = "nvmlGpuInstanceCreateComputeInstance";
        self.with_gpu(gpu, |state, place| {
            let profile = state.instance(gpu, gi)?.profile;
            let profiles = layout::profiles(state.gpu(place));
            let profile = profiles.iter().find(|known| known.id == profile).ok_or(Error::NotSupported)?;
            if !layout::compute_sizes(profile.slices.gpu).contains(&slices) {
                let why = format!("GPU instance {gi} has no compute instances of {slices} slices");
                return Err(Error::Call { call: CALL, why });
            }
            let there = compute_instances(&state.gpu(place).mig_devices, gi);
            if there.iter().map(|part| part.slices).sum::<u32>() + slices > profile.slices.gpu {
                let why = "the GPU has not enough free slices for it".into();
                return Err(Error::Call { call: CALL, why });
            }
            let ci = (0..).find(|id| there.iter().all(|part| part.id != *id)).unwrap_or_default();
            let device = device(state.gpu(place), gi, ci, slices, profile);
            let memory = Some(device.slices.memory_mib << 20);
            let reading = Reading { memory_free: memory, memory_used: Some(0), ..Reading::default() };
            state.recording.readings.insert(device.uuid.clone(), reading);
            state.gpu(place).mig_devices.push(device);
            renumber(state.gpu(place));
            Ok(ComputeInstance { id: ci, slices })
        })
    }

    fn destroy_compute_instance(&self, gpu: &str, gi: u32, ci: u32) -> Result<()> {
        self.with_gpu(gpu, |state, place| {
            state.instance(gpu, gi)?;
            let found = state.gpu(place).mig_devices.iter().find(|device| (device.gi, device.ci) == (gi, ci));
            let missing = || Error::NotFound(format!("compute instance {ci} of GPU instance {gi}"));
            let uuid = found.ok_or_else(missing)?.uuid.clone();
            if state.in_use(&uuid) {
                return Err(Error::InUse(format!("compute instance {ci} of GPU instance {gi}")));
            }
            state.gpu(place).mig_devices.retain(|device| device.uuid != uuid);
            renumber(state.gpu(place));
            Ok(())
        })
    }

    fn reset(&self, gpu: &str) -> Result<()> {
        self.with_gpu(gpu, |state, place| {
            let parts: Vec<String> = state.gpu(place).mig_devices.iter().map(|device| device.uuid.clone()).collect();
            if state.in_use(gpu) || parts.iter().any(|part| state.in_use(part)) {
                return Err(Error::InUse(format!("GPU {gpu}")));
            }
            let now = state.gpu(place);
            now.mig_devices.clear();
            now.mig = match now.mig {
                MigMode::Disabled { pending: true } => MigMode::Enabled { pending_off: false },
                MigMode::Enabled { pending_off: true } => MigMode::Disabled { pending: false },
                same => same,
            };
            state.instances.insert(gpu.to_owned(), Vec::new());
            state.recovery.remove(gpu);
            Ok(())
        })
    }
}

/// The GPU instances of recorded MIG devices, placed by their ids.
fn recorded_instances(gpu: &Gpu) -> Vec<GpuInstance> {
    let profiles = layout::profiles(gpu);
    let mut found: Vec<GpuInstance> = Vec::new();
    for device in &gpu.mig_devices {
        if found.iter().any(|instance| instance.id == device.gi) {
            continue;
        }
        let whole = device.profile.parse().map(|name: Profile| Profile { compute: name.gpu, ..name });
        let named = profiles.iter().find(|profile| whole.as_ref() == Ok(&profile.name));
        let alike = || profiles.iter().find(|profile| profile.slices.gpu == device.slices.gpu);
        let Some(profile) = named.or_else(alike) else { continue };
        let at = layout::placement(device.gi);
        let free = found.iter().all(|instance| !instance.placement.overlaps(at));
        // `Recording::with_mig` gives ids without regard to placements.
        let possible = free && profile.placements.contains(&at);
        let placement = if possible { at } else { layout::best_placement(profile, &found).unwrap_or(at) };
        found.push(GpuInstance { id: device.gi, profile: profile.id, placement, compute: Vec::new() });
    }
    found
}

fn compute_instances(devices: &[MigDevice], gi: u32) -> Vec<ComputeInstance> {
    let inside = devices.iter().filter(|device| device.gi == gi);
    let mut found: Vec<ComputeInstance> =
        inside.map(|device| ComputeInstance { id: device.ci, slices: device.slices.compute }).collect();
    found.sort_unstable();
    found
}

fn device(gpu: &Gpu, gi: u32, ci: u32, compute: u32, profile: &InstanceProfile) -> MigDevice {
    let all = profile.slices;
    // A compute instance with all slices also has the remaining multiprocessors.
    let multiprocessors =
        if compute == all.gpu { all.multiprocessors } else { layout::slice_multiprocessors(gpu) * compute };
    let slices = MigSlices { compute, multiprocessors, ..all };
    let name = Profile { compute, ..profile.name.clone() };
    // The UUID is derived from the placement, as with a real driver.
    let uuid = uuid("MIG", gpu.pci_device >> 16 & 0xff, gpu.index, 0x100 + gi * 0x10 + ci);
    MigDevice { index: 0, uuid, gi, ci, slices, profile: name.to_string() }
}

/// Orders MIG devices by their instance ids, as NVML does.
fn renumber(gpu: &mut Gpu) {
    gpu.mig_devices.sort_by_key(|device| (device.gi, device.ci));
    for (index, device) in (0..).zip(&mut gpu.mig_devices) {
        device.index = index;
    }
}

#[cfg(test)]
mod tests;
