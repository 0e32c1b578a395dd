//! Reads sensors and counters: one call per value, or one for many where NVML batches them.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, RetirementCause, TemperatureSensor,
};

use super::{optional, raw};
use crate::Result;
use crate::gpu::nvidia::{EccCounts, NvLinkErrors, Reading, Recovery, Retired, ThrottleReasons, Violations};

/// NVML field IDs.
mod field {
    pub(super) const MEMORY_TEMPERATURE: u32 = 82;
    pub(super) const REMAPPED_CORRECTABLE: u32 = 142;
    pub(super) const REMAPPED_UNCORRECTABLE: u32 = 143;
    pub(super) const REMAP_PENDING: u32 = 144;
    pub(super) const REMAP_FAILED: u32 = 145;
    pub(super) const NVLINK_TX: u32 = 138;
    pub(super) const NVLINK_RX: u32 = 139;
    pub(super) const NVLINK_CRC_FLIT: u32 = 38;
    pub(super) const NVLINK_CRC_DATA: u32 = 45;
    pub(super) const NVLINK_REPLAY: u32 = 52;
    pub(super) const NVLINK_RECOVERY: u32 = 59;
    pub(super) const RECOVERY: u32 = 230;
}

/// Scope of a link field: all links.
const ALL_LINKS: u32 = u32::MAX;

pub(super) fn read(device: &Device<'_>) -> Result<Reading> {
    let memory = optional("nvmlDeviceGetMemoryInfo", device.memory_info())?;
    let mig = device.mig_is_mig_device_handle().unwrap_or(false);
    let mut reading = Reading {
        memory_free: memory.as_ref().map(|memory| memory.free),
        memory_used: memory.as_ref().map(|memory| memory.used),
        memory_reserved: memory.as_ref().map(|memory| memory.reserved),
        ..Reading::default()
    };
    if mig {
        // The rest is only available for whole GPUs.
        return Ok(reading);
    }
    let busy = optional("nvmlDeviceGetUtilizationRates", device.utilization_rates())?;
    reading.utilisation = busy.as_ref().map(|busy| busy.gpu);
    reading.memory_utilisation = busy.as_ref().map(|busy| busy.memory);
    reading.sm_clock = optional("nvmlDeviceGetClockInfo", device.clock_info(Clock::SM))?;
    reading.memory_clock = optional("nvmlDeviceGetClockInfo", device.clock_info(Clock::Memory))?;
    reading.temperature = optional("nvmlDeviceGetTemperature", device.temperature(TemperatureSensor::Gpu))?;
    reading.power = optional("nvmlDeviceGetPowerUsage", device.power_usage())?;
    reading.energy = optional("nvmlDeviceGetTotalEnergyConsumption", device.total_energy_consumption())?;
    reading.pcie_replays = optional("nvmlDeviceGetPcieReplayCounter", device.pcie_replay_counter())?;
    reading.encoder =
        optional("nvmlDeviceGetEncoderUtilization", device.encoder_utilization())?.map(|part| part.utilization);
    reading.decoder =
        optional("nvmlDeviceGetDecoderUtilization", device.decoder_utilization())?.map(|part| part.utilization);
    reading.throttle = optional("nvmlDeviceGetCurrentClocksThrottleReasons", device.current_throttle_reasons())?
        .map(|reasons| ThrottleReasons(reasons.bits()));
    reading.processes = optional("nvmlDeviceGetComputeRunningProcesses", device.running_compute_processes_count())?;
    reading.ecc_volatile = ecc(device, EccCounter::Volatile)?;
    reading.ecc_aggregate = ecc(device, EccCounter::Aggregate)?;
    reading.violations = violations(device)?;
    reading.licensed = raw::licensed(device);
    fields(device, &mut reading);
    if reading.remapped_correctable.is_none() {
        // GPUs without row remapping retire pages instead.
        reading.retired = retired(device)?;
    }
    Ok(reading)
}

fn fields(device: &Device<'_>, reading: &mut Reading) {
    let request = [
        (field::MEMORY_TEMPERATURE, 0),
        (field::REMAPPED_CORRECTABLE, 0),
        (field::REMAPPED_UNCORRECTABLE, 0),
        (field::REMAP_PENDING, 0),
        (field::REMAP_FAILED, 0),
        (field::NVLINK_TX, ALL_LINKS),
        (field::NVLINK_RX, ALL_LINKS),
        (field::NVLINK_CRC_FLIT, 0),
        (field::NVLINK_CRC_DATA, 0),
        (field::NVLINK_REPLAY, 0),
        (field::NVLINK_RECOVERY, 0),
    ];
    let [temperature, correctable, uncorrectable, pending, failed, tx, rx, crc_flit, crc_data, replay, recovery] =
        raw::fields(device, request);
    // A GPU without a memory temperature sensor reports zero.
    reading.memory_temperature = temperature.filter(|&degrees| degrees > 0).and_then(|degrees| degrees.try_into().ok());
    reading.remapped_correctable = correctable;
    reading.remapped_uncorrectable = uncorrectable;
    reading.remap_pending = pending.map(|flag| flag != 0);
    reading.remap_failed = failed.map(|flag| flag != 0);
    reading.nvlink = tx.zip(rx).map(|(sent, received)| sent.saturating_add(received));
    reading.nvlink_errors = NvLinkErrors { crc_flit, crc_data, replay, recovery };
}

fn ecc(device: &Device<'_>, counter: EccCounter) -> Result<EccCounts> {
    let count = |kind| optional("nvmlDeviceGetTotalEccErrors", device.total_ecc_errors(kind, counter));
    Ok(EccCounts { single: count(MemoryError::Corrected)?, double: count(MemoryError::Uncorrected)? })
}

fn retired(device: &Device<'_>) -> Result<Retired> {
    let pages = |cause| optional("nvmlDeviceGetRetiredPages", device.retired_pages(cause));
    Ok(Retired {
        single: pages(RetirementCause::MultipleSingleBitEccErrors)?.map(|pages| pages.len() as u64),
        double: pages(RetirementCause::DoubleBitEccError)?.map(|pages| pages.len() as u64),
        pending: optional("nvmlDeviceGetRetiredPagesPendingStatus", device.are_pages_pending_retired())?,
    })
}

fn violations(device: &Device<'_>) -> Result<Violations> {
    let time = |policy| {
        optional("nvmlDeviceGetViolationStatus", device.violation_status(policy))
            .map(|status| status.map(|status| status.violation_time))
    };
    Ok(Violations {
        power: time(PerformancePolicy::Power)?,
        thermal: time(PerformancePolicy::Thermal)?,
        sync_boost: time(PerformancePolicy::SyncBoost)?,
        board_limit: time(PerformancePolicy::BoardLimit)?,
        low_utilisation: time(PerformancePolicy::LowUtilization)?,
        reliability: time(PerformancePolicy::Reliability)?,
    })
}

pub(super) fn recovery(device: &Device<'_>) -> Result<Recovery> {
    raw::field(device, field::RECOVERY).map(Recovery::from_number)
}
