// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::decide::fixtures::host;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Random bits that cause no jitter, in the middle of the range.
const FAIR: u64 = u64::MAX / 2 + 1;

fn now(uptime: Duration, random: u64) -> Now {
    Now {
        uptime,
        wall: time::UtcDateTime::UNIX_EPOCH,
        random: Random::from_bits(random),
    }
}

fn opened(from: Option<&str>) -> Window {
    let from = from.map(host);
    admit(
        None,
        Some((Trigger::Link, seconds(100.0))),
        from.as_ref(),
        None,
    )
    .unwrap()
}

fn answer(name: Option<&HostName>) -> ProbeResult<'_> {
    ProbeResult {
        host: name,
        is_answered: name.is_some(),
        is_read: true,
        is_settled: name.is_some(),
    }
}

/// Reads when the window requests it until it ends. Returns the times of the reads since the first hint, and the end.
fn play(mut window: Window, name: Option<&HostName>, random: u64) -> (Vec<Duration>, WindowEnd) {
    let began = window.opened;
    let mut uptime = began;
    let mut reads = Vec::new();
    loop {
        uptime += window.wait(uptime);
        reads.push(uptime - began);
        if let Some(window_end) = window.step(answer(name), now(uptime, random)) {
            return (reads, window_end);
        }
    }
}

#[test]
fn without_jitter_the_reads_are_at_the_moments_of_the_schedule_and_the_window_ends_by_itself() {
    let same = host("hv-a");
    let (reads, window_end) = play(opened(Some("hv-a")), Some(&same), FAIR);
    assert_eq!(reads, OFFSETS);
    assert_eq!(
        window_end,
        WindowEnd {
            trigger: Trigger::Link,
            outcome: WindowOutcome::Unconfirmed,
            from: Some(host("hv-a")),
            took: seconds(60.0),
            reads: 11
        }
    );
}

#[test]
fn whatever_the_dice_an_unconfirmed_window_costs_at_most_eleven_reads_and_its_first_is_at_once() {
    let same = host("hv-a");
    for random in [0, 1 << 60, 1 << 62, FAIR, u64::MAX] {
        let (reads, window_end) = play(opened(Some("hv-a")), Some(&same), random);
        assert_eq!(window_end.outcome, WindowOutcome::Unconfirmed);
        assert!(
            reads.len() <= 11 && reads.len() == window_end.reads,
            "{reads:?}"
        );
        assert_eq!(reads.first(), Some(&Duration::ZERO));
        let last = reads.last().unwrap();
        assert!(*last >= seconds(48.0) && *last <= seconds(72.0), "{last:?}");
    }
}

#[test]
fn machines_of_a_drained_host_read_at_different_moments() {
    let same = host("hv-a");
    let (early, _) = play(opened(Some("hv-a")), Some(&same), 0);
    let (late, _) = play(opened(Some("hv-a")), Some(&same), u64::MAX);
    for (early, late) in early.iter().zip(&late).skip(1) {
        assert!(*late > early.mul_f64(1.4), "{early:?} {late:?}");
    }
}

#[test]
fn another_host_confirms_as_soon_as_the_labels_are_settled() {
    let there = host("hv-b");
    let mut window = opened(Some("hv-a"));
    let unsettled = ProbeResult {
        is_settled: false,
        ..answer(Some(&there))
    };
    assert_eq!(window.step(unsettled, now(seconds(100.2), FAIR)), None);
    // The watch reported it: this is not a read of the window, but it ends the window.
    let by_watch = ProbeResult {
        is_read: false,
        ..answer(Some(&there))
    };
    let window_end = window.step(by_watch, now(seconds(100.3), FAIR)).unwrap();
    assert_eq!(window_end.from, Some(host("hv-a")));
    assert_eq!(window_end.outcome, WindowOutcome::Confirmed);
    assert_eq!(
        (window_end.took, window_end.reads),
        (seconds(100.3) - seconds(100.0), 1)
    );
}

#[test]
fn a_move_whose_labels_never_settle_is_confirmed_at_the_end() {
    let there = host("hv-b");
    let mut window = opened(Some("hv-a"));
    let window_end = loop {
        let uptime = window.due;
        let found = ProbeResult {
            is_settled: false,
            ..answer(Some(&there))
        };
        if let Some(window_end) = window.step(found, now(uptime, FAIR)) {
            break window_end;
        }
    };
    assert_eq!(window_end.outcome, WindowOutcome::Confirmed);
    assert_eq!(window_end.took, seconds(60.0));
}

#[test]
fn an_api_that_never_answers_is_distinguished_from_one_that_says_no() {
    let (_, window_end) = play(opened(Some("hv-a")), None, FAIR);
    assert_eq!(window_end.outcome, WindowOutcome::ApiUnavailable);
    let (_, window_end) = play(opened(None), Some(&host("hv-a")), FAIR);
    assert_eq!(
        window_end.outcome,
        WindowOutcome::Unconfirmed,
        "no host to compare with"
    );
}

