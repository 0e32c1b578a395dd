//! GPUs of NVIDIA: seen through [`Hardware`], as plain data ([`Inventory`], [`Reading`], [`Event`]), never as a handle of
//! a library, so that what a test feeds is what a node would have said.
//!
//! Start reading at [`Inventory`]; [`driver::Roots`] says where a driver's files may be.

pub mod cuda;
pub mod driver;
mod event;
mod inventory;
pub mod mig;
pub mod nvml;
mod reading;
mod topology;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Result;

pub use event::{Event, EventKind, Watched};
pub use inventory::{
    Addressing, ComputeCapability, CudaVersion, Fabric, Gpu, Inventory, LostGpu, MigDevice, MigMode, MigSlices,
};
pub use reading::{EccCounts, NvLinkErrors, Profiling, Reading, Recovery, Retired, ThrottleReasons, Violations};
pub use topology::{Relation, Topology};

/// The GPUs of one node.
///
/// A call may take milliseconds and must not be made on an executor's thread. Every call asks the driver again:
/// an answer is never older than the question.
pub trait Hardware: Send + Sync {
    /// What there is: driver, GPUs, their MIG devices. A lost GPU is listed as such; it fails nothing else.
    fn inventory(&self) -> Result<Inventory>;
    /// The same without MIG devices, which take a driver ten milliseconds each to name.
    fn whole_gpus(&self) -> Result<Inventory> {
        let mut inventory = self.inventory()?;
        inventory.gpus.iter_mut().for_each(|gpu| gpu.mig_devices.clear());
        Ok(inventory)
    }
    /// How near two GPUs are to each other, for every pair.
    fn topology(&self) -> Result<Topology>;
    /// What the sensors and counters of a GPU or MIG device say now.
    fn reading(&self, uuid: &str) -> Result<Reading>;
    /// How busy the units of a GPU or MIG device were since the last call for it; `None` on the first one, and
    /// where the GPU cannot tell.
    fn profiling(&self, uuid: &str) -> Result<Option<Profiling>>;
    /// What the driver wants done before a GPU is used again.
    fn recovery(&self, uuid: &str) -> Result<Recovery>;
    /// Starts to listen for faults of all GPUs.
    fn watch(&self) -> Result<Watched>;
    /// Processes that hold memory of a GPU: process id and bytes.
    fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>>;
    /// How busy processes kept a GPU in the last seconds: process id and percent. None where it cannot tell.
    fn process_activity(&self, uuid: &str) -> Result<Vec<(u32, u32)>>;
    /// Lets one process at a time use a GPU (what MPS needs), or any number.
    fn set_exclusive(&self, uuid: &str, exclusive: bool) -> Result<()>;
}

/// Faults as they happen. Kept apart from [`Hardware`] since each listener has its own queue.
pub trait Events: Send {
    /// The next event, or `None` when none came in time.
    fn next(&mut self, timeout: Duration) -> Result<Option<Event>>;
}

/// Where hardware comes from, shared by everything that runs in one process: the library is loaded once, and loaded
/// again after the driver changed.
pub struct Source {
    open: Box<dyn Fn() -> Result<Arc<dyn Hardware>> + Send + Sync>,
    opened: Mutex<Option<Arc<dyn Hardware>>>,
}

impl Source {
    /// GPUs of the driver below `roots`.
    pub fn nvml(roots: driver::Roots) -> Self {
        Self::new(move || Ok(Arc::new(nvml::Library::open(&roots)?)))
    }

    /// GPUs from anywhere.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Hardware>> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), opened: Mutex::default() }
    }

    /// GPUs that are there already, such as fake ones.
    pub fn of(hardware: Arc<dyn Hardware>) -> Self {
        Self::new(move || Ok(hardware.clone()))
    }

    /// The same hardware as another source's.
    pub fn shared(other: &Arc<Self>) -> Self {
        let other = other.clone();
        Self::new(move || other.get())
    }

    /// The hardware, opened when no one has it yet.
    pub fn get(&self) -> Result<Arc<dyn Hardware>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hardware) = &*opened {
            return Ok(hardware.clone());
        }
        let hardware = (self.open)()?;
        *opened = Some(hardware.clone());
        Ok(hardware)
    }

    /// Forgets the hardware: the next one to ask gets it from the driver that is there then.
    pub fn forget(&self) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
