// SPDX-License-Identifier: Apache-2.0
//! How long to wait: backoff, intervals, phases of a machine, the pace of rounds. Each is a function of its arguments and knows no
//! facts; `next` chooses among them, and the loop is the only place that waits.

use std::time::Duration;

use crate::config::{Settings, WatchMode};
use crate::facts::trigger::Scope;

/// The first ceiling of a retry.
const RETRY_FLOOR: Duration = Duration::from_secs(1);

/// The longest ceiling of a retry. With the delay of a watch it bounds how long an agent is away after an outage.
const RETRY_CEILING: Duration = Duration::from_secs(60);

/// The same for a write that was refused and not for now: only a person can change that.
const REFUSED_CEILING: Duration = Duration::from_secs(5 * 60);

/// The least wait before a retry, so that full jitter never makes a busy loop.
const RETRY_LEAST: Duration = Duration::from_millis(500);

/// Many agents receive the same `Retry-After`: they are spread over as much again, at most this long.
const ASKED_JITTER: Duration = Duration::from_secs(10);

/// The least delay before a watch that ended is opened again, as a part of the longest.
const WATCH_LEAST: f64 = 1.0 / 12.0;

/// The longest delay where watches keep ending, in parts of the usual longest one: with the default of a minute, all are
/// back within two, also where the attempt before it takes its whole time to fail.
const WATCH_REPEATED: f64 = 19.0 / 12.0;

/// The parts of its own `timeoutSeconds` between which a watch is replaced by the next one.
const RENEWAL: (f64, f64) = (0.75, 0.95);

/// The time over which a fleet that is reloaded, or gets new credentials, in the same second reads its APIs.
const RELOAD_SPREAD: Duration = Duration::from_secs(10);

/// How often VMs that have our names or our hardware are searched for.
pub const SEARCH: Duration = Duration::from_secs(6 * 60 * 60);

/// The time over which a fleet lists where no name leads to its VM.
const LIST_SPREAD: Duration = Duration::from_secs(60);

/// Without standing watches, and with none that could break, a rare round must do.
const POLL_OF_SIGNALS: Duration = Duration::from_secs(60 * 60);

/// After a migration hint that no one confirmed, where no watch would tell of the move later.
pub const DOUBT: Duration = Duration::from_secs(2 * 60);

/// A random number in [0, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Random(f64);

