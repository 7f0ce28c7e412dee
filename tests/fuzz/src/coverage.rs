// SPDX-License-Identifier: Apache-2.0
//! The branches that a run took, as the compiler's `inline-8bit-counters` tell them. Without that option nothing is known, and all
//! inputs count alike.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

static START: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Called before `main`, once for each part of the program, always with the counters of the whole program.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    START.store(start, Ordering::Relaxed);
    LENGTH.store(end.addr() - start.addr(), Ordering::Relaxed);
}

fn counters() -> &'static mut [u8] {
    let start = START.load(Ordering::Relaxed);
    if start.is_null() {
        return &mut [];
    }
    // SAFETY: the compiler's own array, which lives as long as the program; only this thread runs what is counted.
    unsafe { std::slice::from_raw_parts_mut(start, LENGTH.load(Ordering::Relaxed)) }
}

pub(crate) fn is_measured() -> bool {
    !counters().is_empty()
}

/// Forgets the branches that were taken.
pub(crate) fn reset() {
    counters().fill(0);
}

/// What was ever taken, and about how often.
#[derive(Debug, Default)]
pub(crate) struct Seen(Vec<u8>);

impl Seen {
    /// Adds the branches since the last reset. Answers whether one is new.
    pub(crate) fn add(&mut self) -> bool {
        let counters = counters();
        self.0.resize(counters.len(), 0);
        let mut is_new = false;
        for (seen, counters) in self.0.chunks_mut(64).zip(counters.chunks(64)) {
            if counters.iter().all(|count| *count == 0) {
                continue;
            }
            for (seen, count) in seen.iter_mut().zip(counters) {
                let bit = how_often(*count);
                is_new |= bit & !*seen != 0;
                *seen |= bit;
            }
        }
        is_new
    }
}

/// One bit for each order of magnitude.
fn how_often(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}
