//! The exporter's output, on fake GPUs.

use std::collections::BTreeMap;

use capstan_hw::Error as HwError;
use capstan_hw::fake::{Fake, Recording};
use capstan_hw::gpu::nvidia::{Event, EventKind};
use clap::Parser;

use super::sample::Snapshot;
use super::{Cluster, Exporter, Options, edge};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn exporter(arguments: &[&str]) -> Exporter {
    let arguments = ["exporter", "--node-name=n"].iter().chain(arguments);
    let options = Cli::try_parse_from(arguments).expect("arguments").options;
    Exporter::new(options, Cluster::default()).expect("an exporter")
}

fn scrape() -> crate::Result<Snapshot> {
    Snapshot::collect(&Fake::new(Recording::h200()))
}

#[test]
fn before_the_first_look_it_is_not_well_and_says_nothing() {
    let exporter = exporter(&[]);
    assert!(exporter.unhealthy_reason().is_some());
    assert_eq!(exporter.text(&BTreeMap::new()), "");
    exporter.record(scrape());
    assert_eq!(exporter.unhealthy_reason(), None);
}

#[test]
fn a_gpu_that_stays_away_ends_its_metrics_with_a_reason() {
    let exporter = exporter(&[]);
    exporter.record(scrape());
    for _ in 0..2 {
        exporter.record(Err(HwError::Lost.into()));
        assert!(exporter.unhealthy_reason().is_none(), "one failed collection is tolerated");
    }
    exporter.record(Err(HwError::Lost.into()));
    assert!(exporter.unhealthy_reason().expect("a reason").contains("lost"));
    assert_eq!(exporter.text(&BTreeMap::new()), "");
}

#[test]
fn the_last_fault_of_a_gpu_is_told_with_its_meaning() {
    let exporter = exporter(&[]);
    exporter.record(scrape());
    let gpu = Some(Recording::h200().inventory.gpus[0].uuid.clone());
    exporter.record_event(&Event { gpu, instance: None, kind: EventKind::Xid(79) });
    let text = exporter.text(&BTreeMap::new());
    assert!(text.contains("err_code=\"79\",err_msg=\"GPU has fallen off the bus\"} 79"), "{text}");
}

#[test]
fn faults_and_clock_events_are_counted_when_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("counters.csv");
    std::fs::write(&file, "DCGM_EXP_XID_ERRORS_COUNT, gauge, x\nDCGM_EXP_CLOCK_EVENTS_COUNT, gauge, y\n")
        .expect("a file");
    let exporter = exporter(&[&format!("--collectors={}", file.display())]);
    exporter.record(scrape());
    assert!(exporter.text(&BTreeMap::new()).contains("window_size_in_ms=\"300000\",xid=\"0\"} 0"));
    let gpu = Some(Recording::h200().inventory.gpus[0].uuid.clone());
    for _ in 0..2 {
        exporter.record_event(&Event { gpu: gpu.clone(), instance: None, kind: EventKind::Xid(48) });
    }
    let text = exporter.text(&BTreeMap::new());
    assert!(text.contains("window_size_in_ms=\"300000\",xid=\"48\"} 2"), "{text}");
    assert!(text.contains("clock_event=\"gpu_idle\",window_size_in_ms=\"300000\"} 1"), "{text}");
}

#[test]
fn a_wrong_counters_file_leaves_the_metrics_of_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("counters.csv");
    std::fs::write(&file, "DCGM_FI_DEV_GPU_TEMP, gauge, x\n").expect("a file");
    let exporter = exporter(&[&format!("--collectors={}", file.display())]);
    exporter.record(scrape());
    std::fs::write(&file, "nonsense\n").expect("a file");
    assert!(exporter.reload().is_err());
    assert!(exporter.text(&BTreeMap::new()).contains("DCGM_FI_DEV_GPU_TEMP"));
    std::fs::write(&file, "DCGM_FI_DEV_SM_CLOCK, gauge, x\n").expect("a file");
    exporter.reload().expect("right again");
    assert!(!exporter.text(&BTreeMap::new()).contains("DCGM_FI_DEV_GPU_TEMP"));
}

#[test]
fn a_host_name_can_be_left_out() {
    let with = exporter(&[]);
    with.record(scrape());
    assert!(with.text(&BTreeMap::new()).contains("Hostname=\"n\""));
    let without = exporter(&["--no-hostname"]);
    without.record(scrape());
    assert!(!without.text(&BTreeMap::new()).contains("Hostname"));
}

#[test]
fn jobs_are_read_from_files_named_after_devices() {
    let inventory = Recording::h200_mig().inventory;
    let part = &inventory.gpus[0].mig_devices[0];
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("0"), "job1\njob2\n\n").expect("a file");
    std::fs::write(dir.path().join(format!("0.{}", part.gi)), "job3").expect("a file");
    std::fs::write(dir.path().join("other"), "x").expect("a file");
    let found: Vec<(String, usize)> =
        edge::jobs(dir.path(), &inventory).into_iter().map(|(uuid, jobs)| (uuid, jobs.len())).collect();
    assert_eq!(found, [(inventory.gpus[0].uuid.clone(), 2), (part.uuid.clone(), 1)]);
}

#[test]
fn devices_of_claims_are_known_by_pool_and_name() {
    let slice = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "s"},
        "spec": {"driver": "gpu.nvidia.com", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [
            {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}},
            {"name": "gpu-1", "attributes": {"type": {"string": "gpu"}}},
        ]},
    }))
    .expect("a slice");
    assert_eq!(edge::devices(&slice), [(("n".into(), "gpu-0".into()), "GPU-1".into())]);
}
