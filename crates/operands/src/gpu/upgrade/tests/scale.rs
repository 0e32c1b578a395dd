//! 5,000 nodes in virtual time: counts, not seconds.

use super::fleet::{Fate, World, Writes};
use super::*;

const NODES: usize = 5000;

#[test]
fn five_thousand_nodes_at_five_percent() {
    let fate = |index: usize| Fate {
        crashes: u32::from(index.is_multiple_of(100)),
        pods: vec![(0, PodController::Controller); index % 2],
        ..Fate::default()
    };
    let mut world = World::new((0..NODES).map(fate).collect());
    let settings = Settings { max_parallel: 0, max_unavailable: Some(Amount::Percent(5)), ..generous() };
    let mut passes = 0;
    loop {
        passes += 1;
        let pass = world.decide(&settings);
        world.clear_rejections(&pass);
        world.act(&pass, usize::MAX);
        let busy = world.tick();
        if let Some(wake) = pass.wake.filter(|_| pass.steps.is_empty() && !busy) {
            world.now = world.now.max(wake.as_second());
        } else if pass.steps.is_empty() && !busy {
            break;
        }
        assert!(passes < 2000, "{}", pass.summary);
    }
    assert!(world.machines.iter().all(|machine| machine.current() == State::Done && machine.annotations.is_empty()));
    assert!(world.machines.iter().all(|machine| machine.view().in_sync() && !machine.unschedulable));
    assert_eq!(world.peak, (250, 250), "all of the budget, and no more");
    let Writes { patches, evictions, deletions } = world.writes;
    assert_eq!((evictions, deletions), (NODES / 2, NODES + NODES / 100));
    // Required, cordon, restart, validation, done; two more for those that failed once.
    assert!(patches <= 5 * NODES + 4 * NODES / 100, "{patches}");
}
