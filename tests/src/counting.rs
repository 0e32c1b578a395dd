//! A counting allocator, for tests of memory use and allocations. A test file that needs it has `#[global_allocator]
//! static ALLOCATOR: Counting = Counting;`. A file that measures bytes in use has one test: others would be counted
//! too. Allocations are counted per thread, as each test has its own.

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
    /// Allocations of this thread so far.
    static WORK: Cell<Work> = const { Cell::new(Work { allocations: 0, bytes: 0 }) };
}

/// Total allocations, freed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of allocations.
    pub allocations: usize,
    /// Allocated bytes.
    pub bytes: usize,
}

impl Work {
    /// Allocations of this thread so far.
    pub fn so_far() -> Self {
        WORK.get()
    }

    /// Difference to `other`.
    pub fn beyond(self, other: Self) -> Self {
        Self {
            allocations: self.allocations.saturating_sub(other.allocations),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Average per item of `count`.
    pub fn each(self, count: usize) -> Self {
        Self { allocations: self.allocations / count, bytes: self.bytes / count }
    }
}

/// The system allocator, counted.
pub struct Counting;

// SAFETY: everything is delegated to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.fetch_add(layout.size(), Ordering::Relaxed);
        // Thread-local storage may be gone when a thread exits.
        let _ = WORK.try_with(|work| {
            let Work { allocations, bytes } = work.get();
            work.set(Work { allocations: allocations + 1, bytes: bytes + layout.size() });
        });
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes and number of objects of an operator's cache of a cluster.
pub async fn cached(world: &World) -> (usize, usize) {
    // Wait for pending changes.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (before, stop) = (USED.load(Ordering::Relaxed), CancellationToken::new());
    let settings = Settings { gate: Gate::closed(), ..Settings::default() };
    let runtime = Runtime::start(world.admin.clone(), settings, &stop);
    runtime.cache.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    (USED.load(Ordering::Relaxed).saturating_sub(before), runtime.cache.len())
}
