//! All supported metrics, one row each. Names are an API for dashboards and alerts.

use super::sample::Sample;

/// Metric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A gauge.
    Gauge,
    /// A counter.
    Counter,
    /// Not a metric: a label on all metrics.
    Label,
}

impl Kind {
    /// Parses the type in a counters file. Histograms and summaries of single values are gauges.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "gauge" | "histogram" | "summary" => Some(Self::Gauge),
            "counter" => Some(Self::Counter),
            "label" => Some(Self::Label),
            _ => None,
        }
    }

    /// Name on a `# TYPE` line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Label => "label",
        }
    }
}

/// A metric value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Printed as an integer.
    Integer(u64),
    /// Printed with six decimals.
    Decimal(f64),
    /// Text, for labels.
    Text(String),
}

/// One metric.
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Default type.
    pub kind: Kind,
    /// Exported by default, without a counters file.
    pub default: bool,
    /// Help text.
    pub help: &'static str,
    /// Reads the value; `None` where a GPU has none: the metric is omitted.
    pub value: fn(&Sample<'_>) -> Option<Value>,
}

fn whole(number: Option<impl Into<u64>>) -> Option<Value> {
    number.map(|number| Value::Integer(number.into()))
}

fn flag(set: Option<bool>) -> Option<Value> {
    set.map(|set| Value::Integer(set.into()))
}

fn decimal(number: Option<f64>) -> Option<Value> {
    number.map(Value::Decimal)
}

fn mib(bytes: Option<u64>) -> Option<Value> {
    bytes.map(|bytes| Value::Integer(bytes >> 20))
}

fn text(text: Option<&String>) -> Option<Value> {
    text.cloned().map(Value::Text)
}

macro_rules! field {
    ($default:expr, $kind:ident, $name:literal, $help:literal, |$sample:ident| $value:expr) => {
        Field { name: $name, kind: Kind::$kind, default: $default, help: $help, value: |$sample| $value }
    };
}