impl Random {
    /// From 64 random bits.
    pub fn from_bits(bits: u64) -> Self {
        // 53 bits are what an f64 holds exactly.
        Self((bits >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// The number, at least 0 and less than 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// What a machine does at a moment of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reads everything although nothing called for it.
    Poll,
    /// Searches for duplicates.
    Search,
    /// Lists a namespace because no name leads to the VM.
    List,
    /// Reads the APIs after the configuration was read again.
    Reload,
    /// Reads the credentials after one of their files changed.
    Files,
    /// Opens the watch of the VM after its end, or replaces it.
    VmiWatch,
    /// The same for the watch of the Node.
    NodeWatch,
}

/// A part of a period, at least 0 and less than 1, which one machine keeps for one purpose and others do not share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase(f64);

impl Phase {
    /// Derives the phase of a machine for a purpose. `machine` is [`crate::facts::machine::Machine::phase`].
    pub fn of(machine: u64, purpose: Purpose) -> Self {
        // SplitMix64: purposes of one machine, and one purpose of two machines, have nothing in common.
        let mut bits =
            machine.wrapping_add((purpose as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(Random::from_bits(bits ^ (bits >> 31)).0)
    }

    /// Shifts the phase by a random part of the period. The result is spread evenly over a fleet if either of the two is:
    /// clones share a phase, and a machine without randomness has only its phase.
    fn shifted(self, random: Random) -> f64 {
        (self.0 + random.0).fract()
    }

    /// The part of the period.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// Computes the wait before a retry: full jitter, that is anything between nothing and a ceiling that doubles with each
/// failure in a row (`failures` >= 1). What the server asked for (`Retry-After`), with some jitter, is the least; an
/// overloaded kube-apiserver asks for one second each time, and the ceiling goes on doubling meanwhile.
pub fn retry(failures: u32, asked: Option<Duration>, random: Random) -> Duration {
    let wait = full_jitter(failures, RETRY_CEILING, random);
    asked.map_or(wait, |asked| {
        wait.max(asked + asked.min(ASKED_JITTER).mul_f64(random.0))
    })
}

/// Computes the wait before a write that was refused for good is tried again: someone may have granted it.
pub fn retry_refused(failures: u32, random: Random) -> Duration {
    full_jitter(failures, REFUSED_CEILING, random)
}

/// Anything between nothing and a ceiling that doubles with each failure.
fn full_jitter(failures: u32, longest: Duration, random: Random) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let ceiling = RETRY_FLOOR.saturating_mul(1 << doublings).min(longest);
    ceiling.mul_f64(random.0).max(RETRY_LEAST)
}

/// Computes the delay before a watch is opened again after it ended, for whatever reason, or could not be opened. `longest`
/// is `timing.watch_delay`; `ends` counts those that followed each other closely (>= 1).
///
/// An API server that restarts ends the watches of a whole fleet in one second. They come back evenly over `longest`; where
/// watches keep ending, over almost twice that time.
pub fn watch_delay(longest: Duration, ends: u32, phase: Phase, random: Random) -> Duration {
    let most = if ends > 1 { WATCH_REPEATED } else { 1.0 };
    longest.mul_f64(WATCH_LEAST + (most - WATCH_LEAST) * phase.shifted(random))
}

/// Computes the delay before a watch is opened again whose version was refused when it was to go on from there.
pub fn version_delay(longest: Duration, random: Random) -> Duration {
    longest.mul_f64(WATCH_LEAST * (1.0 + random.0))
}

/// Computes after how long a watch that asked for `stream_time` is replaced by the next one.
pub fn renewal(stream_time: Duration, phase: Phase, random: Random) -> Duration {
    let (least, most) = RENEWAL;
    stream_time.mul_f64(least + (most - least) * phase.shifted(random))
}

/// Computes how long after a reload, or after a change of a credential that still works, the APIs are read.
pub fn reload_delay(phase: Phase) -> Duration {
    RELOAD_SPREAD.mul_f64(phase.0)
}

/// How long after a list of the namespace that failed the next one may be, for the first time; then twice as long, up to an hour.
const LIST_RETRY: Duration = Duration::from_secs(10 * 60);

/// Returns how long after a list of the namespace that failed, or took too long, the next one is sent. A list is the most that an
/// agent asks of an API server; one that is too slow for a fleet of them gets no faster by more. `failures` is their number in a row.
pub fn list_retry(failures: u32, random: Random) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1)).min(6);
    let wait = LIST_RETRY * factor;
    wait + wait.mul_f64(random.0)
}

/// Computes how long a daemon waits before it lists a namespace in which no name leads to its VM.
pub fn list_delay(phase: Phase, random: Random) -> Duration {
    LIST_SPREAD.mul_f64(phase.shifted(random))
}

/// Computes the wait until the next round when all is well: one interval, at a phase of it that each machine keeps for
/// itself, so that a fleet that was started together does not ask together, and a tenth of jitter.
pub fn poll(interval: Duration, phase: Phase, uptime: Duration, random: Random) -> Duration {
    let whole = interval.as_secs_f64().max(0.001);
    let until_phase = (phase.0 - uptime.as_secs_f64() / whole).rem_euclid(1.0);
    // Never a second round right after the first.
    let until_phase = if until_phase < 0.1 {
        until_phase + 1.0
    } else {
        until_phase
    };
    Duration::from_secs_f64(whole * until_phase) + interval.mul_f64(random.0 / 10.0)
}

/// How often everything is read although nothing called for it, and what that reads. A very large fleet without standing
/// watches asks rarely, and what the API servers' caches hold is new enough for it.
pub fn backstop(settings: &Settings) -> (Duration, Scope) {
    match settings.mode {
        WatchMode::Watch => (settings.timing.poll, Scope::KNOWN),
        WatchMode::Signals => (settings.timing.poll.max(POLL_OF_SIGNALS), Scope::CACHED),
    }
}

/// Looks that may follow each other at once; more of them wait.
const PACE_BURST: u32 = 20;

/// The time after which one more round may follow at once.
const PACE_PERIOD: Duration = Duration::from_millis(500);

/// Reconciles that one trigger may cause at once, where the host can send it at will.
const OUTSIDE_BURST: u32 = 20;

/// The time after which such a trigger may cause one more.
const OUTSIDE_PERIOD: Duration = Duration::from_secs(10);

/// Updates of the Node that may follow each other at once: no operator migrates a VM so often.
const WRITE_BURST: u32 = 240;

/// The time after which one more update may follow at once.
const WRITE_PERIOD: Duration = Duration::from_secs(30);

/// A token bucket. Times are since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    period: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Duration,
}

impl Pace {
    fn new(period: Duration, burst: u32) -> Self {
        Self {
            period,
            burst,
            full_at: Duration::ZERO,
        }
    }

