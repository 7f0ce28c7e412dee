// SPDX-License-Identifier: Apache-2.0
//! Notifications to systemd: ready, reloading, stopping, a status line, and the watchdog.
//!
//! The messages are those of `sd-notify`, but are sent here, because that library sends on a blocking socket and does not support
//! abstract addresses. A service manager that does not read must not block the loop. Messages about readiness, reloading and
//! stopping that could not be sent are kept and sent first the next time: a lost `READY=1` would make the start fail.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::sys::escape::one_line;

/// The maximum length of the status in characters. systemd reads at most 4096 bytes of a message, and drops a longer one.
const STATUS_LIMIT: usize = 500;

/// The maximum number of pending messages for a service manager that does not read; more than a start, a reload and a stop need.
const OWED_LIMIT: usize = 8;

/// The environment variables that systemd sets for a service, as read by main.
#[derive(Debug, Clone, Default)]
pub struct NotifyEnvironment {
    /// `NOTIFY_SOCKET`.
    pub notify_socket: Option<OsString>,
    /// `WATCHDOG_USEC`.
    pub watchdog_usec: Option<String>,
    /// `WATCHDOG_PID`.
    pub watchdog_pid: Option<String>,
}

/// The connection to systemd; without a socket no message is sent.
#[derive(Debug)]
pub struct Notifier {
    peer: Option<(UnixDatagram, SocketAddr)>,
    watchdog_interval: Option<Duration>,
    status: Option<String>,
    owed: VecDeque<String>,
}

impl Notifier {
    /// Opens the connection, if the socket can be used. `own_pid` is compared with `watchdog_pid`.
    pub fn new(environment: &NotifyEnvironment, own_pid: u32) -> Self {
        Self {
            peer: environment.notify_socket.as_deref().and_then(peer),
            watchdog_interval: watchdog_interval(environment, own_pid),
            status: None,
            owed: VecDeque::new(),
        }
    }

    /// Reports that the service is ready.
    pub fn ready(&mut self, status: &str) {
        let status = one_line(status, STATUS_LIMIT).into_owned();
        self.owe(&[NotifyState::Ready, NotifyState::Status(&status)]);
        self.status = Some(status);
    }

    /// Reports the state of the service, in one line. Sent only if it changed.
    pub fn status(&mut self, status: &str) {
        let status = one_line(status, STATUS_LIMIT);
        let is_new = self.status.as_deref() != Some(status.as_ref());
        if is_new && self.send(&[NotifyState::Status(&status)]) {
            self.status = Some(status.into_owned());
        }
    }

    /// Reports that the configuration is being reloaded; [`Notifier::ready`] must follow.
    pub fn reloading(&mut self) {
        // systemd 253 and newer requires the start time of the reload.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.owe(&[NotifyState::Reloading, now]),
            Err(_) => self.owe(&[NotifyState::Reloading]),
        }
    }

    /// Reports that the service is stopping.
    pub fn stopping(&mut self) {
        self.owe(&[NotifyState::Stopping]);
    }

    /// Notifies the watchdog. Must be called only by the loop itself, after progress.
    pub fn watchdog(&mut self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// Returns the interval for [`Notifier::watchdog`]: half the timeout of systemd. `None` if there is no watchdog.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog_interval
    }

    /// Sends a message now or before the next one that is accepted.
    fn owe(&mut self, states: &[NotifyState<'_>]) {
        if self.peer.is_some() {
            let least = self.owed.len().saturating_sub(OWED_LIMIT - 1);
            self.owed.drain(..least);
            self.owed.push_back(message(states));
            self.pay();
        }
    }

    /// Sends a message after the pending ones, or not at all.
    fn send(&mut self, states: &[NotifyState<'_>]) -> bool {
        self.pay() && self.put(&message(states))
    }

    /// Sends the pending messages, in order. Reports whether none is left.
    fn pay(&mut self) -> bool {
        while self.owed.front().is_some_and(|message| self.put(message)) {
            self.owed.pop_front();
        }
        self.owed.is_empty()
    }

    fn put(&self, message: &str) -> bool {
        self.peer.as_ref().is_some_and(|(socket, address)| {
            socket.send_to_addr(message.as_bytes(), address).is_ok()
        })
    }
}

/// Opens a path, or an abstract name after `@`. systemd uses other kinds only for a hypervisor.
fn peer(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
        [b'/', ..] => SocketAddr::from_pathname(name).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

fn message(states: &[NotifyState<'_>]) -> String {
    states.iter().map(|state| format!("{state}\n")).collect()
}

fn watchdog_interval(environment: &NotifyEnvironment, own_pid: u32) -> Option<Duration> {
    let is_ours = environment
        .watchdog_pid
        .as_ref()
        .is_none_or(|pid| pid.parse() == Ok(own_pid));
    let micros: u64 = environment.watchdog_usec.as_ref()?.parse().ok()?;
    (is_ours && micros > 0).then(|| Duration::from_micros(micros) / 2)
}

#[cfg(test)]
mod tests;
