// SPDX-License-Identifier: Apache-2.0
//! Mutates inputs, keeps those that reach something new, and reports those that fail. The same seed gives the same inputs.

use std::any::Any;
use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::coverage::{self, Seen};
use crate::targets::Target;

/// Bytes of an input.
const LENGTH_MAX: usize = 4096;

/// Findings of one target; the same fault has many inputs.
const FINDINGS_MAX: usize = 5;

/// Runs for making one input smaller.
const SHRINK_MAX: usize = 4000;

thread_local! {
    /// What the panic of a run said; `None` outside of a run.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has panics of runs remembered and not printed.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANIC.with_borrow_mut(|said| match said {
                None => print(info),
                Some(said) => {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    *said = format!("{place}: {}", text(info.payload()).unwrap_or("a panic"));
                }
            });
        }));
    });
}

/// What a panic says.
fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// An input that fails.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) input: Vec<u8>,
    pub(crate) message: String,
}

impl Finding {
    /// Writes the input into a file of its own.
    pub(crate) fn write(&self, target: &Target) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.input.hash(&mut hasher);
        let folder =
            std::env::var_os("FUZZ_FINDINGS").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("{}-{:016x}", target.name, hasher.finish()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &self.input).unwrap();
        path
    }
}

/// The place of a fault: the same for all inputs that have it.
fn place(message: &str) -> &str {
    message.split_once(": ").map_or(message, |(place, _)| place)
}

#[derive(Debug)]
pub(crate) struct Engine<'a> {
    target: &'a Target,
    random: Random,
    population: Vec<Vec<u8>>,
    seeds: usize,
    seen: Seen,
    runs: u64,
    took: Duration,
    /// A run that takes longer is a finding.
    pub(crate) slow: Duration,
    pub(crate) findings: Vec<Finding>,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(target: &'a Target, seed: u64) -> Self {
        keep_panics_quiet();
        Self {
            target,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            population: Vec::new(),
            seeds: 0,
            seen: Seen::default(),
            runs: 0,
            took: Duration::ZERO,
            slow: Duration::MAX,
            findings: Vec::new(),
        }
    }

    /// Begins with these inputs.
    pub(crate) fn start(&mut self, seeds: impl IntoIterator<Item = Vec<u8>>) {
        for seed in seeds {
            self.attempt(&seed);
            self.population.push(seed);
        }
        self.seeds = self.population.len();
    }

    /// Runs mutated inputs for so long, and no more than `runs`.
    pub(crate) fn run(&mut self, limit: Duration, runs: u64) {
        let began = Instant::now();
        while Instant::now() < began + limit
            && self.runs < runs
            && self.findings.len() < FINDINGS_MAX
        {
            self.step();
        }
        self.took = Instant::now() - began;
    }

    /// Runs one mutated input.
    pub(crate) fn step(&mut self) {
        let input = self.mutated();
        if self.attempt(&input) {
            self.population.push(input);
        }
    }

    pub(crate) fn summary(&self) -> String {
        let per_second = self.runs as f64 / self.took.as_secs_f64().max(0.001);
        format!(
            "{:<16} {:>6} {:>6} {per_second:>9.0} {:>9}",
            self.target.name,
            self.seeds,
            self.population.len() - self.seeds,
            self.findings.len()
        )
    }

    /// Runs an input. Answers whether it reached something new.
    fn attempt(&mut self, input: &[u8]) -> bool {
        self.runs += 1;
        match self.fault(input) {
            None => self.seen.add(),
            Some(message) => {
                let is_known = |finding: &Finding| place(&finding.message) == place(&message);
                if !self.findings.iter().any(is_known) {
                    let (input, message) = self.shrunk(input.to_vec(), message);
                    self.findings.push(Finding { input, message });
                }
                false
            }
        }
    }

    fn fault(&self, input: &[u8]) -> Option<String> {
        coverage::reset();
        PANIC.set(Some(String::new()));
        let began = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| (self.target.run)(input)));
        let took = Instant::now() - began;
        let said = PANIC.take();
        match done {
            Ok(()) if took > self.slow => Some(format!("slow: took {took:?}")),
            Ok(()) => None,
            Err(_) => said,
        }
    }

    /// The input without what does not matter to its fault.
    fn shrunk(&self, mut input: Vec<u8>, mut message: String) -> (Vec<u8>, String) {
        let mut runs = 0;
        let mut size = input.len() / 2;
        while size > 0 && runs < SHRINK_MAX {
            let mut at = 0;
            while at < input.len() && runs < SHRINK_MAX {
                runs += 1;
                let mut smaller = input.clone();
                smaller.drain(at..(at + size).min(input.len()));
                match self.fault(&smaller) {
                    Some(said) if place(&said) == place(&message) => {
                        (input, message) = (smaller, said)
                    }
                    _ => at += size,
                }
            }
            size /= 2;
        }
        (input, message)
    }

    fn mutated(&mut self) -> Vec<u8> {
        let Self {
            random,
            population,
            target,
            ..
        } = self;
        // One in two is of those that were added last.
        let recent = population.len().saturating_sub(1 + random.below(16));
        let picked = if random.below(2) == 0 {
            recent
        } else {
            random.below(population.len())
        };
        let mut input = population.get(picked).cloned().unwrap_or_default();
        for _ in 0..=random.below(5) {
            let at = random.below(input.len() + 1);
            let end = (at + 1 + random.below(16)).min(input.len());
            match random.below(9) {
                0 => flip(&mut input, at, 1 << random.below(8)),
                1 => flip(&mut input, at, random.below(256) as u8),
                2 => input.insert(at, random.below(256) as u8),
                3 => drop(input.drain(at..end)),
                4 => {
                    let part = input.get(at..end).unwrap_or_default().to_vec();
                    let to = random.below(input.len() + 1);
                    for _ in 0..=random.below(4) {
                        input.splice(to..to, part.iter().copied());
                    }
                }
                5 | 6 => {
                    if let Some(word) = target.words.get(random.below(target.words.len())) {
                        let end = if random.below(2) == 0 { at } else { end };
                        input.splice(at..end, word.bytes());
                    }
                }
                7 => {
                    // The end of another input.
                    let other = random.below(population.len());
                    let other = population.get(other).map(Vec::as_slice).unwrap_or_default();
                    let from = random.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(other.get(from..).unwrap_or_default());
                }
                _ => {
                    // A part of another input.
                    let other = random.below(population.len());
                    let other = population.get(other).cloned().unwrap_or_default();
                    let from = random.below(other.len() + 1);
                    let to = (from + random.below(64)).min(other.len());
                    input.splice(
                        at..at,
                        other.get(from..to).unwrap_or_default().iter().copied(),
                    );
                }
            }
        }
        input.truncate(LENGTH_MAX);
        input
    }
}

fn flip(input: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= bits;
    }
}

/// Xorshift.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit.max(1) as u64) as usize
    }
}
