//! Operators that crash: one dies, loses an answer, or comes back to stale lists, while a story goes on.

use capstan_apiserver::faults::{self, Matcher};
use serde_json::Value;

use crate::normal::contrasts;
use crate::wire::Fault;
use crate::world::World;

/// What went wrong in a run.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Nothing.
    None,
    /// The operator died right after that write, and another took over.
    Crash(usize),
    /// The answer of that write was lost.
    LostAnswer(usize),
    /// The operator died, and the first lists of the next one were old, as those of a cache that is behind.
    CrashThenStaleLists(usize),
}

impl Trouble {
    /// Everything that may go wrong at write `k`.
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

/// Runs an operator with that trouble until `story` has ended. Says how many writes the first operator made.
pub async fn run(world: &World, trouble: Trouble, story: impl Future<Output = ()>) -> usize {
    let first = world.operator(trouble.fault()).await;
    let operators = async {
        match trouble {
            Trouble::None | Trouble::LostAnswer(_) => std::future::pending::<()>().await,
            Trouble::Crash(_) | Trouble::CrashThenStaleLists(_) => {
                first.wire.died().await;
                first.kill();
                if let (Trouble::CrashThenStaleLists(_), Some(cluster)) = (trouble, world.embedded_cluster()) {
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

/// Fails unless the end is that of the run without trouble.
pub fn assert_same_end(trouble: Trouble, writes: usize, end: &Value, undisturbed: &Value) {
    let differences = contrasts(end, undisturbed);
    assert!(differences.is_empty(), "{trouble:?} of {writes} writes: {}", differences.join("\n"));
}
