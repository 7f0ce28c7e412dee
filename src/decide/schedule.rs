// SPDX-License-Identifier: Apache-2.0
//! Delays: backoff, intervals, phases of a machine, rate limits. Each is a function of its arguments and uses no facts. `next`
//! chooses among them, and only the loop waits.

use std::time::Duration;

/// The first upper limit of a retry delay.
const RETRY_FLOOR: Duration = Duration::from_secs(1);

/// The maximum retry delay. With the delay of a watch it limits how long an agent is disconnected after an outage.
const RETRY_CEILING: Duration = Duration::from_secs(60);

/// The maximum retry delay of a write that was refused permanently: only an administrator can change that.
const REFUSED_CEILING: Duration = Duration::from_secs(5 * 60);

/// The minimum retry delay, so that full jitter never causes a busy loop.
const RETRY_LEAST: Duration = Duration::from_millis(500);

/// The maximum jitter that is added to `Retry-After`. Many agents receive the same value, so they are spread over as much again.
const ASKED_JITTER: Duration = Duration::from_secs(10);

/// The minimum delay before a forbidden watch is opened again.
const FORBIDDEN_WATCH: Duration = Duration::from_secs(10 * 60);

/// The minimum delay before a watch is re-established, as a fraction of the maximum.
const WATCH_LEAST: f64 = 1.0 / 12.0;

/// The maximum delay if watches end repeatedly, as a multiple of the usual maximum. With the default of one minute, all watches
/// are re-established within two minutes, even if the previous attempt times out.
const WATCH_REPEATED: f64 = 19.0 / 12.0;

/// The range of `timeoutSeconds`, as fractions, in which a watch is replaced by the next one.
const RENEWAL: (f64, f64) = (0.75, 0.95);

/// The time over which the reads of a fleet are spread if all agents are reloaded, or get new credentials, in the same second.
const RELOAD_SPREAD: Duration = Duration::from_secs(10);

/// The time over which the list requests of a fleet are spread if no name identifies the VM.
const LIST_SPREAD: Duration = Duration::from_secs(60);

/// The interval of reads of the files of the pod, if they are the only source of the host. They are local, and change without an
/// event.
pub const POD_POLL: Duration = Duration::from_secs(30);

/// The interval of these reads while the label of a new pod still has the previous host.
pub const POD_POLL_LATE: Duration = Duration::from_secs(5);

/// The time in which the label is expected: virt-controller sets it within seconds, and the kubelet updates the files within about
/// two minutes.
pub const POD_LABEL_DELAY: Duration = Duration::from_secs(5 * 60);

/// A random number in [0, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Random(f64);