#[test]
fn an_answer_of_the_first_seconds_is_no_denial() {
    let same = host("hv-a");
    let mut window = opened(Some("hv-a"));
    let window_end = loop {
        let uptime = window.due;
        let early = uptime - window.opened < CAUGHT_UP;
        let found = answer(early.then_some(&same));
        let found = ProbeResult {
            is_answered: early,
            ..found
        };
        if let Some(window_end) = window.step(found, now(uptime, FAIR)) {
            break window_end;
        }
    };
    assert_eq!(window_end.outcome, WindowOutcome::ApiUnavailable);
}

#[test]
fn each_offset_is_read_once_however_the_dice_fall() {
    let same = host("hv-a");
    // Alternating low and high random numbers would select the same time repeatedly if the jitter were computed again.
    let mut window = opened(Some("hv-a"));
    let mut uptime = window.opened;
    let mut reads = 0;
    for random in [0, u64::MAX].into_iter().cycle() {
        uptime += window.wait(uptime) + Duration::from_millis(5);
        reads += 1;
        if let Some(window_end) = window.step(answer(Some(&same)), now(uptime, random)) {
            assert!(window_end.reads <= 11 && reads <= 11, "{reads} reads");
            return;
        }
    }
}

#[test]
fn a_read_before_its_time_does_not_count() {
    let same = host("hv-a");
    let mut window = opened(Some("hv-a"));
    let mut step = |at| {
        assert_eq!(
            window.step(answer(Some(&same)), now(seconds(at), FAIR)),
            None
        );
        (window.due, window.reads)
    };
    let (due, _) = step(100.0);
    assert_eq!(step(100.05), (due, 1));
}

#[test]
fn hints_without_end_do_not_keep_a_window_open_for_ever() {
    let mut window = None;
    for minute in 0..10 {
        let hint = Some((Trigger::Link, seconds(100.0 + 10.0 * f64::from(minute))));
        window = admit(window, hint, Some(&host("hv-a")), None);
    }
    assert_eq!(window.unwrap().opened, seconds(130.0));
}

#[test]
fn slow_answers_skip_reads_and_do_not_pile_up() {
    let same = host("hv-a");
    let mut window = opened(Some("hv-a"));
    let window_end = window.step(answer(Some(&same)), now(seconds(105.0), FAIR));
    assert_eq!(window_end, None);
    assert_eq!(window.wait(seconds(105.0)), seconds(3.0));
}

#[test]
fn hints_of_one_burst_are_one_window_and_a_later_burst_begins_it_anew() {
    let hint = |trigger, at| Some((trigger, seconds(at)));
    let mut window = None;
    for at in [100.0, 100.05, 100.2, 100.45, 100.8, 102.0] {
        window = admit(window, hint(Trigger::Link, at), Some(&host("hv-a")), None);
        window = admit(window, hint(Trigger::Port, at), Some(&host("hv-a")), None);
    }
    let first = window.unwrap();
    assert_eq!(
        (first.opened, first.trigger),
        (seconds(100.0), Trigger::Link)
    );
    let again = admit(Some(first.clone()), hint(Trigger::Link, 110.0), None, None).unwrap();
    assert_eq!(again.opened, seconds(110.0));
    assert_eq!(again.from, first.from, "where we were is not forgotten");
    let there = host("hv-b");
    let next = admit(Some(first), hint(Trigger::Link, 110.0), Some(&there), None).unwrap();
    assert_eq!(next.from, Some(there), "the first move was seen");
    assert_eq!(admit(Some(again.clone()), None, None, None), Some(again));
}

#[test]
fn a_hint_that_comes_after_the_move_was_seen_opens_nothing() {
    let hint = Some((Trigger::Port, seconds(101.9)));
    assert_eq!(
        admit(None, hint, Some(&host("hv-b")), Some(seconds(100.0))),
        None
    );
    assert!(admit(None, hint, Some(&host("hv-b")), Some(seconds(90.0))).is_some());
}

#[test]
fn the_watch_is_proven_once_two_seconds_after_the_hint_or_at_the_end() {
    let mut window = opened(Some("hv-a"));
    for (at, since) in [(101.0, None), (102.0, Some(100.0)), (104.0, None)] {
        let verify = window.verify(false, now(seconds(at), FAIR));
        assert_eq!(verify, since.map(seconds), "{at}");
    }
    // A migration was found by a read, not by the watch.
    let verify = opened(Some("hv-a")).verify(true, now(seconds(100.1), FAIR));
    assert_eq!(verify, Some(seconds(100.0)));
}
