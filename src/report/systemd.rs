// SPDX-License-Identifier: Apache-2.0
//! What systemd is told (`sd_notify(3)`).

use std::time::Duration;

use sd_notify::NotifyState;

/// The line to systemd; where there is none, every call does nothing.
///
/// The datagrams are few and small and PID 1 reads them before all else; a PID 1 that does not read is a machine that does
/// nothing at all. So the library's blocking send is left as it is.
#[derive(Debug)]
pub struct Notifier {
    present: bool,
    watchdog: Option<Duration>,
    status: String,
}

impl Notifier {
    /// The line of this process; `present` says whether `NOTIFY_SOCKET` is set.
    pub fn new(present: bool) -> Self {
        let watchdog = if present {
            sd_notify::watchdog_enabled()
        } else {
            None
        };
        Self {
            present,
            watchdog,
            status: String::new(),
        }
    }

    /// How often [`Self::alive`] must be called: half of `WatchdogSec=`.
    pub fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    /// The service is up.
    pub fn ready(&mut self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The line that `systemctl status` shows, when it changed.
    pub fn status(&mut self, line: &str) {
        if self.status != line {
            line.clone_into(&mut self.status);
            self.send(&[NotifyState::Status(line)]);
        }
    }

    /// The loop works.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            self.send(&[NotifyState::Watchdog]);
        }
    }

    /// The configuration is being read again; [`Self::ready`] follows.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.present
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::debug!(%error, "failed to notify systemd");
        }
    }
}
