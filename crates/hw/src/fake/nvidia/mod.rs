//! Fake NVIDIA GPUs: replayed from a recording of a real node or built from a model's public figures, with fault
//! injection.

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
    Event, EventKind, EventSubscription, Events, Gpu, Hardware, Inventory, LostGpu, Profiling, Reading, Recovery,
    Topology,
};
use crate::{Error, Result};

pub use faults::Faults;
pub use models::{Model, node};

/// A recorded node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// Driver and GPUs.
    pub inventory: Inventory,
    /// Interconnects between GPUs.
    #[serde(default)]
    pub topology: Topology,
    /// Sensors and counters by UUID.
    #[serde(default)]
    pub readings: BTreeMap<String, Reading>,
    /// Profiling metrics by UUID.
    #[serde(default)]
    pub profiling: BTreeMap<String, Profiling>,
}

impl Recording {
    /// Records a node.
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

    /// A recorded H200 with driver 580.
    pub fn h200() -> Self {
        read(include_str!("../../../recordings/h200.json"))
    }

    /// The same H200 with MIG devices 2g.35gb and two 1g.18gb.
    pub fn h200_mig() -> Self {
        read(include_str!("../../../recordings/h200-mig.json"))
    }

    /// The same H200 with MIG devices 4g.71gb, 1g.35gb and 1g.18gb+me.
    pub fn h200_mig_media() -> Self {
        read(include_str!("../../../recordings/h200-mig-me.json"))
    }

    /// The same H200 with one 3g.71gb GPU instance and compute instances 1c and 2c.
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

/// Fake hardware that replays a recording.
pub struct Fake {
    state: Mutex<State>,
}

struct State {
    recording: Recording,
    /// If set, every call fails with it.
    broken: Option<Error>,
    lost: Vec<String>,
    recovery: BTreeMap<String, Recovery>,
    exclusive: BTreeMap<String, bool>,
    /// GPU instances of GPUs that were queried for them; their compute instances are the recording's MIG devices.
    instances: BTreeMap<String, Vec<GpuInstance>>,
    processes: BTreeMap<String, Vec<(u32, u64)>>,
    activity: BTreeMap<String, Vec<(u32, u32)>>,
    listeners: Vec<Sender<Result<Event>>>,
    unsupported: Vec<String>,
}

impl Fake {
    /// A node that replays a recording.
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
            unsupported: Vec::new(),
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Edits the recording: GPUs, MIG layouts, sensors.
    pub fn edit(&self, change: impl FnOnce(&mut Recording)) {
        let mut state = self.state();
        change(&mut state.recording);
        // MIG devices may have changed: their GPU instances are derived again.
        state.instances.clear();
    }

    /// Makes the driver fail, or work again.
    pub fn set_error(&self, error: Option<Error>) {
        let mut state = self.state();
        if let Some(error) = &error {
            state.listeners.retain(|listener| listener.send(Err(error.clone())).is_ok());
        }
        state.broken = error;
    }

    /// Injects an XID, on a GPU or an instance.
    pub fn xid(&self, gpu: &str, number: u64, instance: Option<(u32, u32)>) {
        self.report(Event { gpu: Some(gpu.to_owned()), instance, kind: EventKind::Xid(number) });
    }

    /// Injects an event.
    pub fn report(&self, event: Event) {
        self.state().listeners.retain(|listener| listener.send(Ok(event.clone())).is_ok());
    }

    /// Drops a GPU off the bus, with XID 79.
    pub fn lose(&self, gpu: &str) {
        self.state().lost.push(gpu.to_owned());
        self.xid(gpu, 79, None);
    }

    /// Restores a lost GPU, as after a reset.
    pub fn restore(&self, gpu: &str) {
        self.state().lost.retain(|lost| lost != gpu);
    }

    /// Sets the pending recovery action of a GPU.
    pub fn set_recovery(&self, gpu: &str, recovery: Recovery) {
        self.state().recovery.insert(gpu.to_owned(), recovery);
    }

    /// Disables event support of a GPU.
    pub fn disable_events(&self, gpu: &str) {
        self.state().unsupported.push(gpu.to_owned());
    }

    /// Whether a GPU is in exclusive compute mode.
    pub fn exclusive(&self, gpu: &str) -> bool {
        self.state().exclusive.get(gpu).copied().unwrap_or(false)
    }

    /// Sets the processes that hold memory of a GPU.
    pub fn set_processes(&self, gpu: &str, processes: Vec<(u32, u64)>) {
        self.state().processes.insert(gpu.to_owned(), processes);
    }

    /// Sets the utilisation by process.
    pub fn set_activity(&self, gpu: &str, activity: Vec<(u32, u32)>) {
        self.state().activity.insert(gpu.to_owned(), activity);
    }

    /// Number of event subscriptions, for tests to wait on.
    pub fn listeners(&self) -> usize {
        self.state().listeners.len()
    }

    /// Queries one device, unless it or the node fails.
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
        // NVML still counts a lost GPU, and fails when it is queried.
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

    fn watch(&self) -> Result<EventSubscription> {
        let mut state = self.state();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let (sender, receiver) = channel();
        state.listeners.push(sender);
        let refused = state.lost.iter().map(|gpu| (gpu.clone(), Error::Lost)).collect();
        Ok(EventSubscription { events: Box::new(Queue(receiver)), unsupported: state.unsupported.clone(), refused })
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
        let mut listeners = [fake.watch().expect("subscribed"), fake.watch().expect("listening")];
        fake.xid(&gpu, 48, None);
        for listener in &mut listeners {
            let event = listener.events.next(Duration::from_secs(5)).expect("received").expect("an event");
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
        fake.restore(&gpu);
        assert!(fake.reading(&gpu).is_ok());
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let recording = node(Model::Gb200, 4).with_mig(0, &["3g.93gb", "3g.93gb"]);
        let text = serde_json::to_string(&recording).expect("json");
        assert_eq!(serde_json::from_str::<Recording>(&text).expect("read"), recording);
    }
}