impl Random {
    /// Creates a random number from 64 random bits.
    pub fn from_bits(bits: u64) -> Self {
        // An `f64` represents 53 bits exactly.
        Self((bits >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Returns the number, at least 0 and less than 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// The work that each machine schedules at its own phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The periodic read of everything.
    Poll,
    /// The list of a namespace because no name identifies the VM.
    List,
    /// The read of the APIs after a reload of the configuration.
    Reload,
    /// The read of the credentials after a change of their files.
    Files,
    /// The re-establishment or replacement of the watch of the VM.
    VmiWatch,
    /// The re-establishment or replacement of the watch of the Node.
    NodeWatch,
}

/// A fraction of a period, at least 0 and less than 1, which is constant for a machine and a purpose and differs between machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase(f64);

impl Phase {
    /// Derives the phase of a machine for a purpose. `machine` is [`crate::facts::machine::Machine::phase`].
    pub fn of(machine: u64, purpose: Purpose) -> Self {
        // SplitMix64: the phases of different purposes and of different machines are independent.
        let mut bits =
            machine.wrapping_add((purpose as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(Random::from_bits(bits ^ (bits >> 31)).0)
    }

    /// Shifts the phase by a random fraction of the period. The result is distributed evenly over a fleet if either of the two is:
    /// clones share a phase, and a machine without randomness has only its phase.
    fn shifted(self, random: Random) -> f64 {
        (self.0 + random.0).fract()
    }

    /// Returns the fraction of the period.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// Computes the delay before a retry: full jitter, between zero and an upper limit that doubles with each consecutive failure
/// (`failures` >= 1). The delay that the server requested (`Retry-After`), with some jitter, is the minimum. An overloaded
/// kube-apiserver always requests one second, so the upper limit still doubles.
pub fn retry(failures: u32, asked: Option<Duration>, random: Random) -> Duration {
    let wait = full_jitter(failures, RETRY_CEILING, random);
    asked.map_or(wait, |asked| {
        wait.max(asked + asked.min(ASKED_JITTER).mul_f64(random.0))
    })
}

/// Computes the delay before a permanently refused write is retried: an administrator may have allowed it.
pub fn retry_refused(failures: u32, random: Random) -> Duration {
    full_jitter(failures, REFUSED_CEILING, random)
}

/// Returns a random delay between zero and an upper limit that doubles with each failure.
fn full_jitter(failures: u32, longest: Duration, random: Random) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let ceiling = RETRY_FLOOR.saturating_mul(1 << doublings).min(longest);
    ceiling.mul_f64(random.0).max(RETRY_LEAST)
}

/// Computes the delay before a watch is re-established after it ended, for any reason, or could not be opened. `longest` is
/// `timing.watch_delay`; `ends` is the number of consecutive ends in a short time (>= 1).
///
/// A restart of an API server ends the watches of a whole fleet within a second. They are re-established evenly over `longest`, or
/// over almost twice that time if watches end repeatedly.
pub fn watch_delay(longest: Duration, ends: u32, phase: Phase, random: Random) -> Duration {
    let most = if ends > 1 { WATCH_REPEATED } else { 1.0 };
    longest.mul_f64(WATCH_LEAST + (most - WATCH_LEAST) * phase.shifted(random))
}

/// Computes the delay before a watch is opened again that was forbidden several times: only an administrator can change that. In
/// the meantime the object is polled.
pub fn forbidden_watch_delay(random: Random) -> Duration {
    FORBIDDEN_WATCH.mul_f64(1.0 + random.0)
}

/// Computes the delay before a watch is opened again after its resource version was rejected.
pub fn version_delay(longest: Duration, random: Random) -> Duration {
    longest.mul_f64(WATCH_LEAST * (1.0 + random.0))
}

/// Computes the time after which a watch that requested `stream_time` is replaced by the next one.
pub fn renewal(stream_time: Duration, phase: Phase, random: Random) -> Duration {
    let (least, most) = RENEWAL;
    stream_time.mul_f64(least + (most - least) * phase.shifted(random))
}

/// Computes the delay of API reads after a reload, or after a change of a credential that still works.
pub fn reload_delay(phase: Phase) -> Duration {
    RELOAD_SPREAD.mul_f64(phase.0)
}

/// The first delay after a failed list of the namespace. It doubles with each failure, up to an hour.
const LIST_RETRY: Duration = Duration::from_secs(10 * 60);

/// Returns the delay before the next list of the namespace after one failed or took too long. A list is the most expensive request
/// of an agent, and more lists would overload a slow API server further. `failures` is the number of consecutive failures.
pub fn list_retry(failures: u32, random: Random) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1)).min(6);
    let wait = LIST_RETRY * factor;
    wait + wait.mul_f64(random.0)
}

/// Computes the delay before a daemon lists a namespace in which no name identifies its VM.
pub fn list_delay(phase: Phase, random: Random) -> Duration {
    LIST_SPREAD.mul_f64(phase.shifted(random))
}

/// Computes the delay until the next round if there are no failures: one interval at a constant phase per machine, so that agents
/// that were started together do not send requests together, plus up to a tenth of jitter.
pub fn poll(interval: Duration, phase: Phase, uptime: Duration, random: Random) -> Duration {
    let whole = interval.as_secs_f64().max(0.001);
    let mut until_phase = (phase.0 - uptime.as_secs_f64() / whole).rem_euclid(1.0);
    // Prevents a second round immediately after the first.
    if until_phase < 0.1 {
        until_phase += 1.0;
    }
    Duration::from_secs_f64(whole * until_phase) + interval.mul_f64(random.0 / 10.0)
}

/// The maximum burst of reconciles.
const PACE_BURST: u32 = 20;

/// The time after which one more reconcile is allowed.
const PACE_PERIOD: Duration = Duration::from_millis(500);

/// The maximum burst of reconciles from one trigger that the host can send at any rate.
const OUTSIDE_BURST: u32 = 20;

/// The time after which one more reconcile from such a trigger is allowed.
const OUTSIDE_PERIOD: Duration = Duration::from_secs(10);

/// The maximum burst of updates of the Node. No operator migrates a VM so often.
const WRITE_BURST: u32 = 240;

/// The time after which one more update is allowed.
const WRITE_PERIOD: Duration = Duration::from_secs(30);

/// A token bucket. Times are since the start of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    period: Duration,
    burst: u32,
    /// The time when the bucket is full again.
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

    /// Creates the limit of reconciles by triggers, so that an event storm causes two per second and not a busy loop.
    pub fn of_reconciles() -> Self {
        Self::new(PACE_PERIOD, PACE_BURST)
    }

    /// Creates the limit of one trigger that others can send at any rate.
    pub fn of_outside_trigger() -> Self {
        Self::new(OUTSIDE_PERIOD, OUTSIDE_BURST)
    }

    /// Takes one token at `now`. Returns how long to wait before it may be used.
    pub fn take(&mut self, now: Duration) -> Duration {
        self.full_at = self.full_at.max(now) + self.period;
        self.full_at.saturating_sub(now + self.period * self.burst)
    }

    /// Takes one token at `now` without a wait. The next wait never exceeds one period, however many were taken.
    pub fn note(&mut self, now: Duration) {
        self.take(now);
        self.full_at = self.full_at.min(now + self.period * self.burst);
    }

    /// Returns how long to wait for a token that is taken at `now`, if there is none.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        Some(self.clone().take(now)).filter(|left| !left.is_zero())
    }
}

/// The limit of updates of the Node: a source that changes constantly must not make every agent write constantly.
impl Default for Pace {
    fn default() -> Self {
        Self::new(WRITE_PERIOD, WRITE_BURST)
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

    /// Returns the maximum number of `delays` in one second, relative to their mean over a minute.
    fn peak(delays: &[Duration]) -> f64 {
        let mut seconds = std::collections::BTreeMap::<u64, u32>::new();
        for delay in delays {
            *seconds.entry(delay.as_secs()).or_default() += 1;
        }
        let fullest = seconds.values().max().copied().unwrap();
        f64::from(fullest) / (delays.len() as f64 / 60.0)
    }

    /// Returns ten thousand machines, as numbers like those of [`crate::facts::machine::Machine::phase`].
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
            Purpose::List,
            Purpose::Reload,
            Purpose::VmiWatch,
            Purpose::NodeWatch,
        ];
        // With two independent phases, one in ten pairs is closer than a twentieth.
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
        assert!(pace.left(now + Duration::from_secs(60)).is_none());
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
        let mut pace = Pace::default();
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
