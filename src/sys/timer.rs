// SPDX-License-Identifier: Apache-2.0
//! A timer that wakes the process exactly once, when it expires.
//!
//! tokio's own timers move through a wheel of slots and wake the process at each step: up to two additional times for a wait of
//! half a minute, such as that for the watchdog. For the waits of an idle process, the kernel's timer (`timerfd_create(2)`) has no
//! additional wake-ups.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::net::unix::pipe;
use tokio::time::Instant;

/// The minimum wait; zero would disarm the kernel's timer.
const LEAST: Duration = Duration::from_micros(1);

/// The kernel's timer, on the monotonic clock, and the same timer in a form for which tokio can wait; tokio's own if the kernel has no
/// descriptor for it.
#[derive(Debug)]
pub struct Alarm(Option<(TimerFd, pipe::Receiver)>);

impl Alarm {
    /// Creates a timer.
    pub fn create() -> Self {
        // The kernel's clock cannot be paused.
        #[cfg(test)]
        if crate::testing::is_simulated() {
            return Self(None);
        }
        Self(kernel_timer().ok())
    }

    /// Waits until `due`.
    pub async fn until(&self, due: Instant) {
        let Some((timer, ring)) = &self.0 else {
            return tokio::time::sleep_until(due).await;
        };
        let wait = due.saturating_duration_since(Instant::now()).max(LEAST);
        let expiration = Expiration::OneShot(TimeSpec::from_duration(wait));
        if let Err(error) = timer.set(expiration, TimerSetTimeFlags::empty()) {
            tracing::debug!(%error, "failed to set the timer");
        }
        loop {
            match ring.readable().await {
                // Setting the timer withdraws an earlier expiration.
                Ok(()) => match ring.try_read(&mut [0; 8]) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => return,
                },
                // The descriptor is open, so this cannot happen. If it does, the loop must not spin.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

fn kernel_timer() -> std::io::Result<(TimerFd, pipe::Receiver)> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
    // tokio treats it like the read end of a pipe: a descriptor that becomes readable.
    let ring = pipe::Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
    Ok((timer, ring))
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvester_lab::world::SOON;
    use tokio::time::{sleep, timeout};

    #[tokio::test]
    async fn it_rings_when_it_is_due_and_not_for_an_earlier_wait() {
        let alarm = Alarm::create();
        for _ in 0..3 {
            let due = Instant::now() + Duration::from_millis(30);
            timeout(SOON, alarm.until(due)).await.unwrap();
            assert!(Instant::now() >= due);
        }
        let short = alarm.until(Instant::now() + Duration::from_millis(10));
        // It is set, and expires while nothing waits; on a slow machine it has expired already.
        let _ = timeout(Duration::ZERO, short).await;
        sleep(Duration::from_millis(30)).await;
        let long = alarm.until(Instant::now() + Duration::from_secs(3600));
        timeout(Duration::from_millis(60), long).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_time_that_has_passed_rings_at_once() {
        let alarm = Alarm::create();
        timeout(SOON, alarm.until(Instant::now())).await.unwrap();
    }
}
