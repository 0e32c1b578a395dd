//! GPUs of NVIDIA that are not there: fed from a recording of a real node or built from a model's public figures, and
//! able to fail like real ones.

mod faults;
mod mig;
mod models;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gpu::nvidia::mig::GpuInstance;
use crate::gpu::nvidia::{
    Event, EventKind, Events, Gpu, Hardware, Inventory, LostGpu, Profiling, Reading, Recovery, Topology, Watched,
};
use crate::{Error, Result};

pub use faults::Faults;
pub use models::{Model, node};

/// What a node said, to be said again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// What there is.
    pub inventory: Inventory,
    /// How near GPUs are to each other.
    #[serde(default)]
    pub topology: Topology,
    /// Sensors and counters by UUID.
    #[serde(default)]
    pub readings: BTreeMap<String, Reading>,
    /// Activity by UUID.
    #[serde(default)]
    pub profiling: BTreeMap<String, Profiling>,
}

impl Recording {
    /// What a node says now.
    pub fn take(hardware: &dyn Hardware) -> Result<Self> {
        let inventory = hardware.inventory()?;
        let mut recording =
            Self { topology: hardware.topology()?, inventory, readings: BTreeMap::new(), profiling: BTreeMap::new() };
        for uuid in uuids(&recording.inventory) {
            recording.readings.insert(uuid.clone(), hardware.reading(&uuid)?);
            if let Some(profiling) = hardware.profiling(&uuid)? {
                recording.profiling.insert(uuid, profiling);
            }
        }
        Ok(recording)
    }

    /// An H200 as it was recorded, with driver 580.
    pub fn h200() -> Self {
        read(include_str!("../../../recordings/h200.json"))
    }

    /// The same H200 cut into 2g.35gb and two 1g.18gb.
    pub fn h200_mig() -> Self {
        read(include_str!("../../../recordings/h200-mig.json"))
    }

    /// The same H200 cut into 4g.71gb, 1g.35gb and 1g.18gb+me.
    pub fn h200_mig_media() -> Self {
        read(include_str!("../../../recordings/h200-mig-me.json"))
    }

    /// The same H200 with one 3g.71gb whose computing is cut again, into 1c and 2c.
    pub fn h200_mig_shared() -> Self {
        read(include_str!("../../../recordings/h200-mig-ci.json"))
    }
}

fn read(text: &str) -> Recording {
    serde_json::from_str(text).expect("a recording of ours")
}

fn uuids(inventory: &Inventory) -> Vec<String> {
    let mig = inventory.gpus.iter().flat_map(|gpu| gpu.mig_devices.iter().map(|part| part.uuid.clone()));
    inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).chain(mig).collect()
}

/// Hardware that says what it was told to say.
pub struct Fake {
    state: Mutex<State>,
}

struct State {
    recording: Recording,
    /// Every call fails with this.
    broken: Option<Error>,
    lost: Vec<String>,
    recovery: BTreeMap<String, Recovery>,
    exclusive: BTreeMap<String, bool>,
    /// GPU instances of GPUs that were asked for them; their compute instances are the recording's MIG devices.
    instances: BTreeMap<String, Vec<GpuInstance>>,
    processes: BTreeMap<String, Vec<(u32, u64)>>,
    activity: BTreeMap<String, Vec<(u32, u32)>>,
    listeners: Vec<Sender<Result<Event>>>,
    silent: Vec<String>,
}

