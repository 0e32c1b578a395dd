//! Device health.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use capstan_hw::Error;
use capstan_hw::gpu::nvidia::{Event, EventKind, Recovery};

use super::*;
use crate::device_plugin::health::{
    Cause, GpuHealth, UnhealthyDevice, UnhealthyDevices, Xids, affected, cause_of, update_unhealthy,
};

fn event(gpu: Option<&str>, instance: Option<(u32, u32)>, kind: EventKind) -> Event {
    Event { gpu: gpu.map(str::to_owned), instance, kind }
}

/// Whether these XIDs mark a device unhealthy: application error, ECC error, bus error.
fn marked(disable: &str, enable: &str) -> [bool; 3] {
    let xids = Xids::parse(disable, enable).0;
    [13, 48, 79].map(|xid| cause_of(&event(Some("GPU-1"), None, EventKind::Xid(xid)), &xids).is_some())
}

#[test]
fn variables_say_which_xids_count() {
    let cases = [
        ("", "", [false, true, true]),
        ("all", "", [false, false, false]),
        ("XIDS", "", [false, false, false]),
        ("48", "", [false, false, true]),
        ("48, 79", "79", [false, false, true]),
        ("", "13", [true, true, true]),
        ("", "all", [true, true, true]),
        ("all", "all", [true, true, true]),
        ("all", "48", [false, true, false]),
        ("48,,x,-1", "", [false, false, true]),
    ];
    for (disable, enable, wanted) in cases {
        assert_eq!(marked(disable, enable), wanted, "{disable:?} {enable:?}");
    }
    assert_eq!(Xids::parse("48,x", "y").1, ["x", "y"]);
}

#[test]
fn an_event_concerns_all_that_it_may_have_hurt() {
    let cut = gpus(2).with_mig(0, &["1g.18gb", "1g.18gb"]);
    let resources = advertised(&cut.inventory, "flags: {migStrategy: mixed}").expect("resources").resources;
    let parts = &cut.inventory.gpus[0].mig_devices;
    let (a, b) = (uuid(0), uuid(1));
    let hurt = |gpu: Option<&str>, instance| affected(&event(gpu, instance, EventKind::Xid(48)), &resources).len();
    assert_eq!(hurt(Some(&a), None), 2);
    assert_eq!(hurt(Some(&a), Some((parts[1].gi, parts[1].ci))), 1);
    assert_eq!(hurt(Some(&a), Some((99, 0))), 0);
    assert_eq!(hurt(Some(&b), None), 1);
    assert_eq!(hurt(Some(&b), Some((0, 0))), 1, "a whole GPU has no parts");
    assert_eq!(hurt(None, None), 3);
    assert_eq!(hurt(Some("GPU-other"), None), 0);
}

#[test]
fn memory_errors_alone_say_nothing() {
    let xids = Xids::parse("", "").0;
    for kind in [EventKind::SingleBitEcc, EventKind::DoubleBitEcc] {
        assert_eq!(cause_of(&event(Some("GPU-1"), None, kind), &xids), None);
    }
    assert_eq!(cause_of(&event(None, None, EventKind::Xid(48)), &xids), Some(Cause::Unnamed));
    assert_eq!(cause_of(&event(Some("GPU-1"), None, EventKind::Xid(95)), &xids), Some(Cause::Xid(95)));
}

/// The cause of a GPU marked so many seconds ago, after it was queried again.
fn cause_after(before: Option<(Cause, u64)>, recovery: Result<Recovery, Error>, remap_failed: bool) -> Option<Cause> {
    let resources = advertised(&gpus(1).inventory, "").expect("resources").resources;
    let now = Instant::now() + Duration::from_secs(1000);
    let unhealthy =
        before.map(|(cause, ago)| (uuid(0), UnhealthyDevice { cause, since: now - Duration::from_secs(ago) }));
    let gpu_health = BTreeMap::from([(uuid(0), GpuHealth { remap_failed, recovery })]);
    let unhealthy: UnhealthyDevices = unhealthy.into_iter().collect();
    update_unhealthy(&unhealthy, &resources, &gpu_health, now, Duration::from_secs(30))
        .remove(&uuid(0))
        .map(|unhealthy| unhealthy.cause)
}

#[test]
fn a_gpu_is_well_again_when_it_says_so_for_long_enough() {
    let xid = |ago| Some((Cause::Xid(48), ago));
    let cases = [
        ((None, Ok(Recovery::None), false), None),
        ((xid(60), Ok(Recovery::None), false), None),
        ((xid(10), Ok(Recovery::None), false), Some(Cause::Xid(48))),
        ((xid(60), Ok(Recovery::Reset), false), Some(Cause::Xid(48))),
        ((xid(60), Err(Error::Lost), false), Some(Cause::Xid(48))),
        ((xid(60), Ok(Recovery::DrainP2p), false), Some(Cause::Xid(48))),
        ((xid(60), Ok(Recovery::None), true), Some(Cause::Xid(48))),
        ((None, Ok(Recovery::Reboot), false), Some(Cause::Recovery(Recovery::Reboot))),
        ((None, Ok(Recovery::None), true), Some(Cause::Remap)),
        ((None, Err(Error::Lost), false), Some(Cause::Lost)),
        ((None, Err(Error::NotSupported), false), None),
        ((xid(60), Err(Error::NotSupported), false), None),
        ((Some((Cause::Mps("down".into()), 60)), Ok(Recovery::None), false), Some(Cause::Mps("down".into()))),
    ];
    for ((before, recovery, remap), wanted) in cases {
        let case = format!("{before:?} {recovery:?} {remap}");
        assert_eq!(cause_after(before, recovery, remap), wanted, "{case}");
    }
}
