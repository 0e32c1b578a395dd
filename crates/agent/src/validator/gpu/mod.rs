//! GPU tests: a kernel with a known result, memory bandwidth, a short burn, NVLinks.
//!
//! Each has a threshold, and a result with the measured value, the threshold and the peak it is a share of.

mod kernels;

use std::fmt;
use std::time::{Duration, Instant};

use capstan_hw::gpu::nvidia::cuda::{Context, Cuda, Device};
use capstan_hw::gpu::nvidia::driver::Roots;

use super::Options;
use crate::{Error, Result};

/// Which tests run.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// Test the memory bandwidth.
    pub bandwidth: Option<f64>,
    /// Burn this long, and compare the results.
    pub burn: Option<(Duration, f64)>,
}

impl Level {
    /// The level that the options ask for.
    pub fn of(options: &Options) -> Self {
        let share = |percent: u8| f64::from(percent) / 100.0;
        Self {
            bandwidth: (options.cuda_level >= 2).then(|| share(options.min_bandwidth_percent)),
            burn: (options.cuda_level >= 3)
                .then(|| (Duration::from_secs(options.burn_seconds.max(1)), share(options.min_compute_percent))),
        }
    }
}

/// A measurement and its threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// What was measured.
    pub what: &'static str,
    /// The value, in units per second.
    pub value: f64,
    /// The threshold.
    pub threshold: f64,
    /// The unit, and how many base units it is.
    pub unit: (&'static str, f64),
}

impl Measurement {
    /// Whether the threshold is met.
    pub fn passed(&self) -> bool {
        self.value >= self.threshold
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = self.unit;
        write!(f, "{} {:.1} {unit} (at least {:.1})", self.what, self.value / scale, self.threshold / scale)
    }
}

/// The test results of one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuResult {
    /// The GPU.
    pub uuid: String,
    /// Its product name.
    pub name: String,
    /// Number of compared values.
    pub numbers: usize,
    /// The first wrong value: index, expected, actual.
    pub wrong: Option<(usize, f32, f32)>,
    /// Duration, from the first call to the compared result.
    pub duration: Duration,
    /// The measurements.
    pub measurements: Vec<Measurement>,
}

impl GpuResult {
    /// What failed, if anything.
    pub fn failure(&self) -> Option<String> {
        if let Some((index, wanted, got)) = self.wrong {
            return Some(format!(
                "GPU {} computes wrongly: number {index} is {got}, not {wanted}; do not use it",
                self.uuid
            ));
        }
        let slow: Vec<String> =
            self.measurements.iter().filter(|measurement| !measurement.passed()).map(Measurement::to_string).collect();
        (!slow.is_empty()).then(|| format!("GPU {} is too slow: {}", self.uuid, slow.join(", ")))
    }
}

impl fmt::Display for GpuResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} numbers added and compared in {:.1} ms", self.numbers, self.duration.as_secs_f64() * 1e3)?;
        self.measurements.iter().try_for_each(|measurement| write!(f, ", {measurement}"))
    }
}

/// Tests every visible GPU.
pub fn test_gpus(roots: &Roots, level: &Level) -> Result<Vec<GpuResult>> {
    let cuda = Cuda::open(roots)?;
    let devices = cuda.devices()?;
    if devices.is_empty() {
        return Err(Error::Check("CUDA sees no GPU in this container".into()));
    }
    let mut results = devices.iter().map(|device| test_gpu(&cuda, device, level)).collect::<Result<Vec<_>>>()?;
    if level.burn.is_some() {
        test_links(&cuda, &devices, &mut results)?;
    }
    Ok(results)
}

fn test_gpu(cuda: &Cuda, device: &Device, level: &Level) -> Result<GpuResult> {
    let started = Instant::now();
    let context = cuda.context(device)?;
    let wrong = kernels::vector_add(&context)?;
    let duration = started.elapsed();
    let mut measurements = Vec::new();
    if let Some(share) = level.bandwidth {
        let value = kernels::bandwidth(&context, device)?;
        measurements.push(Measurement {
            what: "memory",
            value,
            threshold: device.peak_bandwidth() * share,
            unit: ("GB/s", 1e9),
        });
    }
    if let Some((time, share)) = level.burn {
        let (value, same) = kernels::burn(&context, device, time)?;
        let threshold = if same { device.peak_flops() * share } else { f64::INFINITY };
        measurements.push(Measurement {
            what: if same { "burn" } else { "burn with results that differ," },
            value,
            threshold,
            unit: ("TFLOP/s", 1e12),
        });
    }
    let (uuid, name) = (device.uuid.clone(), device.name.clone());
    Ok(GpuResult { uuid, name, numbers: kernels::NUMBERS, wrong, duration, measurements })
}

/// Copies between every pair of peer GPUs, and records the slowest of each.
fn test_links(cuda: &Cuda, devices: &[Device], results: &mut [GpuResult]) -> Result<()> {
    // Below any NVLink and above a degraded PCIe link: a slower pair is suspicious.
    const MIN_PEER_BANDWIDTH: f64 = 10e9;
    for (index, from) in devices.iter().enumerate() {
        let mut slowest: Option<f64> = None;
        for to in devices.iter().filter(|to| to.ordinal != from.ordinal) {
            if cuda.can_access(from, to)? {
                let (a, b): (Context<'_>, Context<'_>) = (cuda.context(from)?, cuda.context(to)?);
                let speed = kernels::between(&a, &b)?;
                slowest = Some(slowest.map_or(speed, |slowest| slowest.min(speed)));
            }
        }
        if let Some(value) = slowest {
            results[index].measurements.push(Measurement {
                what: "slowest link",
                value,
                threshold: MIN_PEER_BANDWIDTH,
                unit: ("GB/s", 1e9),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> GpuResult {
        let (uuid, name) = ("GPU-1".into(), "X".into());
        GpuResult { uuid, name, numbers: 3, wrong: None, duration: Duration::from_millis(2), measurements: Vec::new() }
    }

    #[test]
    fn a_wrong_number_fails_the_gpu_by_name() {
        let failed = GpuResult { wrong: Some((7, 2.0, 3.0)), ..result() };
        let reason = failed.failure().expect("a failure");
        assert!(reason.contains("GPU-1") && reason.contains("number 7 is 3, not 2"), "{reason}");
    }

    #[test]
    fn too_slow_says_measured_and_wanted() {
        let measurement = Measurement { what: "memory", value: 1e12, threshold: 2.5e12, unit: ("GB/s", 1e9) };
        let reason = GpuResult { measurements: vec![measurement], ..result() }.failure().expect("a failure");
        assert_eq!(reason, "GPU GPU-1 is too slow: memory 1000.0 GB/s (at least 2500.0)");
    }

    #[test]
    fn a_gpu_that_keeps_its_word_passes() {
        let measurement = Measurement { what: "memory", value: 3e12, threshold: 2.5e12, unit: ("GB/s", 1e9) };
        assert_eq!(GpuResult { measurements: vec![measurement], ..result() }.failure(), None);
    }
}