    /// Limits how often triggers cause reconciles, so that a storm of events costs two of them a second and not a busy loop.
    pub fn of_reconciles() -> Self {
        Self::new(PACE_PERIOD, PACE_BURST)
    }

    /// Limits one trigger that others can send at will.
    pub fn of_outside_trigger() -> Self {
        Self::new(OUTSIDE_PERIOD, OUTSIDE_BURST)
    }

    /// Takes one token at `now`. Returns how long to wait before it may be used.
    pub fn take(&mut self, now: Duration) -> Duration {
        self.full_at = self.full_at.max(now) + self.period;
        self.full_at.saturating_sub(now + self.period * self.burst)
    }

    /// Returns how long a token that is taken at `now` would wait.
    pub fn left(&self, now: Duration) -> Duration {
        self.clone().take(now)
    }
}

/// Limits updates of the Node: who changes a source all the time must not make every agent write all the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePace(Pace);

impl Default for WritePace {
    fn default() -> Self {
        Self(Pace::new(WRITE_PERIOD, WRITE_BURST))
    }
}

impl WritePace {
    /// Takes note of an update at `now`.
    pub fn note(&mut self, now: Duration) {
        self.0.take(now);
    }

    /// Returns how long no update is sent.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        Some(self.0.left(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Random = Random(0.999_999);
    const LEAST: Random = Random(0.0);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn retries_double_up_to_a_minute_and_never_hurry() {
        for (failures, ceiling_ms) in [
            (1, 1000),
            (2, 2000),
            (3, 4000),
            (6, 32_000),
            (7, 60_000),
            (4_000_000, 60_000),
        ] {
            let wait = retry(failures, None, MOST).as_millis();
            assert!(
                wait <= ceiling_ms && wait + 1 >= ceiling_ms - 1,
                "{failures}: {wait}"
            );
            assert_eq!(retry(failures, None, LEAST), RETRY_LEAST);
        }
    }

    #[test]
    fn what_the_server_asks_for_is_the_least_and_replaces_no_backoff() {
        let asked = Duration::from_secs(7);
        assert_eq!(retry(1, Some(asked), LEAST), asked);
        assert!(retry(1, Some(asked), MOST) < asked * 2 + Duration::from_millis(1));
        let second = Some(Duration::from_secs(1));
        for failures in 6..20 {
            assert_eq!(
                retry(failures, second, MOST),
                retry(failures, None, MOST),
                "{failures}"
            );
        }
    }

    /// How many of `delays` fall into the fullest second, relative to their mean over a minute.
    fn peak(delays: &[Duration]) -> f64 {
        let mut seconds = std::collections::BTreeMap::<u64, u32>::new();
        for delay in delays {
            *seconds.entry(delay.as_secs()).or_default() += 1;
        }
        let fullest = seconds.values().max().copied().unwrap();
        f64::from(fullest) / (delays.len() as f64 / 60.0)
    }

