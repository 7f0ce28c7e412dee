// SPDX-License-Identifier: Apache-2.0
//! An allocator that counts what a thread holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // What another thread allocated was never counted here.
        LIVE.with(|live| live.set(live.get().saturating_sub(layout.size())));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn add(size: usize) {
    let live = LIVE.with(|live| {
        live.set(live.get().saturating_add(size));
        live.get()
    });
    PEAK.with(|peak| peak.set(peak.get().max(live)));
}

/// Runs something and tells how many bytes it held at most, beside what was held before.
pub(crate) fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let done = run();
    (done, PEAK.with(Cell::get).saturating_sub(before))
}

/// Runs something that may hold eight bytes for each byte of its input, and `base` bytes beside them.
pub(crate) fn bounded<T>(input: &[u8], base: usize, run: impl FnOnce() -> T) -> T {
    let (done, peak) = peak(run);
    let limit = 8 * input.len() + base;
    assert!(
        peak <= limit,
        "holds {peak} bytes for {} of input, more than {limit}",
        input.len()
    );
    done
}
