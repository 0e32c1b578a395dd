//! Proofs that GPUs compute: a kernel whose result is known, the speed of the memory, a short burn, NVLinks.
//!
//! Each has a threshold and a verdict that names the measured value, the threshold and what it is a share of.

mod kernels;

use std::fmt;
use std::time::{Duration, Instant};

use capstan_hw::gpu::nvidia::cuda::{Context, Cuda, Device};
use capstan_hw::gpu::nvidia::driver::Roots;

use super::Options;
use crate::{Error, Result};

/// How much is proven.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// Compare the memory's speed.
    pub bandwidth: Option<f64>,
    /// Burn for so long, and compare what was computed.
    pub burn: Option<(Duration, f64)>,
}

impl Level {
    /// What the options ask for.
    pub fn of(options: &Options) -> Self {
        let share = |percent: u8| f64::from(percent) / 100.0;
        Self {
            bandwidth: (options.cuda_level >= 2).then(|| share(options.min_bandwidth_percent)),
            burn: (options.cuda_level >= 3)
                .then(|| (Duration::from_secs(options.burn_seconds.max(1)), share(options.min_compute_percent))),
        }
    }
}

/// What was measured, against what it had to reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What.
    pub what: &'static str,
    /// Measured, in units per second.
    pub value: f64,
    /// The least that passes.
    pub least: f64,
    /// The unit, and how many base units it is.
    pub unit: (&'static str, f64),
}

impl Verdict {
    /// Whether it is enough.
    pub fn passed(&self) -> bool {
        self.value >= self.least
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = self.unit;
        write!(f, "{} {:.1} {unit} (at least {:.1})", self.what, self.value / scale, self.least / scale)
    }
}

/// What one GPU proved.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The GPU.
    pub uuid: String,
    /// Its product name.
    pub name: String,
    /// How many numbers a kernel computed, all compared.
    pub numbers: usize,
    /// The first one that was wrong: place, wanted, got.
    pub wrong: Option<(usize, f32, f32)>,
    /// From the first call to the compared result.
    pub took: Duration,
    /// What was measured beyond that.
    pub verdicts: Vec<Verdict>,
}

impl Proof {
    /// What is wrong with this GPU, if anything.
    pub fn failure(&self) -> Option<String> {
        if let Some((place, wanted, got)) = self.wrong {
            return Some(format!(
                "GPU {} computes wrongly: number {place} is {got}, not {wanted}; do not use it",
                self.uuid
            ));
        }
        let slow: Vec<String> =
            self.verdicts.iter().filter(|verdict| !verdict.passed()).map(Verdict::to_string).collect();
        (!slow.is_empty()).then(|| format!("GPU {} is too slow: {}", self.uuid, slow.join(", ")))
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} numbers added and compared in {:.1} ms", self.numbers, self.took.as_secs_f64() * 1e3)?;
        self.verdicts.iter().try_for_each(|verdict| write!(f, ", {verdict}"))
    }
}

/// Lets every GPU that this process sees prove itself.
pub fn prove(roots: &Roots, level: &Level) -> Result<Vec<Proof>> {
    let cuda = Cuda::open(roots)?;
    let devices = cuda.devices()?;
    if devices.is_empty() {
        return Err(Error::Check("CUDA sees no GPU in this container".into()));
    }
    let mut proofs = devices.iter().map(|device| one(&cuda, device, level)).collect::<Result<Vec<_>>>()?;
    if level.burn.is_some() {
        links(&cuda, &devices, &mut proofs)?;
    }
    Ok(proofs)
}

fn one(cuda: &Cuda, device: &Device, level: &Level) -> Result<Proof> {
    let started = Instant::now();
    let context = cuda.context(device)?;
    let wrong = kernels::vector_add(&context)?;
    let took = started.elapsed();
    let mut verdicts = Vec::new();
    if let Some(share) = level.bandwidth {
        let value = kernels::bandwidth(&context, device)?;
        verdicts.push(Verdict { what: "memory", value, least: device.peak_bandwidth() * share, unit: ("GB/s", 1e9) });
    }
    if let Some((time, share)) = level.burn {
        let (value, same) = kernels::burn(&context, device, time)?;
        let least = if same { device.peak_flops() * share } else { f64::INFINITY };
        verdicts.push(Verdict {
            what: if same { "burn" } else { "burn with results that differ," },
            value,
            least,
            unit: ("TFLOP/s", 1e12),
        });
    }
    let (uuid, name) = (device.uuid.clone(), device.name.clone());
    Ok(Proof { uuid, name, numbers: kernels::NUMBERS, wrong, took, verdicts })
}

/// Copies between every pair of GPUs that can reach each other, and notes the slowest way of each.
fn links(cuda: &Cuda, devices: &[Device], proofs: &mut [Proof]) -> Result<()> {
    // Less than any NVLink, more than a broken PCIe link: a pair below this is worth a look.
    const LEAST: f64 = 10e9;
    for (place, from) in devices.iter().enumerate() {
        let mut slowest: Option<f64> = None;
        for to in devices.iter().filter(|to| to.ordinal != from.ordinal) {
            if cuda.can_access(from, to)? {
                let (a, b): (Context<'_>, Context<'_>) = (cuda.context(from)?, cuda.context(to)?);
                let speed = kernels::between(&a, &b)?;
                slowest = Some(slowest.map_or(speed, |least| least.min(speed)));
            }
        }
        if let Some(value) = slowest {
            proofs[place].verdicts.push(Verdict { what: "slowest link", value, least: LEAST, unit: ("GB/s", 1e9) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> Proof {
        let (uuid, name) = ("GPU-1".into(), "X".into());
        Proof { uuid, name, numbers: 3, wrong: None, took: Duration::from_millis(2), verdicts: Vec::new() }
    }

    #[test]
    fn a_wrong_number_fails_the_gpu_by_name() {
        let failed = Proof { wrong: Some((7, 2.0, 3.0)), ..proof() };
        let reason = failed.failure().expect("a failure");
        assert!(reason.contains("GPU-1") && reason.contains("number 7 is 3, not 2"), "{reason}");
    }

    #[test]
    fn too_slow_says_measured_and_wanted() {
        let verdict = Verdict { what: "memory", value: 1e12, least: 2.5e12, unit: ("GB/s", 1e9) };
        let reason = Proof { verdicts: vec![verdict], ..proof() }.failure().expect("a failure");
        assert_eq!(reason, "GPU GPU-1 is too slow: memory 1000.0 GB/s (at least 2500.0)");
    }

    #[test]
    fn a_gpu_that_keeps_its_word_passes() {
        let verdict = Verdict { what: "memory", value: 3e12, least: 2.5e12, unit: ("GB/s", 1e9) };
        assert_eq!(Proof { verdicts: vec![verdict], ..proof() }.failure(), None);
    }
}