    /// Ten thousand machines, as numbers of the kind that [`crate::facts::machine::Machine::phase`] gives.
    fn fleet() -> impl Iterator<Item = u64> {
        (1u64..=10_000).map(|machine| machine.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    #[test]
    fn a_fleet_whose_watches_end_together_comes_back_evenly_over_a_minute() {
        for random in [LEAST, Random(0.5), MOST] {
            let delays: Vec<Duration> = [Purpose::VmiWatch, Purpose::NodeWatch]
                .into_iter()
                .flat_map(|purpose| fleet().map(move |one| Phase::of(one, purpose)))
                .map(|phase| watch_delay(MINUTE, 1, phase, random))
                .collect();
            let (first, last) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            assert!(*first >= Duration::from_secs(5) && *last <= MINUTE);
            let peak = peak(&delays);
            assert!(peak <= 1.3, "{peak}");
        }
        let repeated = Phase::of(1, Purpose::VmiWatch);
        assert!(watch_delay(MINUTE, 2, repeated, MOST) > watch_delay(MINUTE, 1, repeated, MOST));
        let delays = fleet().map(|one| Phase::of(one, Purpose::VmiWatch));
        let mut delays = delays.map(|phase| watch_delay(MINUTE, 9, phase, MOST));
        assert!(delays.all(|delay| delay <= MINUTE * 2));
    }

    #[test]
    fn clones_with_one_phase_are_spread_by_chance_and_others_by_their_phase() {
        let clones: Vec<Duration> = (0..10_000u32)
            .map(|one| Random(f64::from(one) / 10_000.0))
            .map(|random| watch_delay(MINUTE, 1, Phase::of(7, Purpose::VmiWatch), random))
            .collect();
        assert!(peak(&clones) <= 1.3);
    }

    #[test]
    fn a_watch_is_replaced_before_its_time_and_at_most_33_times_a_day() {
        let hour = Duration::from_secs(3600);
        for machine in fleet() {
            for random in [LEAST, MOST] {
                let after = renewal(hour, Phase::of(machine, Purpose::VmiWatch), random);
                assert!(after < hour, "{after:?}");
                assert!(86_400.0 / after.as_secs_f64() <= 33.0, "{after:?}");
            }
        }
    }

    #[test]
    fn the_purposes_of_a_machine_have_nothing_in_common() {
        let all = [
            Purpose::Poll,
            Purpose::Search,
            Purpose::List,
            Purpose::Reload,
            Purpose::VmiWatch,
            Purpose::NodeWatch,
        ];
        // Of two independent phases every tenth pair is closer than a twentieth.
        for (index, one) in all.into_iter().enumerate() {
            for other in all.into_iter().skip(index + 1) {
                let close = fleet().filter(|machine| {
                    (Phase::of(*machine, one).0 - Phase::of(*machine, other).0).abs() < 0.05
                });
                let close = close.count();
                assert!((800..1150).contains(&close), "{one:?} {other:?}: {close}");
            }
        }
    }

    #[test]
    fn a_poll_is_never_sooner_than_a_tenth_nor_later_than_two_intervals() {
        let interval = Duration::from_secs(600);
        for machine in [0, 1, 12_345, u64::MAX] {
            for uptime in [0, 1, 599, 600, 86_400] {
                for random in [LEAST, MOST] {
                    let phase = Phase::of(machine, Purpose::Poll);
                    let wait = poll(interval, phase, Duration::from_secs(uptime), random);
                    assert!(
                        wait >= interval / 10 && wait <= interval * 2,
                        "{machine} {uptime}: {wait:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn machines_that_start_together_look_at_different_times() {
        let interval = Duration::from_secs(600);
        let waits: Vec<Duration> = fleet()
            .map(|machine| Phase::of(machine, Purpose::Poll))
            .map(|phase| poll(interval, phase, Duration::from_secs(5), LEAST) / 10)
            .collect();
        let peak = peak(&waits);
        assert!(peak <= 1.4, "{peak}");
    }

    #[test]
    fn a_storm_of_reasons_is_slowed_to_two_looks_a_second_and_a_few_are_not() {
        let mut pace = Pace::of_reconciles();
        let mut now = Duration::from_secs(1000);
        let mut waited = Duration::ZERO;
        for round in 0..100 {
            let wait = pace.take(now);
            assert!(round >= PACE_BURST || wait.is_zero(), "{round}: {wait:?}");
            waited += wait;
            now += wait;
        }
        assert_eq!(waited, PACE_PERIOD * (100 - PACE_BURST));
        assert!(pace.left(now + Duration::from_secs(60)).is_zero());
        assert!(pace.take(now + Duration::from_secs(60)).is_zero());
    }

    #[test]
    fn a_list_that_fails_is_sent_less_and_less_often() {
        let minutes = |failures, random| list_retry(failures, random).as_secs() / 60;
        for (failures, least) in [(1, 10), (2, 20), (3, 40), (4, 60), (4_000_000, 60)] {
            assert_eq!(minutes(failures, LEAST), least);
            assert_eq!(minutes(failures, MOST), 2 * least - 1);
        }
    }

    #[test]
    fn updates_of_the_node_are_limited_and_come_back() {
        let mut pace = WritePace::default();
        let now = Duration::from_secs(1000);
        for _ in 0..WRITE_BURST {
            assert_eq!(pace.left(now), None);
            pace.note(now);
        }
        assert_eq!(pace.left(now), Some(WRITE_PERIOD));
        assert_eq!(pace.left(now + WRITE_PERIOD), None);
        assert_eq!(pace.left(now + WRITE_PERIOD / 2), Some(WRITE_PERIOD / 2));
    }

    #[test]
    fn random_bits_become_a_number_below_one() {
        assert_eq!(Random::from_bits(0).0, 0.0);
        assert!(Random::from_bits(u64::MAX).0 < 1.0);
    }
}
