// SPDX-License-Identifier: Apache-2.0
//! What must hold.

use std::time::Duration;

use super::record::{Kind, Second};
use super::scenarios::{Outcome, Story};

/// All watches are open again this long after any trouble.
const BACK: Duration = Duration::from_secs(120);

/// A migration with a hint is labeled this long after the API reported it.
const LABELED: Duration = Duration::from_secs(2);

/// The same where a request of the slow time may still be under way: the connection for requests takes one at a time.
const LABELED_SLOW: Duration = Duration::from_secs(20);

/// The wait before a retry has this mean once the backoff has reached its ceiling of 60 s.
const CEILING_MEAN: f64 = 30.0;

/// The regular poll, and what it reads: Node, VMI, host.
const POLL: Duration = Duration::from_secs(600);
const READS_OF_POLL: f64 = 3.0;

/// What happens to a whole fleet in the same second costs at most this many requests a second for each agent.
const SPREAD_PEAK: f64 = 0.8;

/// Peak and mean of the minute after the trouble.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Arrivals in the second with the most of them.
    pub(super) peak: f64,
    /// Mean arrivals per second in the first minute.
    pub(super) mean: f64,
}

impl Shape {
    /// Measures. With fewer agents a single second holds too few arrivals to say anything: it is widened to hold as many as one
    /// second of 10,000 agents does.
    pub(super) fn of(outcome: &Outcome) -> Self {
        let is_boot = outcome.story == Story::MassBoot;
        let seconds = if is_boot {
            outcome.since_begin()
        } else {
            outcome.since_end()
        };
        let width = (10_000 / outcome.agents.max(1)).clamp(1, 10);
        let all = |seconds: &[Second]| -> f64 {
            seconds.iter().map(|second| f64::from(second.all())).sum()
        };
        let minute = &seconds[..60.min(seconds.len())];
        let peaks = seconds.chunks(width).map(|chunk| all(chunk) / width as f64);
        Self {
            peak: peaks.fold(0.0, f64::max),
            mean: all(minute) / 60.0,
        }
    }

    /// Peak to mean.
    pub(super) fn ratio(self) -> f64 {
        self.peak / self.mean.max(f64::MIN_POSITIVE)
    }
}

/// Arrivals per second during the trouble, over spans of which each is twice as long as the one before. The first begins when
/// half of the fleet has come to know of the trouble: watches that ended are opened again over a minute.
pub(super) fn halving(outcome: &Outcome) -> Vec<f64> {
    let seconds = outcome.since_begin();
    let lasts = outcome.ends - outcome.begins;
    let mut from = 30;
    let mut rates = Vec::new();
    while from * 2 <= lasts {
        let span = &seconds[from..from * 2];
        let requests: u32 = span.iter().map(Second::all).sum();
        rates.push(f64::from(requests) / from as f64);
        from *= 2;
    }
    rates
}

/// The gates that a story breaks, one line each.
pub(super) fn broken(outcome: &Outcome) -> Vec<String> {
    let mut broken = Vec::new();
    let mut gate = |holds: bool, text: String| {
        if !holds {
            broken.push(text);
        }
    };
    let story = outcome.story;
    let shape = Shape::of(outcome);
    let limit = match story {
        Story::OrderlyRestart | Story::Compacted => Some(1.3),
        Story::HardKill | Story::Restore => Some(2.0),
        _ => None,
    };
    if let Some(limit) = limit {
        let text = format!(
            "peak {:.0}/s is {:.2}x the mean of the minute, more than {limit}x",
            shape.peak,
            shape.ratio()
        );
        gate(shape.ratio() <= limit, text);
    }
    if matches!(story, Story::HangUp | Story::Rotation) {
        let most = outcome.agents as f64 * SPREAD_PEAK;
        let text = format!("peak {:.0}/s, more than {most:.0}/s", shape.peak);
        gate(shape.peak <= most, text);
    }
    let back = outcome.all_back;
    let text = format!(
        "all watches open after {back:?}, later than {BACK:?}; {} missing",
        outcome.missing
    );
    let is_back = match story {
        Story::HangUp | Story::Drain | Story::Relabel => outcome.missing == 0,
        // Watches that turn out to be deaf are opened once more.
        Story::Restore => back.is_some_and(|back| back <= BACK),
        _ => back.is_some_and(|back| back <= BACK) && outcome.missing == 0,
    };
    gate(is_back, text);
    let limit = match story {
        Story::Slow => LABELED_SLOW,
        _ => LABELED,
    };
    let late = outcome.hinted.iter();
    let late = late.filter(|took| took.is_none_or(|took| took > limit));
    let (late, all) = (late.count(), outcome.hinted.len());
    gate(
        late == 0,
        format!("{late} of {all} hinted migrations not labeled within {limit:?}"),
    );
    let unlabeled = outcome.unhinted.iter().filter(|took| took.is_none());
    let unlabeled = unlabeled.count();
    gate(
        unlabeled == 0,
        format!("{unlabeled} migrations without a hint never labeled"),
    );
    gate(
        outcome.hurried == 0,
        format!(
            "{} requests repeated a failed one within 500 ms",
            outcome.hurried
        ),
    );
    let lists = outcome.total(Kind::List);
    let is_of_all = matches!(story, Story::MassBoot | Story::HangUp | Story::Rotation);
    gate(!is_of_all || lists == 0, format!("{lists} LISTs"));
    let unexplained = outcome.sum(|second| second.unexplained);
    let explained = match story {
        // A poll that is due in the second of the restart fails, and is repeated once.
        Story::OrderlyRestart | Story::HardKill | Story::Compacted => {
            Some(outcome.agents as f64 / POLL.as_secs_f64() * READS_OF_POLL)
        }
        // A poll that failed is made up for, once.
        Story::Away(lasts) => {
            let polled = (lasts as f64 + BACK.as_secs_f64()) / POLL.as_secs_f64();
            Some(outcome.agents as f64 * polled.min(1.0) * READS_OF_POLL)
        }
        _ => None,
    };
    gate(
        explained.is_none_or(|explained| f64::from(unexplained) <= explained),
        format!("{unexplained} reads beside the re-established watches"),
    );
    if story == Story::Overload {
        let floor = 2.0 * outcome.agents as f64 / CEILING_MEAN;
        let rates = halving(outcome);
        for pair in rates.windows(2) {
            let text = format!(
                "the rate falls from {:.0}/s to {:.0}/s while the outage doubles",
                pair[0], pair[1]
            );
            gate(pair[1] <= (pair[0] * 0.6).max(floor * 1.2), text);
        }
    }
    broken
}
