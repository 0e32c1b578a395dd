//! MIG on fake GPUs: IDs and placements as documented by NVIDIA, and as recorded on H200s.

use proptest::prelude::*;

use crate::fake::{Fake, Model, Recording, node};
use crate::gpu::nvidia::mig::{GpuInstance, MigControl, Placement, Switch};
use crate::gpu::nvidia::{Hardware, MigMode};
use crate::{Error, Result};

fn gpu(model: Model) -> (Fake, String) {
    let recording = node(model, 1);
    let uuid = recording.inventory.gpus[0].uuid.clone();
    (Fake::new(recording), uuid)
}

fn mig_gpu(model: Model) -> (Fake, String) {
    let (fake, gpu) = gpu(model);
    assert_eq!(fake.set_mode(&gpu, Switch::On), Ok(MigMode::Enabled { pending_off: false }));
    (fake, gpu)
}

/// Profile id, name, how many, placements.
fn shown(model: Model) -> Vec<String> {
    let (fake, gpu) = gpu(model);
    let profiles = fake.profiles(&gpu).expect("profiles");
    let starts =
        |placements: &[Placement]| placements.iter().map(|at| at.start.to_string()).collect::<Vec<_>>().join(",");
    let line = |p: &crate::gpu::nvidia::mig::InstanceProfile| {
        format!("{} {} {} {{{}}}:{}", p.id, p.name, p.max_instances, starts(&p.placements), p.placements[0].size)
    };
    profiles.iter().map(line).collect()
}

#[test]
fn profiles_are_those_that_nvidia_documents() {
    let names = |model| {
        let lines: Vec<String> = shown(model);
        lines.iter().map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(Model::A100), "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb");
    assert_eq!(names(Model::A100x80), "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb");
    assert_eq!(names(Model::H100), "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb");
    assert_eq!(names(Model::B200), "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb");
    let h200 = [
        "19 1g.18gb 7 {0,1,2,3,4,5,6}:1",
        "20 1g.18gb+me 1 {0,1,2,3,4,5,6}:1",
        "15 1g.35gb 4 {0,2,4,6}:2",
        "14 2g.35gb 3 {0,2,4}:2",
        "9 3g.71gb 2 {0,4}:4",
        "5 4g.71gb 1 {0}:4",
        "0 7g.141gb 1 {0}:8",
    ];
    assert_eq!(shown(Model::H200), h200);
    assert_eq!(gpu(Model::L40s).0.profiles(&gpu(Model::L40s).1), Ok(Vec::new()));
}

#[test]
fn instances_get_the_places_and_numbers_that_a_driver_gives_them() {
    // Output of `nvidia-smi mig -cgi` in NVIDIA's MIG guide.
    let cases: [(&[u32], &[u32]); 4] = [
        (&[19, 19, 19, 19, 19, 19, 19], &[13, 11, 12, 7, 8, 9, 10]),
        (&[19, 14, 5], &[13, 5, 1]),
        (&[9, 9], &[2, 1]),
        (&[0], &[0]),
    ];
    for (profiles, wanted) in cases {
        let (fake, gpu) = mig_gpu(Model::A100);
        let made: Result<Vec<GpuInstance>> =
            profiles.iter().map(|&profile| fake.create_gpu_instance(&gpu, profile, None)).collect();
        let numbers: Vec<u32> = made.expect("room").iter().map(|instance| instance.id).collect();
        assert_eq!(numbers, wanted, "{profiles:?}");
    }
}

#[test]
fn recorded_instances_are_where_their_numbers_say() {
    let places = |recording: Recording| {
        let uuid = recording.inventory.gpus[0].uuid.clone();
        let found = Fake::new(recording).instances(&uuid).expect("instances");
        let place = |it: &GpuInstance| (it.id, it.profile, it.placement.start, it.compute.len());
        found.iter().map(place).collect::<Vec<_>>()
    };
    assert_eq!(places(Recording::h200_mig()), [(3, 14, 0, 1), (11, 19, 4, 1), (13, 19, 6, 1)]);
    assert_eq!(places(Recording::h200_mig_media()), [(1, 5, 0, 1), (5, 15, 4, 1), (13, 20, 6, 1)]);
    assert_eq!(places(Recording::h200_mig_shared()), [(2, 9, 4, 2)]);
}

