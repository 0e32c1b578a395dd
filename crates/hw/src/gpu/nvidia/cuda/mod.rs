//! The few CUDA driver calls that a GPU test needs.
//!
//! The library is opened from the driver's own root and every failure is an error value. That is why no general binding
//! is used: those use the loader's search path, and abort if the library is missing.

mod raw;

use std::ffi::CString;

pub use raw::{Buffer, Context, Cuda, Function};

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// Device memory.
    Address(u64),
    /// An integer.
    U32(u32),
    /// A float.
    F32(f32),
}

/// A CUDA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// CUDA ordinal.
    pub ordinal: i32,
    /// Product name.
    pub name: String,
    /// `GPU-…` or `MIG-…`, as NVML writes it.
    pub uuid: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability.
    pub compute: (u32, u32),
    /// Clock in kHz.
    pub clock: u32,
    /// Memory clock in kHz.
    pub memory_clock: u32,
    /// Width of the memory bus in bits.
    pub bus_width: u32,
}

impl Device {
    /// Peak memory bandwidth in bytes per second; zero if unknown.
    pub fn peak_bandwidth(&self) -> f64 {
        // Double data rate.
        f64::from(self.memory_clock) * 1e3 * 2.0 * f64::from(self.bus_width) / 8.0
    }

    /// Peak FP32 throughput in operations per second.
    pub fn peak_flops(&self) -> f64 {
        let lanes = match self.compute {
            (8, 0) | (7, _) => 64.0,
            (6, 0) => 64.0,
            _ => 128.0,
        };
        f64::from(self.multiprocessors) * lanes * 2.0 * f64::from(self.clock) * 1e3
    }
}

/// PTX source, which the driver compiles.
pub fn ptx(text: &str) -> CString {
    CString::new(text).expect("code without zero bytes")
}
