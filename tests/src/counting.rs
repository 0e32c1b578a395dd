//! An allocator that counts, for tests of how much memory something takes, or asks for. A test file that wants it says
//! `#[global_allocator] static ALLOCATOR: Counting = Counting;`. One of bytes in use holds one test: others would be counted
//! too. Work is counted by thread, as tests have one each.

#![allow(unsafe_code, reason = "an allocator that counts has to allocate")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_runtime::{Gate, Runtime, Settings};
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// Bytes in use.
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// What this thread has asked for so far.
    static WORK: Cell<Work> = const { Cell::new(Work { allocations: 0, bytes: 0 }) };
}

/// What was asked for, whether it was given back or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How often.
    pub allocations: usize,
    /// How much.
    pub bytes: usize,
}

impl Work {
    /// What this thread has asked for so far.
    pub fn so_far() -> Self {
        WORK.get()
    }

    /// How much more that is than `other`.
    pub fn beyond(self, other: Self) -> Self {
        Self {
            allocations: self.allocations.saturating_sub(other.allocations),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The part of each of `count`.
    pub fn each(self, count: usize) -> Self {
        Self { allocations: self.allocations / count, bytes: self.bytes / count }
    }
}

/// The system's allocator, counted.
pub struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // A thread that ends may have nothing to count with any more.
        let _ = WORK.try_with(|work| {
            let Work { allocations, bytes } = work.get();
            work.set(Work { allocations: allocations + 1, bytes: bytes + layout.size() });
        });
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How many bytes the cache of an operator takes that sees a cluster, and how many objects it has.
pub async fn cached(world: &World) -> (usize, usize) {
    // What is still on its way is not counted.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (before, stop) = (USED.load(Ordering::Relaxed), CancellationToken::new());
    let settings = Settings { gate: Gate::closed(), ..Settings::default() };
    let runtime = Runtime::start(world.admin.clone(), settings, &stop);
    runtime.cache.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    (USED.load(Ordering::Relaxed).saturating_sub(before), runtime.cache.len())
}
