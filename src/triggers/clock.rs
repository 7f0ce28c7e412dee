// SPDX-License-Identifier: Apache-2.0
//! Steps of the wall clock: KubeVirt sets it through the guest agent after a live migration.
//!
//! A wall clock timer that is canceled when the clock is set (`timerfd_create(2)`, `TFD_TIMER_CANCEL_ON_SET`) reports every step,
//! however small, and never slewing.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::facts::clock::ClockStep;
use crate::sys::epoll::EdgeTriggered;

/// The expiry of the timer if the clock is never set: in the year 2223. The kernel's clock ends in 2262.
const FAR_FUTURE: Duration = Duration::from_secs(8_000_000_000);

/// The event source. Needs a tokio runtime.
#[derive(Debug)]
pub(super) struct Clock;

impl Source for Clock {
    fn about(&self) -> (&'static str, &'static str) {
        ("clock", "steps of the clock are not detected")
    }

    fn is_paced(&self) -> bool {
        true
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        Box::pin(async move {
            let Err(error) = follow(out).await;
            Lost::Failed(format!("timerfd: {error}"))
        })
    }
}

async fn follow(out: &Output) -> io::Result<std::convert::Infallible> {
    let timer = step_timer()?;
    let mut before = read_offset()?;
    out.active("timerfd");
    loop {
        stepped(&timer).await?;
        out.fire(Trigger::Clock);
        let after = read_offset()?;
        note(out, ClockStep(after - before));
        before = after;
    }
}

fn note(out: &Output, step: ClockStep) {
    let steps = out.board.note_clock_step(step);
    out.active(format!(
        "timerfd; the clock was last set by {step}, step {steps}"
    ));
}

/// Returns the offset of the wall clock from the monotonic clock, in nanoseconds. Slewing affects both alike: only a step changes
/// it.
fn read_offset() -> io::Result<i128> {
    let realtime = clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
    let monotonic = clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(offset(realtime, monotonic))
}

fn offset(realtime: TimeSpec, monotonic: TimeSpec) -> i128 {
    let nanoseconds =
        |time: TimeSpec| i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec());
    nanoseconds(realtime) - nanoseconds(monotonic)
}

/// Returns a timer that never expires and is canceled by each step of the wall clock.
fn step_timer() -> io::Result<EdgeTriggered<TimerFd>> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
    let expiration = Expiration::OneShot(TimeSpec::from_duration(FAR_FUTURE));
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    match timer.set(expiration, flags) {
        // ECANCELED: the clock was just set. The timer is armed nevertheless (fs/timerfd.c).
        Ok(()) | Err(Errno::ECANCELED) => EdgeTriggered::of(timer, EpollFlags::EPOLLIN),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits for the next step. Steps in quick succession may be reported as one. Cancel-safe.
async fn stepped(timer: &EdgeTriggered<TimerFd>) -> io::Result<()> {
    loop {
        timer.next().await?;
        // Not `TimerFd::wait`, which hides the expected error. The timer stays armed, and reports steps even after its expiry
        // (fs/timerfd.c).
        match nix::unistd::read(timer.file.as_fd(), &mut [0; 8]) {
            Err(Errno::ECANCELED) => return Ok(()),
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triggers::testing::{output, probed};

    #[test]
    fn the_size_of_a_step_is_what_the_wall_clock_gained_on_the_other() {
        let time = |milliseconds: u64| TimeSpec::from_duration(Duration::from_millis(milliseconds));
        for (before, after, said) in [
            // 10.25 s pass, and the wall clock shows 8.702 s more.
            ((1_000, 500), (19_952, 10_750), "+8.702 s"),
            ((100_000, 500), (40_000, 500), "-60.000 s"),
            ((1_000, 500), (1_100, 600), "less than 1 ms"),
            ((1_000, 500), (0, 500), "-1.000 s"),
        ] {
            let before = offset(time(before.0), time(before.1));
            let after = offset(time(after.0), time(after.1));
            assert_eq!(ClockStep(after - before).to_string(), said);
        }
    }

    // tests/vm sets the clock of a machine of its own.
    #[tokio::test]
    async fn the_timer_is_live_and_time_that_passes_is_no_step() {
        let (out, mut reasons) = output(&Clock);
        let board = out.board.clone();
        let task = tokio::spawn(async move { Clock.follow(&out).await });
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let state = board.sources()["clock"].clone();
        assert_eq!(state, probed(&mut Clock).await);
        assert!(state.is_active);
        assert_eq!(reasons.try_recv(), None);
        assert_eq!(board.clock_steps().count, 0);
        task.abort();
    }

    #[test]
    fn each_step_is_counted_and_the_last_one_is_said() {
        let (out, _) = output(&Clock);
        for _ in 0..3 {
            note(&out, ClockStep(-60_000_000_000));
        }
        assert_eq!(out.board.clock_steps().count, 3);
        let sources = out.board.sources();
        let detail = "timerfd; the clock was last set by -60.000 s, step 3";
        assert_eq!(sources["clock"].detail, detail);
    }
}
