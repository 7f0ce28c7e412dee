// SPDX-License-Identifier: Apache-2.0
//! A timer that wakes the process exactly once, when it expires.
//!
//! tokio's own timers move through a wheel of slots and wake the process at each step: up to two additional times for a wait of
//! half a minute. For the waits of an idle process, the kernel's timer (`timerfd_create(2)`) has no additional wake-ups.

#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::net::unix::pipe;

/// The minimum wait; zero would disarm the kernel's timer.
const LEAST: Duration = Duration::from_micros(1);

/// The timer.
#[derive(Debug)]
pub struct Alarm {
    #[cfg(not(test))]
    timer: Kernel,
    /// In tests, a wrapper: the kernel's clock cannot be paused.
    #[cfg(test)]
    timer: testing::Timer<Kernel>,
}

impl Alarm {
    /// Creates a disarmed timer, on the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the kernel provides no descriptor.
    pub fn new() -> std::io::Result<Self> {
        #[cfg(not(test))]
        let timer = Kernel::new()?;
        #[cfg(test)]
        let timer = testing::Timer::new(Kernel::new)?;
        Ok(Self { timer })
    }

    /// Sets the timer to expire after `wait`, and replaces its earlier setting.
    pub fn set(&self, wait: Duration) {
        self.timer.set(wait);
    }

    /// Waits until the timer expires. Cancel-safe: an expiration without a waiter is kept.
    pub async fn ring(&self) {
        self.timer.ring().await;
    }
}

/// The kernel's timer.
#[derive(Debug)]
pub(crate) struct Kernel {
    timer: TimerFd,
    /// The same timer, in a form for which tokio can wait.
    ring: pipe::Receiver,
}

impl Kernel {
    fn new() -> std::io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let descriptor = std::os::fd::AsFd::as_fd(&timer).try_clone_to_owned()?;
        // tokio treats it like the read end of a pipe: a descriptor that becomes readable.
        let ring = pipe::Receiver::from_owned_fd_unchecked(descriptor)?;
        Ok(Self { timer, ring })
    }

    pub(crate) fn set(&self, wait: Duration) {
        let expiration = Expiration::OneShot(TimeSpec::from_duration(wait.max(LEAST)));
        if let Err(error) = self.timer.set(expiration, TimerSetTimeFlags::empty()) {
            tracing::debug!(%error, "failed to set the timer");
        }
    }

    pub(crate) async fn ring(&self) {
        let mut count = [0; 8];
        loop {
            match self.ring.readable().await {
                Ok(()) => match self.ring.try_read(&mut count) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => return,
                },
                // The descriptor is open, so this cannot happen. If it does, the loop must not spin.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvester_lab::world::SOON;
    use tokio::time::{Instant, timeout};

    #[tokio::test]
    async fn it_rings_once_when_it_is_due_and_again_when_it_is_set_again() {
        let alarm = Alarm::new().unwrap();
        for _ in 0..3 {
            let due = Instant::now() + Duration::from_millis(30);
            alarm.set(Duration::from_millis(30));
            timeout(SOON, alarm.ring()).await.unwrap();
            assert!(Instant::now() >= due);
            timeout(Duration::from_millis(60), alarm.ring())
                .await
                .unwrap_err();
        }
    }

    #[tokio::test]
    async fn a_new_setting_replaces_the_old_one_and_zero_rings_at_once() {
        let alarm = Alarm::new().unwrap();
        alarm.set(Duration::from_millis(10));
        alarm.set(Duration::from_secs(3600));
        timeout(Duration::from_millis(60), alarm.ring())
            .await
            .unwrap_err();
        alarm.set(Duration::ZERO);
        timeout(SOON, alarm.ring()).await.unwrap();
    }
}
