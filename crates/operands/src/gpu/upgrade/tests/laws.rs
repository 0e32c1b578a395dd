//! What holds whatever happens: the budget, an end, and no node left out of use without a reason.

use proptest::prelude::*;

use super::fleet::{Fate, World, under_way};
use super::*;

/// More rounds than any fleet of the test needs.
const ROUNDS: usize = 5000;

fn fate() -> impl Strategy<Value = Fate> {
    let controller = prop_oneof![4 => Just(PodController::Controller), 1 => Just(PodController::None), 1 => Just(PodController::DaemonSet)];
    let refusals = prop_oneof![3 => 0..3u32, 1 => Just(u32::MAX)];
    let trouble = || prop_oneof![4 => Just(0u32), 1 => 1..6u32];
    let away = prop_oneof![3 => Just(0..0u32), 1 => (1..40u32, 1..200u32).prop_map(|(from, long)| from..from + long)];
    let uncordoned = prop::option::weighted(0.2, 1..60u32);
    let pods = prop::collection::vec((refusals, controller), 0..3);
    (trouble(), trouble(), any::<u8>(), pods, away, uncordoned).prop_map(
        |(crashes, invalid, cordoned, pods, away, uncordoned)| Fate {
            crashes,
            invalid,
            cordoned: cordoned < 40,
            pods,
            away,
            uncordoned,
        },
    )
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![(1..5usize).prop_map(Amount::Count), (1..100usize).prop_map(Amount::Percent)]
}

fn settings() -> impl Strategy<Value = Settings> {
    let canary = prop::option::of((amount(), 0..2000i64).prop_map(|(size, soak)| Canary { size, soak }));
    let limits = (0..4usize, amount(), canary, prop::option::of(amount()));
    (limits, any::<[bool; 4]>(), 0..4u32).prop_map(|((max_parallel, most, canary, max_failures), flags, retries)| {
        let [force, drain, rollback, empty_dir] = flags;
        let eviction = Eviction { force, delete_empty_dir: empty_dir, timeout: Some(300) };
        let text = drain_selector(None);
        let drain = drain.then(|| Drain { eviction, selector: Selector::parse(&text).ok(), text: text.clone() });
        Settings {
            max_parallel,
            max_unavailable: Some(most),
            pod_deletion: Some(eviction),
            drain,
            canary,
            max_failures,
            rollback,
            retries,
            ..Settings::of(None, None)
        }
    })
}

/// After how many writes the operator dies in a round, and whether it then does the same again.
fn deaths() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let lives = prop_oneof![2 => Just(usize::MAX), 1 => 0..6usize];
    prop::collection::vec((lives, any::<bool>()), 0..60)
}

/// Nothing that we begin may exceed the budget.
fn within_budget(settings: &Settings, before: &[Machine], after: &[Machine]) -> Result<(), TestCaseError> {
    let begun = before.iter().zip(after).filter(|(before, after)| !before.unschedulable && after.unschedulable).count();
    if begun == 0 {
        return Ok(());
    }
    let most = settings.max_unavailable.unwrap().of(after.len());
    let out_of_use = after.iter().filter(|machine| machine.unschedulable || !machine.ready).count();
    prop_assert!(out_of_use <= most, "{out_of_use} out of use, {most} allowed");
    let ours = after.iter().filter(|machine| under_way(machine) && !machine.has(keys::INITIAL)).count();
    prop_assert!(settings.max_parallel == 0 || ours <= settings.max_parallel, "{ours} at the same time");
    Ok(())
}

/// Upgrades the fleet; `retarget` is the round in which another driver is wanted.
fn run(
    world: &mut World,
    settings: &Settings,
    deaths: &[(usize, bool)],
    retarget: Option<usize>,
) -> Result<Pass, TestCaseError> {
    let want = |world: &mut World, revision: &str, digest: &str| {
        for machine in &mut world.machines {
            machine.wanted = Some(("ds".into(), revision.into(), digest.into()));
        }
    };
    for round in 0..ROUNDS {
        if retarget == Some(round) {
            want(world, "newer", "3");
        }
        let (lives, twice) = deaths.get(round).copied().unwrap_or((usize::MAX, false));
        let before = world.machines.clone();
        let pass = world.decide(settings);
        world.clear_rejections(&pass);
        world.act(&pass, lives);
        if twice {
            world.act(&pass, usize::MAX);
        }
        within_budget(settings, &before, &world.machines)?;
        if pass.roll_back_to.is_some() {
            world
                .machines
                .iter_mut()
                .for_each(|machine| machine.wanted = Some(("ds".into(), "old".into(), "1".into())));
        }
        let busy = world.tick();
        let over = pass.steps.is_empty() && !busy && round >= deaths.len().max(retarget.unwrap_or(0));
        match pass.wake {
            Some(wake) if over => world.now = world.now.max(wake.as_second()),
            None if over && pass.roll_back_to.is_none() => return Ok(pass),
            _ => {}
        }
    }
    let machines = world.machines.iter().map(|machine| (machine.current(), &machine.annotations)).collect::<Vec<_>>();
    Err(TestCaseError::fail(format!("no end: {machines:?}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_upgrade_stays_within_its_budget_and_ends(
        fates in prop::collection::vec(fate(), 1..8),
        settings in settings(),
        deaths in deaths(),
        retarget in prop::option::weighted(0.3, 1..80usize),
    ) {
        let mut world = World::new(fates.clone());
        let last = run(&mut world, &settings, &deaths, retarget)?;
        for (machine, fate) in world.machines.iter().zip(&fates) {
            let state = machine.current();
            let failed = machine.has(keys::REASON);
            prop_assert!(!machine.unschedulable || fate.cordoned || failed, "left out of use: {machine:?}");
            let stays = fate.cordoned && fate.uncordoned.is_none();
            prop_assert!(!stays || machine.unschedulable, "was cordoned before: {machine:?}");
            prop_assert!(matches!(state, State::Done | State::Required | State::Failed), "{machine:?}");
            prop_assert!(state != State::Failed || failed, "{machine:?}");
            if state == State::Done {
                prop_assert!(machine.view().in_sync(), "{machine:?}");
            }
            if state == State::Required {
                let in_the_way = |other: &Machine| other.has(keys::REASON) || other.unschedulable;
                let blocked = last.halted.is_some() || world.machines.iter().any(in_the_way);
                prop_assert!(blocked, "waits for nobody: {machine:?}, {}", last.summary);
            }
        }
    }

    #[test]
    fn without_trouble_every_node_gets_the_driver(
        count in 1..12usize,
        settings in settings(),
        deaths in deaths(),
    ) {
        let mut world = World::new(vec![Fate { pods: vec![(1, PodController::Controller)], ..Fate::default() }; count]);
        run(&mut world, &settings, &deaths, None)?;
        for machine in &world.machines {
            prop_assert_eq!(machine.current(), State::Done);
            prop_assert!(machine.view().in_sync() && !machine.unschedulable);
            prop_assert!(machine.annotations.is_empty(), "{:?}", machine.annotations);
        }
    }
}