/// All metrics, in output order.
pub const FIELDS: &[Field] = &[
    field!(true, Gauge, "DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors in MHz", |s| whole(s.reading.sm_clock)),
    field!(true, Gauge, "DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory in MHz", |s| whole(s.reading.memory_clock)),
    field!(true, Gauge, "DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory in degrees Celsius", |s| whole(
        s.reading.memory_temperature
    )),
    field!(true, Gauge, "DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU in degrees Celsius", |s| whole(
        s.reading.temperature
    )),
    field!(true, Gauge, "DCGM_FI_DEV_POWER_USAGE", "Power in watts", |s| decimal(
        s.reading.power.map(|milliwatts| f64::from(milliwatts) / 1000.0)
    )),
    field!(
        true,
        Counter,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy since the driver was loaded, in millijoules",
        |s| whole(s.reading.energy)
    ),
    field!(true, Counter, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe packets that were sent again", |s| whole(
        s.reading.pcie_replays
    )),
    field!(true, Gauge, "DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran, in percent", |s| whole(
        s.reading.utilisation
    )),
    field!(
        true,
        Gauge,
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "Share of time in which memory was in use, in percent",
        |s| whole(s.reading.memory_utilisation)
    ),
    field!(true, Gauge, "DCGM_FI_DEV_ENC_UTIL", "Encoder in use, in percent", |s| whole(s.reading.encoder)),
    field!(true, Gauge, "DCGM_FI_DEV_DEC_UTIL", "Decoder in use, in percent", |s| whole(s.reading.decoder)),
    field!(true, Gauge, "DCGM_FI_DEV_XID_ERRORS", "The last XID error", |s| Some(Value::Integer(s.xid))),
    field!(true, Gauge, "DCGM_FI_DEV_FB_FREE", "Free memory in MiB", |s| mib(s.reading.memory_free)),
    field!(true, Gauge, "DCGM_FI_DEV_FB_USED", "Used memory in MiB", |s| mib(s.reading.memory_used)),
    field!(true, Gauge, "DCGM_FI_DEV_FB_RESERVED", "Memory that the driver keeps, in MiB", |s| mib(s
        .reading
        .memory_reserved)),
    field!(true, Counter, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Data over all NVLinks, in KiB", |s| whole(
        s.reading.nvlink
    )),
    field!(true, Gauge, "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "Whether a vGPU licence is held", |s| flag(
        s.reading.licensed
    )),
    field!(
        true,
        Counter,
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Memory rows replaced after errors that were not corrected",
        |s| whole(s.reading.remapped_uncorrectable)
    ),
    field!(
        true,
        Counter,
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Memory rows replaced after errors that were corrected",
        |s| whole(s.reading.remapped_correctable)
    ),
    field!(true, Gauge, "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether a memory row could not be replaced", |s| flag(
        s.reading.remap_failed
    )),
    field!(true, Label, "DCGM_FI_DRIVER_VERSION", "Version of the driver", |s| Some(Value::Text(s.driver.to_owned()))),
    field!(true, Gauge, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Share of time in which the engine was active", |s| decimal(
        s.profiling?.graphics
    )),
    field!(
        true,
        Gauge,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Share of cycles in which the tensor pipe was active",
        |s| decimal(s.profiling?.tensor)
    ),
    field!(true, Gauge, "DCGM_FI_PROF_DRAM_ACTIVE", "Share of cycles in which memory sent or received", |s| decimal(
        s.profiling?.dram
    )),
    field!(true, Gauge, "DCGM_FI_PROF_PCIE_TX_BYTES", "Sent over PCIe, in bytes per second", |s| rate(
        s.profiling?.pcie_tx
    )),
    field!(true, Gauge, "DCGM_FI_PROF_PCIE_RX_BYTES", "Received over PCIe, in bytes per second", |s| rate(
        s.profiling?.pcie_rx
    )),
    field!(false, Gauge, "DCGM_FI_PROF_SM_ACTIVE", "Share of time in which multiprocessors had work", |s| decimal(
        s.profiling?.sm_active
    )),
    field!(false, Gauge, "DCGM_FI_PROF_SM_OCCUPANCY", "Share of resident warps", |s| decimal(
        s.profiling?.sm_occupancy
    )),
    field!(false, Gauge, "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "Share of cycles of the FP64 pipe", |s| decimal(
        s.profiling?.fp64
    )),
    field!(false, Gauge, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "Share of cycles of the FP32 pipe", |s| decimal(
        s.profiling?.fp32
    )),
    field!(false, Gauge, "DCGM_FI_PROF_PIPE_FP16_ACTIVE", "Share of cycles of the FP16 pipe", |s| decimal(
        s.profiling?.fp16
    )),
    field!(false, Gauge, "DCGM_FI_PROF_NVLINK_TX_BYTES", "Sent over NVLink, in bytes per second", |s| rate(
        s.profiling?.nvlink_tx
    )),
    field!(false, Gauge, "DCGM_FI_PROF_NVLINK_RX_BYTES", "Received over NVLink, in bytes per second", |s| rate(
        s.profiling?.nvlink_rx
    )),
    field!(false, Counter, "DCGM_FI_DEV_POWER_VIOLATION", "Clocks held down by the power limit, in ns", |s| whole(
        s.reading.violations.power
    )),
    field!(false, Counter, "DCGM_FI_DEV_THERMAL_VIOLATION", "Clocks held down by temperature, in ns", |s| whole(
        s.reading.violations.thermal
    )),
    field!(false, Counter, "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "Clocks held down by other GPUs, in ns", |s| whole(
        s.reading.violations.sync_boost
    )),
    field!(false, Counter, "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "Clocks held down by the board, in ns", |s| whole(
        s.reading.violations.board_limit
    )),
    field!(false, Counter, "DCGM_FI_DEV_LOW_UTIL_VIOLATION", "Clocks held down for lack of work, in ns", |s| whole(
        s.reading.violations.low_utilisation
    )),
    field!(false, Counter, "DCGM_FI_DEV_RELIABILITY_VIOLATION", "Clocks held down for the chip's sake, in ns", |s| {
        whole(s.reading.violations.reliability)
    }),
    field!(false, Gauge, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "Why clocks are not higher, as bits", |s| whole(
        s.reading.throttle.map(|reasons| reasons.0)
    )),
    field!(
        false,
        Counter,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Corrected memory errors since the driver was loaded",
        |s| { whole(s.reading.ecc_volatile.single) }
    ),
    field!(false, Counter, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Other memory errors since the driver was loaded", |s| {
        whole(s.reading.ecc_volatile.double)
    }),
    field!(false, Counter, "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Corrected memory errors of the GPU's life", |s| whole(
        s.reading.ecc_aggregate.single
    )),
    field!(false, Counter, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Other memory errors of the GPU's life", |s| whole(
        s.reading.ecc_aggregate.double
    )),
    field!(false, Counter, "DCGM_FI_DEV_RETIRED_SBE", "Pages retired after corrected errors", |s| whole(
        s.reading.retired.single
    )),
    field!(false, Counter, "DCGM_FI_DEV_RETIRED_DBE", "Pages retired after other errors", |s| whole(
        s.reading.retired.double
    )),
    field!(false, Counter, "DCGM_FI_DEV_RETIRED_PENDING", "Whether pages wait to be retired", |s| flag(
        s.reading.retired.pending
    )),
    field!(
        false,
        Counter,
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "Checksum errors of NVLink control packets",
        |s| whole(s.reading.nvlink_errors.crc_flit)
    ),
    field!(false, Counter, "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Checksum errors of NVLink data", |s| {
        whole(s.reading.nvlink_errors.crc_data)
    }),
    field!(false, Counter, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVLink packets sent again", |s| whole(
        s.reading.nvlink_errors.replay
    )),
    field!(false, Counter, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NVLinks that came back", |s| whole(
        s.reading.nvlink_errors.recovery
    )),
    field!(false, Label, "DCGM_FI_NVML_VERSION", "Version of NVML", |s| Some(Value::Text(s.nvml.to_owned()))),
    field!(false, Label, "DCGM_FI_DEV_BRAND", "Product line", |s| text(s.gpu.brand.as_ref())),
    field!(false, Label, "DCGM_FI_DEV_SERIAL", "Serial number", |s| text(s.gpu.serial.as_ref())),
    field!(false, Label, "DCGM_FI_DEV_VBIOS_VERSION", "Version of the video BIOS", |s| text(s.gpu.vbios.as_ref())),
    field!(false, Label, "DCGM_FI_DEV_INFOROM_IMAGE_VER", "Version of the inforom", |s| text(s.gpu.inforom.as_ref())),
    field!(false, Label, "DCGM_FI_DEV_OEM_INFOROM_VER", "Version of the inforom's OEM part", |s| text(
        s.gpu.inforom_parts[0].as_ref()
    )),
    field!(false, Label, "DCGM_FI_DEV_ECC_INFOROM_VER", "Version of the inforom's ECC part", |s| text(
        s.gpu.inforom_parts[1].as_ref()
    )),
    field!(false, Label, "DCGM_FI_DEV_POWER_INFOROM_VER", "Version of the inforom's power part", |s| text(
        s.gpu.inforom_parts[2].as_ref()
    )),
];

/// Rates are printed as integers, as in DCGM.
fn rate(number: Option<f64>) -> Option<Value> {
    number.map(|number| Value::Integer(number.max(0.0) as u64))
}

/// Metrics that the exporter computes itself.
pub const COMPUTED: &[(&str, &str)] = &[
    ("DCGM_EXP_XID_ERRORS_COUNT", "XID errors in the time window, by number"),
    ("DCGM_EXP_CLOCK_EVENTS_COUNT", "Samples in the time window in which something held the clocks down"),
];

/// Metrics that need DCGM, with the reason.
pub const ABSENT: &[(&str, &str)] = &[
    ("DCGM_EXP_GPU_HEALTH_STATUS", "the health engine of DCGM makes it; the device plugin tells health from faults"),
    ("DCGM_EXP_P2P_STATUS", "the validator measures links between GPUs instead of asking whether there are any"),
];

/// A metric by name.
pub fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}