impl Fake {
    /// A node that says what a recording holds.
    pub fn new(recording: Recording) -> Self {
        let state = State {
            recording,
            broken: None,
            lost: Vec::new(),
            recovery: BTreeMap::new(),
            exclusive: BTreeMap::new(),
            instances: BTreeMap::new(),
            processes: BTreeMap::new(),
            activity: BTreeMap::new(),
            listeners: Vec::new(),
            silent: Vec::new(),
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the node says from now on: GPUs added or taken, MIG layouts, sensors.
    pub fn edit(&self, change: impl FnOnce(&mut Recording)) {
        let mut state = self.state();
        change(&mut state.recording);
        // MIG devices may be others now: their GPU instances follow from them.
        state.instances.clear();
    }

    /// The driver goes away, or comes back.
    pub fn break_with(&self, error: Option<Error>) {
        let mut state = self.state();
        if let Some(error) = &error {
            state.listeners.retain(|listener| listener.send(Err(error.clone())).is_ok());
        }
        state.broken = error;
    }

    /// A GPU reports an XID, confined to an instance or not.
    pub fn xid(&self, gpu: &str, number: u64, instance: Option<(u32, u32)>) {
        self.report(Event { gpu: Some(gpu.to_owned()), instance, kind: EventKind::Xid(number) });
    }

    /// Any report.
    pub fn report(&self, event: Event) {
        self.state().listeners.retain(|listener| listener.send(Ok(event.clone())).is_ok());
    }

    /// A GPU falls off the bus, as XID 79 says.
    pub fn lose(&self, gpu: &str) {
        self.state().lost.push(gpu.to_owned());
        self.xid(gpu, 79, None);
    }

    /// It is found again, as after a reset.
    pub fn find_again(&self, gpu: &str) {
        self.state().lost.retain(|lost| lost != gpu);
    }

    /// What the driver wants done before a GPU is used again.
    pub fn set_recovery(&self, gpu: &str, recovery: Recovery) {
        self.state().recovery.insert(gpu.to_owned(), recovery);
    }

    /// A GPU that cannot report faults.
    pub fn silence(&self, gpu: &str) {
        self.state().silent.push(gpu.to_owned());
    }

    /// Whether a GPU was set to one process at a time.
    pub fn exclusive(&self, gpu: &str) -> bool {
        self.state().exclusive.get(gpu).copied().unwrap_or(false)
    }

    /// Processes that hold memory of a GPU.
    pub fn set_processes(&self, gpu: &str, processes: Vec<(u32, u64)>) {
        self.state().processes.insert(gpu.to_owned(), processes);
    }

    /// How busy processes keep a GPU.
    pub fn set_activity(&self, gpu: &str, activity: Vec<(u32, u32)>) {
        self.state().activity.insert(gpu.to_owned(), activity);
    }

    /// Whether someone listens for faults: a test need not wait for longer than that.
    pub fn listeners(&self) -> usize {
        self.state().listeners.len()
    }

    /// An answer about one device, if the node and the device can give one.
    fn about<T>(&self, uuid: &str, answer: impl FnOnce(&State) -> T) -> Result<T> {
        let state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let parent = state
            .recording
            .inventory
            .gpus
            .iter()
            .find(|gpu| gpu.uuid == uuid || gpu.mig_devices.iter().any(|part| part.uuid == uuid));
        let parent = parent.ok_or_else(|| Error::NotFound(uuid.to_owned()))?;
        if state.lost.contains(&parent.uuid) {
            return Err(Error::Lost);
        }
        Ok(answer(&state))
    }
}

impl Hardware for Fake {
    fn inventory(&self) -> Result<Inventory> {
        let state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let mut inventory = state.recording.inventory.clone();
        // NVML still counts a lost GPU, and fails when asked about it.
        let (lost, gpus) = inventory.gpus.into_iter().partition(|gpu| state.lost.contains(&gpu.uuid));
        let lost: Vec<Gpu> = lost;
        inventory.gpus = gpus;
        inventory.lost.extend(lost.into_iter().map(|gpu| LostGpu { index: gpu.index, uuid: Some(gpu.uuid) }));
        Ok(inventory)
    }

    fn topology(&self) -> Result<Topology> {
        let state = self.state();
        state.broken.clone().map_or_else(|| Ok(state.recording.topology.clone()), Err)
    }

    fn reading(&self, uuid: &str) -> Result<Reading> {
        self.about(uuid, |state| state.recording.readings.get(uuid).cloned().unwrap_or_default())
    }

    fn profiling(&self, uuid: &str) -> Result<Option<Profiling>> {
        self.about(uuid, |state| state.recording.profiling.get(uuid).copied())
    }

    fn recovery(&self, uuid: &str) -> Result<Recovery> {
        self.about(uuid, |state| state.recovery.get(uuid).copied().unwrap_or(Recovery::None))
    }

    fn watch(&self) -> Result<Watched> {
        let mut state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let (sender, receiver) = channel();
        state.listeners.push(sender);
        let refused = state.lost.iter().map(|gpu| (gpu.clone(), Error::Lost)).collect();
        Ok(Watched { events: Box::new(Queue(receiver)), silent: state.silent.clone(), refused })
    }

    fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>> {
        self.about(uuid, |state| state.processes.get(uuid).cloned().unwrap_or_default())
    }

    fn process_activity(&self, uuid: &str) -> Result<Vec<(u32, u32)>> {
        self.about(uuid, |state| state.activity.get(uuid).cloned().unwrap_or_default())
    }

    fn set_exclusive(&self, uuid: &str, exclusive: bool) -> Result<()> {
        self.about(uuid, |_| ())?;
        self.state().exclusive.insert(uuid.to_owned(), exclusive);
        Ok(())
    }
}

struct Queue(Receiver<Result<Event>>);

impl Events for Queue {
    fn next(&mut self, timeout: Duration) -> Result<Option<Event>> {
        match self.0.recv_timeout(timeout) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Call { call: "wait for events", why: "the hardware is gone".into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::nvidia::mig::Profile;

    fn h200() -> (Fake, String) {
        let recording = Recording::h200();
        let uuid = recording.inventory.gpus[0].uuid.clone();
        (Fake::new(recording), uuid)
    }

    #[test]
    fn the_recording_is_of_an_h200() {
        let gpu = &Recording::h200().inventory.gpus[0];
        assert_eq!((gpu.name.as_str(), gpu.compute.major, gpu.memory_mib()), ("NVIDIA H200", 9, 143_771));
    }

    #[test]
    fn recorded_profiles_are_what_their_slices_make() {
        for recording in [Recording::h200_mig(), Recording::h200_mig_media(), Recording::h200_mig_shared()] {
            let gpu = &recording.inventory.gpus[0];
            for part in &gpu.mig_devices {
                let slices = part.slices;
                let plain = Profile::of(slices.compute, slices.gpu, slices.memory_mib, gpu.memory_bytes).to_string();
                assert_eq!(part.profile.split('+').next(), Some(plain.as_str()));
            }
        }
    }

    #[test]
    fn an_injected_fault_reaches_every_listener() {
        let (fake, gpu) = h200();
        let mut listeners = [fake.watch().expect("listening"), fake.watch().expect("listening")];
        fake.xid(&gpu, 48, None);
        for listener in &mut listeners {
            let event = listener.events.next(Duration::from_secs(5)).expect("heard").expect("an event");
            assert_eq!((event.gpu.as_deref(), event.kind), (Some(gpu.as_str()), EventKind::Xid(48)));
        }
    }

    #[test]
    fn a_lost_gpu_answers_nothing_until_it_is_found_again() {
        let (fake, gpu) = h200();
        fake.lose(&gpu);
        assert_eq!(fake.reading(&gpu), Err(Error::Lost));
        let inventory = fake.inventory().expect("the others");
        assert!(inventory.gpus.is_empty() && inventory.lost[0].uuid.as_ref() == Some(&gpu));
        fake.find_again(&gpu);
        assert!(fake.reading(&gpu).is_ok());
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let recording = node(Model::Gb200, 4).with_mig(0, &["3g.93gb", "3g.93gb"]);
        let text = serde_json::to_string(&recording).expect("json");
        assert_eq!(serde_json::from_str::<Recording>(&text).expect("read"), recording);
    }
}
