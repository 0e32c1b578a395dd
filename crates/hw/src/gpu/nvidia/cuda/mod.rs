//! Computing on a GPU, to prove that it can: the few calls of the CUDA driver that a check needs.
//!
//! The library is opened from the driver's own root and every failure is an answer, which is why this is not a
//! general binding: those look where the loader looks, and end the process when nothing is there.

mod raw;

use std::ffi::CString;

pub use raw::{Buffer, Context, Cuda, Function};

/// What a kernel gets.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// Memory of the GPU.
    Address(u64),
    /// A number.
    U32(u32),
    /// A number.
    F32(f32),
}

/// A GPU as CUDA sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Place in CUDA's order.
    pub ordinal: i32,
    /// Product name.
    pub name: String,
    /// `GPU-…` or `MIG-…`, as NVML writes it.
    pub uuid: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// What it can execute.
    pub compute: (u32, u32),
    /// Clock in kHz.
    pub clock: u32,
    /// Memory clock in kHz.
    pub memory_clock: u32,
    /// Width of the memory bus in bits.
    pub bus_width: u32,
}

impl Device {
    /// What its memory could move at most, bytes per second; zero when the driver does not tell.
    pub fn peak_bandwidth(&self) -> f64 {
        // Two transfers per clock.
        f64::from(self.memory_clock) * 1e3 * 2.0 * f64::from(self.bus_width) / 8.0
    }

    /// What it could compute at most in single precision, operations per second.
    pub fn peak_flops(&self) -> f64 {
        let lanes = match self.compute {
            (8, 0) | (7, _) => 64.0,
            (6, 0) => 64.0,
            _ => 128.0,
        };
        f64::from(self.multiprocessors) * lanes * 2.0 * f64::from(self.clock) * 1e3
    }
}

/// Code for a GPU, as text that its driver compiles.
pub fn ptx(text: &str) -> CString {
    CString::new(text).expect("code without zero bytes")
}
