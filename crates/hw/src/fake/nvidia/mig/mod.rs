//! Cutting pretended GPUs: the driver's rules for modes, places and numbers.

mod layout;

use super::models::uuid;
use super::{Fake, State};
use crate::gpu::nvidia::mig::{ComputeInstance, GpuInstance, InstanceProfile, MigControl, Placement, Profile, Switch};
use crate::gpu::nvidia::{Gpu, MigDevice, MigMode, MigSlices, Reading};
use crate::{Error, Result};

impl Fake {
    /// An answer about one whole GPU, or a change of it.
    fn cut<T>(&self, gpu: &str, act: impl FnOnce(&mut State, usize) -> Result<T>) -> Result<T> {
        self.about(gpu, |_| ())?;
        let mut state = self.state();
        let place = state.recording.inventory.gpus.iter().position(|it| it.uuid == gpu);
        let place = place.ok_or_else(|| Error::NotFound(gpu.to_owned()))?;
        if !state.instances.contains_key(gpu) {
            let known = instances_of(&state.recording.inventory.gpus[place]);
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
    fn used(&self, uuid: &str) -> bool {
        self.processes.get(uuid).is_some_and(|processes| !processes.is_empty())
    }

    fn instance(&self, gpu: &str, gi: u32) -> Result<&GpuInstance> {
        let found = self.instances.get(gpu).into_iter().flatten().find(|instance| instance.id == gi);
        found.ok_or_else(|| Error::NotFound(format!("GPU instance {gi}")))
    }
}

impl MigControl for Fake {
    fn mode(&self, gpu: &str) -> Result<MigMode> {
        self.cut(gpu, |state, place| Ok(state.gpu(place).mig))
    }

    fn set_mode(&self, gpu: &str, mig: Switch) -> Result<MigMode> {
        self.cut(gpu, |state, place| {
            let used = state.used(gpu) || (mig == Switch::Off && !state.instances[gpu].is_empty());
            let now = state.gpu(place);
            // Ampere is reset for it by the driver, and waits for a reset where that is not possible.
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
        self.cut(gpu, |state, place| Ok(layout::profiles(state.gpu(place))))
    }

    fn instances(&self, gpu: &str) -> Result<Vec<GpuInstance>> {
        self.cut(gpu, |state, place| {
            let devices = state.gpu(place).mig_devices.clone();
            let mut found = state.instances[gpu].clone();
            for instance in &mut found {
                instance.compute = compute_of(&devices, instance.id);
            }
            found.sort_by_key(|instance| instance.id);
            Ok(found)
        })
    }

    fn create_gpu_instance(&self, gpu: &str, profile: u32, at: Option<Placement>) -> Result<GpuInstance> {
        const CALL: &str = "nvmlDeviceCreateGpuInstance";
        self.cut(gpu, |state, place| {
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
                None => layout::best(chosen, there),
            };
            let full = || Error::Call { call: CALL, why: "the GPU has not enough free slices for it".into() };
            let placement = placement.filter(|_| like < chosen.most as usize).ok_or_else(full)?;
            let instance = GpuInstance { id: layout::number(placement), profile, placement, compute: Vec::new() };
            state.instances.entry(gpu.to_owned()).or_default().push(instance.clone());
            Ok(instance)
        })
    }

    fn destroy_gpu_instance(&self, gpu: &str, gi: u32) -> Result<()> {
        self.cut(gpu, |state, place| {
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
        self.cut(gpu, |state, place| {
            let profile = state.instance(gpu, gi)?.profile;
            let profiles = layout::profiles(state.gpu(place));
            let profile = profiles.iter().find(|known| known.id == profile).ok_or(Error::NotSupported)?;
            if !layout::compute_sizes(profile.slices.gpu).contains(&slices) {
                let why = format!("GPU instance {gi} has no compute instances of {slices} slices");
                return Err(Error::Call { call: CALL, why });
            }
            let there = compute_of(&state.gpu(place).mig_devices, gi);
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
            order(state.gpu(place));
            Ok(ComputeInstance { id: ci, slices })
        })
    }

    fn destroy_compute_instance(&self, gpu: &str, gi: u32, ci: u32) -> Result<()> {
        self.cut(gpu, |state, place| {
            state.instance(gpu, gi)?;
            let found = state.gpu(place).mig_devices.iter().find(|device| (device.gi, device.ci) == (gi, ci));
            let missing = || Error::NotFound(format!("compute instance {ci} of GPU instance {gi}"));
            let uuid = found.ok_or_else(missing)?.uuid.clone();
            if state.used(&uuid) {
                return Err(Error::InUse(format!("compute instance {ci} of GPU instance {gi}")));
            }
            state.gpu(place).mig_devices.retain(|device| device.uuid != uuid);
            order(state.gpu(place));
            Ok(())
        })
    }

    fn reset(&self, gpu: &str) -> Result<()> {
        self.cut(gpu, |state, place| {
            let parts: Vec<String> = state.gpu(place).mig_devices.iter().map(|device| device.uuid.clone()).collect();
            if state.used(gpu) || parts.iter().any(|part| state.used(part)) {
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

/// The GPU instances that a recording's MIG devices are in. Their numbers say where they are.
fn instances_of(gpu: &Gpu) -> Vec<GpuInstance> {
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
        let at = layout::place(device.gi);
        let free = found.iter().all(|instance| !instance.placement.overlaps(at));
        // Made-up nodes number their instances without regard to places.
        let possible = free && profile.placements.contains(&at);
        let placement = if possible { at } else { layout::best(profile, &found).unwrap_or(at) };
        found.push(GpuInstance { id: device.gi, profile: profile.id, placement, compute: Vec::new() });
    }
    found
}

fn compute_of(devices: &[MigDevice], gi: u32) -> Vec<ComputeInstance> {
    let inside = devices.iter().filter(|device| device.gi == gi);
    let mut found: Vec<ComputeInstance> =
        inside.map(|device| ComputeInstance { id: device.ci, slices: device.slices.compute }).collect();
    found.sort_unstable();
    found
}

fn device(gpu: &Gpu, gi: u32, ci: u32, compute: u32, profile: &InstanceProfile) -> MigDevice {
    let all = profile.slices;
    // What is left over beside whole slices goes to the instance that has all of them.
    let multiprocessors =
        if compute == all.gpu { all.multiprocessors } else { all.multiprocessors / all.gpu * compute };
    let slices = MigSlices { compute, multiprocessors, ..all };
    let name = Profile { compute, ..profile.name.clone() };
    // The same place has the same name every time, as with a real driver.
    let uuid = uuid("MIG", gpu.pci_device >> 16 & 0xff, gpu.index, 0x100 + gi * 0x10 + ci);
    MigDevice { index: 0, uuid, gi, ci, slices, profile: name.to_string() }
}

/// MIG devices are counted by their instances' numbers.
fn order(gpu: &mut Gpu) {
    gpu.mig_devices.sort_by_key(|device| (device.gi, device.ci));
    for (index, device) in (0..).zip(&mut gpu.mig_devices) {
        device.index = index;
    }
}

#[cfg(test)]
mod tests;
