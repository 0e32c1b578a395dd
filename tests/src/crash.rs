//! Crashing operators: one dies, loses a response, or restarts with stale lists, during a story.

use capstan_apiserver::faults::{self, Matcher};
use serde_json::Value;

use crate::normal::contrasts;
use crate::wire::Fault;
use crate::world::World;

/// Failure of a run.
#[derive(Clone, Copy, Debug)]
pub enum InjectedFailure {
    /// Nothing.
    None,
    /// The operator died right after that write, and another took over.
    Crash(usize),
    /// The response of that write was lost.
    LostAnswer(usize),
    /// The operator died, and the first lists of the next one were stale, as from a lagging cache.
    CrashThenStaleLists(usize),
}

impl InjectedFailure {
    /// All failures at write `k`.
    pub fn all(k: usize) -> [Self; 3] {
        [Self::Crash(k), Self::LostAnswer(k), Self::CrashThenStaleLists(k)]
    }

    fn fault(self) -> Fault {
        match self {
            Self::None => Fault::None,
            Self::Crash(k) | Self::CrashThenStaleLists(k) => Fault::DieAfter(k),
            Self::LostAnswer(k) => Fault::LoseAnswer(k),
        }
    }
}

/// Runs an operator with that failure until `story` has ended. Returns the number of writes of the first operator.
pub async fn run(world: &World, failure: InjectedFailure, story: impl Future<Output = ()>) -> usize {
    let first = world.operator(failure.fault()).await;
    let operators = async {
        match failure {
            InjectedFailure::None | InjectedFailure::LostAnswer(_) => std::future::pending::<()>().await,
            InjectedFailure::Crash(_) | InjectedFailure::CrashThenStaleLists(_) => {
                first.wire.died().await;
                first.kill();
                if let (InjectedFailure::CrashThenStaleLists(_), Some(cluster)) = (failure, world.embedded_cluster()) {
                    cluster.server.faults().add(faults::Fault::stale(Matcher::new(), 3).first(8));
                }
                let _second = world.operator(Fault::None).await;
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = operators => {}
        () = story => {}
    }
    first.wire.writes()
}

/// Asserts that the end state equals that of the run without failures.
pub fn assert_same_end(failure: InjectedFailure, writes: usize, end: &Value, undisturbed: &Value) {
    let differences = contrasts(end, undisturbed);
    assert!(differences.is_empty(), "{failure:?} of {writes} writes: {}", differences.join("\n"));
}

/// Runs a story without failures, then with a failure at `most` of its writes, the three kinds in turn; with
/// `CRASH_MATRIX=all` with all of them at every write. The end state must always be equal. A story with fewer than
/// `least` writes indicates that writes are not counted.
pub async fn matrix<F: Future<Output = (Value, usize)>>(
    least: usize,
    most: usize,
    story: impl Fn(InjectedFailure) -> F,
) {
    let (undisturbed, writes) = story(InjectedFailure::None).await;
    assert!(writes >= least, "only {writes} writes: something is not counted");
    let all = std::env::var("CRASH_MATRIX").is_ok_and(|value| value == "all");
    // A single failure is placed in the middle, where most is in progress.
    let first = if all || most > 1 { 1 } else { writes / 2 };
    let step = if all { 1 } else { writes.div_ceil(most) };
    let mut runs = 0;
    for k in (first..=writes).step_by(step) {
        let troubles = InjectedFailure::all(k);
        for failure in if all { &troubles[..] } else { &troubles[runs % 3..][..1] } {
            println!("{failure:?}");
            let (end, _) = story(*failure).await;
            assert_same_end(*failure, writes, &end, &undisturbed);
            runs += 1;
        }
    }
    println!("crash matrix: {writes} writes, {runs} runs with trouble, all with the same end");
}