#[test]
fn created_mig_devices_equal_recorded_ones() {
    /// A GPU instance: profile, start, size, slices of its compute instances.
    type Row = (u32, u32, u32, &'static [u32]);
    let cases: [(Recording, &[Row]); 3] = [
        (Recording::h200_mig(), &[(14, 0, 2, &[2]), (19, 4, 1, &[1]), (19, 6, 1, &[1])]),
        (Recording::h200_mig_media(), &[(5, 0, 4, &[4]), (15, 4, 2, &[1]), (20, 6, 1, &[1])]),
        (Recording::h200_mig_shared(), &[(9, 4, 4, &[1, 2])]),
    ];
    for (recorded, rows) in cases {
        let recording = Recording::h200();
        let gpu = recording.inventory.gpus[0].uuid.clone();
        let fake = Fake::new(recording);
        fake.set_mode(&gpu, Switch::On).expect("switched on");
        for &(profile, start, size, compute) in rows {
            let made = fake.create_gpu_instance(&gpu, profile, Some(Placement { start, size })).expect("room");
            for &slices in compute {
                fake.create_compute_instance(&gpu, made.id, slices).expect("room");
            }
        }
        let mut found = fake.inventory().expect("a GPU").gpus.remove(0).mig_devices;
        let recorded = &recorded.inventory.gpus[0].mig_devices;
        // UUIDs are the driver's own.
        found.iter_mut().zip(recorded).for_each(|(made, real)| made.uuid.clone_from(&real.uuid));
        assert_eq!(&found, recorded);
    }
}

#[test]
fn compute_instances_share_the_slices_of_a_gpu_instance() {
    let (fake, gpu) = mig_gpu(Model::H200);
    let gi = fake.create_gpu_instance(&gpu, 9, None).expect("room").id;
    assert!(matches!(fake.create_compute_instance(&gpu, gi, 4), Err(Error::Call { .. })), "a 3g has no 4c");
    let made = [1, 2].map(|slices| fake.create_compute_instance(&gpu, gi, slices).expect("room").id);
    assert_eq!(made, [0, 1]);
    assert!(fake.create_compute_instance(&gpu, gi, 1).is_err(), "all slices are taken");
    let names: Vec<String> =
        fake.inventory().expect("a GPU").gpus[0].mig_devices.iter().map(|it| it.profile.clone()).collect();
    assert_eq!(names, ["1c.3g.71gb", "2c.3g.71gb"]);
    assert!(matches!(fake.destroy_gpu_instance(&gpu, gi), Err(Error::InUse(_))), "its computing is there still");
    made.iter().for_each(|&ci| fake.destroy_compute_instance(&gpu, gi, ci).expect("gone"));
    fake.destroy_gpu_instance(&gpu, gi).expect("gone");
    assert_eq!(fake.set_mode(&gpu, Switch::Off), Ok(MigMode::Disabled { pending: false }));
}

#[test]
fn what_is_used_is_not_changed() {
    let (fake, gpu) = mig_gpu(Model::H100);
    let gi = fake.create_gpu_instance(&gpu, 0, None).expect("room").id;
    fake.create_compute_instance(&gpu, gi, 7).expect("room");
    let part = fake.inventory().expect("a GPU").gpus[0].mig_devices[0].uuid.clone();
    fake.set_processes(&part, vec![(1, 1)]);
    assert!(matches!(fake.destroy_compute_instance(&gpu, gi, 0), Err(Error::InUse(_))));
    assert!(matches!(fake.reset(&gpu), Err(Error::InUse(_))));
    assert!(matches!(fake.set_mode(&gpu, Switch::Off), Err(Error::InUse(_))));
    fake.set_processes(&part, Vec::new());
    fake.reset(&gpu).expect("reset");
    assert_eq!(fake.instances(&gpu), Ok(Vec::new()));
}

#[test]
fn a_used_ampere_waits_for_its_reset() {
    let (fake, gpu) = gpu(Model::A100);
    fake.set_processes(&gpu, vec![(1, 1)]);
    assert_eq!(fake.set_mode(&gpu, Switch::On), Ok(MigMode::Disabled { pending: true }));
    fake.set_processes(&gpu, Vec::new());
    assert_eq!(fake.create_gpu_instance(&gpu, 19, None), Err(Error::NotSupported));
    fake.reset(&gpu).expect("reset");
    assert_eq!(fake.mode(&gpu), Ok(MigMode::Enabled { pending_off: false }));
}

#[test]
fn a_gpu_without_mig_and_a_lost_one_say_so() {
    let (fake, gpu) = gpu(Model::L40s);
    assert_eq!(fake.set_mode(&gpu, Switch::On), Err(Error::NotSupported));
    fake.lose(&gpu);
    assert_eq!(fake.mode(&gpu), Err(Error::Lost));
    assert_eq!(fake.mode("GPU-none"), Err(Error::NotFound("GPU-none".into())));
}

/// An operation: create an instance of a profile, at a placement or anywhere, or destroy one.
fn operations() -> impl Strategy<Value = Vec<(u32, Option<u32>, bool)>> {
    let profile = prop::sample::select(vec![19, 20, 15, 14, 9, 5, 0]);
    prop::collection::vec((profile, prop::option::of(0u32..8), prop::bool::weighted(0.3)), 0..24)
}

proptest! {
    #[test]
    fn placements_never_overlap(model in prop::sample::select(Model::ALL[..6].to_vec()), operations in operations()) {
        let (fake, gpu) = mig_gpu(model);
        let profiles = fake.profiles(&gpu).expect("profiles");
        for (profile, start, end) in operations {
            let there = fake.instances(&gpu).expect("instances");
            if let (true, Some(first)) = (end, there.first()) {
                fake.destroy_gpu_instance(&gpu, first.id).expect("nothing is in it");
                continue;
            }
            let known = profiles.iter().find(|it| it.id == profile).expect("a profile");
            let at = start.map(|start| Placement { start, size: known.placements[0].size });
            let made = fake.create_gpu_instance(&gpu, profile, at);
            let free = |place: &Placement| there.iter().all(|it| !it.placement.overlaps(*place));
            let like = there.iter().filter(|it| it.profile == profile).count();
            let mut wanted = known.placements.iter().filter(|place| at.is_none_or(|at| at == **place));
            let possible = like < known.max_instances as usize && wanted.any(free);
            prop_assert_eq!(made.is_ok(), possible, "{:?} at {:?} beside {:?}", profile, at, there);
        }
        let there = fake.instances(&gpu).expect("instances");
        for (place, a) in there.iter().enumerate() {
            prop_assert!(a.placement.slices().end <= 8);
            for b in &there[place + 1..] {
                prop_assert!(!a.placement.overlaps(b.placement) && a.id != b.id);
            }
        }
    }
}
