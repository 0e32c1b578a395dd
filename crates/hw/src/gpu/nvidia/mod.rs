//! NVIDIA GPUs behind [`Hardware`], as plain data ([`Inventory`], [`Reading`], [`Event`]), never as a library handle,
//! so that tests can replay what a node reports.
//!
//! Start reading at [`Inventory`]; [`driver::Roots`] has the paths of a driver.

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

pub use event::{Event, EventKind, EventSubscription};
pub use inventory::{
    Addressing, ComputeCapability, CudaVersion, Fabric, Gpu, Inventory, LostGpu, MigDevice, MigMode, MigSlices,
};
pub use reading::{EccCounts, NvLinkErrors, Profiling, Reading, Recovery, Retired, ThrottleReasons, Violations};
pub use topology::{Relation, Topology};

/// The GPUs of one node.
///
/// A call may take milliseconds and must not be made on an async thread. Every call queries the driver: nothing is
/// cached.
pub trait Hardware: Send + Sync {
    /// Driver, GPUs and MIG devices. A lost GPU is listed as such; it fails nothing else.
    fn inventory(&self) -> Result<Inventory>;
    /// [`Hardware::inventory`] without MIG devices, which take NVML ten milliseconds each.
    fn whole_gpus(&self) -> Result<Inventory> {
        let mut inventory = self.inventory()?;
        inventory.gpus.iter_mut().for_each(|gpu| gpu.mig_devices.clear());
        Ok(inventory)
    }
    /// PCIe and NVLink connections of every pair of GPUs.
    fn topology(&self) -> Result<Topology>;
    /// Current sensor and counter values of a GPU or MIG device.
    fn reading(&self, uuid: &str) -> Result<Reading>;
    /// Profiling metrics of a GPU or MIG device since the previous call; `None` on the first call, and without GPM.
    fn profiling(&self, uuid: &str) -> Result<Option<Profiling>>;
    /// The pending recovery action of a GPU.
    fn recovery(&self, uuid: &str) -> Result<Recovery>;
    /// Subscribes to events of all GPUs.
    fn watch(&self) -> Result<EventSubscription>;
    /// Processes that hold memory of a GPU: PID and bytes.
    fn processes(&self, uuid: &str) -> Result<Vec<(u32, u64)>>;
    /// Recent utilisation by process: PID and percent. Empty if not supported.
    fn process_activity(&self, uuid: &str) -> Result<Vec<(u32, u32)>>;
    /// Sets exclusive compute mode (needed for MPS), or the default mode.
    fn set_exclusive(&self, uuid: &str, exclusive: bool) -> Result<()>;
}

/// An event queue. Separate from [`Hardware`], since each subscription has its own.
pub trait Events: Send {
    /// The next event, or `None` after the timeout.
    fn next(&mut self, timeout: Duration) -> Result<Option<Event>>;
}

/// The hardware shared by all roles of a process: the library is loaded once, and reloaded after the driver changed.
pub struct Source {
    open: Box<dyn Fn() -> Result<Arc<dyn Hardware>> + Send + Sync>,
    opened: Mutex<Option<Arc<dyn Hardware>>>,
}

impl Source {
    /// GPUs of the driver below `roots`.
    pub fn nvml(roots: driver::Roots) -> Self {
        Self::new(move || Ok(Arc::new(nvml::Library::open(&roots)?)))
    }

    /// GPUs from a custom opener.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Hardware>> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), opened: Mutex::default() }
    }

    /// GPUs that are already open, such as fake ones.
    pub fn of(hardware: Arc<dyn Hardware>) -> Self {
        Self::new(move || Ok(hardware.clone()))
    }

    /// The same hardware as another source's.
    pub fn shared(other: &Arc<Self>) -> Self {
        let other = other.clone();
        Self::new(move || other.get())
    }

    /// The hardware, opened on first use.
    pub fn get(&self) -> Result<Arc<dyn Hardware>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hardware) = &*opened {
            return Ok(hardware.clone());
        }
        let hardware = (self.open)()?;
        *opened = Some(hardware.clone());
        Ok(hardware)
    }

    /// Drops the hardware: the next [`Source::get`] reloads the driver library.
    pub fn forget(&self) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
