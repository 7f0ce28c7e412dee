// SPDX-License-Identifier: Apache-2.0
//! What is sent to systemd: ready, reloading, stopping, one line of status, and that the loop still turns.
//!
//! The words are those of `sd-notify`; the sending is our own, because that library sends on a blocking socket and knows
//! no abstract addresses. A service manager that does not read must not stop the loop. What it could not take of readiness,
//! reloading and stopping is kept and sent first the next time: a lost `READY=1` would end in a failed start.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::sys::escape::one_line;

/// Longest status in characters. systemd reads 4096 bytes of a message at most, and drops a longer one whole.
const STATUS_LIMIT: usize = 500;

/// Messages kept for a service manager that does not read; more than one start, reload and stop need.
const OWED_LIMIT: usize = 8;

/// The environment variables that systemd sets for a service, as main read them.
#[derive(Debug, Clone, Copy, Default)]
pub struct NotifyEnvironment<'a> {
    /// `NOTIFY_SOCKET`.
    pub notify_socket: Option<&'a OsStr>,
    /// `WATCHDOG_USEC`.
    pub watchdog_usec: Option<&'a str>,
    /// `WATCHDOG_PID`.
    pub watchdog_pid: Option<&'a str>,
}

/// The line to systemd; without a socket every message goes nowhere.
#[derive(Debug)]
pub struct Notifier {
    line: Option<StatusLine>,
    watchdog_interval: Option<Duration>,
    status: Option<String>,
    owed: VecDeque<String>,
}

#[derive(Debug)]
struct StatusLine {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Opens the line, if there is one that can be used. `own_pid` tells whether the watchdog means us.
    pub fn new(environment: &NotifyEnvironment<'_>, own_pid: u32) -> Self {
        Self {
            line: environment.notify_socket.and_then(StatusLine::open),
            watchdog_interval: watchdog_interval(environment, own_pid),
            status: None,
            owed: VecDeque::new(),
        }
    }

    /// The service is up.
    pub fn ready(&mut self, status: &str) {
        let status = one_line(status, STATUS_LIMIT).into_owned();
        self.owe(&[NotifyState::Ready, NotifyState::Status(&status)]);
        self.status = Some(status);
    }

    /// What the service does now, in one line. Sent only when it changed.
    pub fn status(&mut self, status: &str) {
        let status = one_line(status, STATUS_LIMIT);
        let is_new = self.status.as_deref() != Some(status.as_ref());
        if is_new && self.send(&[NotifyState::Status(&status)]) {
            self.status = Some(status.into_owned());
        }
    }

    /// The configuration is being read again; [`Notifier::ready`] has to follow.
    pub fn reloading(&mut self) {
        // systemd 253 and newer wants to know when the reload began.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.owe(&[NotifyState::Reloading, now]),
            Err(_) => self.owe(&[NotifyState::Reloading]),
        }
    }

    /// The service is going down.
    pub fn stopping(&mut self) {
        self.owe(&[NotifyState::Stopping]);
    }

    /// The loop turns. Never call this from anything but the loop itself, after progress.
    pub fn watchdog(&mut self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// How often to call [`Notifier::watchdog`]: twice in the time that systemd waits. `None` where it does not wait.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_interval
    }

    /// Sends a message now or with the next one that gets through.
    fn owe(&mut self, states: &[NotifyState<'_>]) {
        if self.line.is_none() {
            return;
        }
        if self.owed.len() >= OWED_LIMIT {
            self.owed.pop_front();
        }
        self.owed.push_back(message(states));
        self.pay();
    }

    /// Sends a message after those that are owed, or not at all.
    fn send(&mut self, states: &[NotifyState<'_>]) -> bool {
        self.pay() && self.put(&message(states))
    }

    /// Sends what is owed, in order. Returns whether nothing is left.
    fn pay(&mut self) -> bool {
        while let Some(message) = self.owed.front() {
            if !self.put(message) {
                return false;
            }
            self.owed.pop_front();
        }
        true
    }

    fn put(&self, message: &str) -> bool {
        self.line.as_ref().is_some_and(|line| {
            let sent = line.socket.send_to_addr(message.as_bytes(), &line.address);
            sent.is_ok()
        })
    }
}

impl StatusLine {
    /// A path, or an abstract name after `@`. systemd uses other kinds only towards a hypervisor.
    fn open(name: &OsStr) -> Option<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
            [b'/', ..] => SocketAddr::from_pathname(name).ok()?,
            _ => return None,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, address })
    }
}

fn message(states: &[NotifyState<'_>]) -> String {
    states.iter().fold(String::new(), |mut text, state| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{state}");
        text
    })
}

fn watchdog_interval(environment: &NotifyEnvironment<'_>, own_pid: u32) -> Option<Duration> {
    let is_ours = environment
        .watchdog_pid
        .is_none_or(|pid| pid.parse() == Ok(own_pid));
    let micros: u64 = environment.watchdog_usec?.parse().ok()?;
    (is_ours && micros > 0).then(|| Duration::from_micros(micros) / 2)
}

#[cfg(test)]
mod tests;
