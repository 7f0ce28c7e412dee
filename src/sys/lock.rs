// SPDX-License-Identifier: Apache-2.0
//! Ensures that only one agent runs on each system, and reports whether it runs.
//!
//! It is an open-file-description lock (`F_OFD_SETLK`), not `flock(2)`: only this kind can be queried without being acquired, so
//! that `status` never makes a daemon that starts at the same time detect another agent. The kernel releases it when the process
//! exits, for any reason. The file itself is never removed: two processes could then lock two files.
//!
//! The file is in the private directory, because every user who can open a file can lock it. For other users the running
//! agent publishes its process in the status file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use crate::sys::atomic_file::{Location, RUNTIME_DIRECTORY, WriteError};
use crate::sys::disk;
use crate::sys::root::{ReadError, Root};

/// The lock, in the private directory of the agent.
pub const LOCK_FILE: &str = "/var/lib/harvester-node-agent/lock";

/// The mode of the file: no other user can open it.
const LOCK_MODE: u32 = 0o600;

/// The maximum size of the file, in bytes: a process ID has at most ten digits.
const PID_LIMIT: u64 = 32;

/// The maximum size of a line of `/proc/PID/stat`, in bytes: it has some hundred.
const STAT_LIMIT: u64 = 4096;

/// The maximum size of the boot ID, in bytes: a UUID and a line end.
const BOOT_ID_LIMIT: u64 = 64;

/// How long a start waits for a disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);

/// The lock, held until dropped.
#[derive(Debug)]
pub struct Lock(File);

/// The process that holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The process ID, unless it is not yet written, or cannot be: the disk may be full.
    pub pid: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(formatter, "process {pid}"),
            None => write!(formatter, "another process"),
        }
    }
}

/// The reason why the lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent is running.
    #[error("`{LOCK_FILE}` is locked by {holder}")]
    Held {
        /// The other agent.
        holder: Holder,
    },
    /// The lock file cannot be used; whether another agent runs is unknown.
    #[error("failed to use the lock file")]
    Unusable(#[source] WriteError),
    /// The disk does not respond; whether another agent runs is unknown.
    #[error("the disk of `{LOCK_FILE}` does not respond")]
    Stalled,
}

/// Whether an agent runs on this system, as far as this user can determine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Presence {
    /// An agent runs.
    Running(Holder),
    /// No agent runs.
    Absent,
    /// The kernel hides other users' processes from this user, or the agent has just started.
    #[default]
    Unknown,
}

/// A process on this system. Later processes may have the same process ID, but not the same start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The process ID.
    pub pid: u32,
    /// The start time, in clock ticks since the boot (`starttime` of `proc_pid_stat(5)`).
    pub start_ticks: u64,
    /// The boot of the start time.
    pub boot_id: String,
}

impl Instance {
    /// Returns this process, if `/proc` shows it.
    pub fn own() -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            pid,
            start_ticks: start_ticks(pid).ok()??,
            boot_id: boot_id()?,
        })
    }

    /// Reports whether the process is known to run.
    pub fn is_running(&self) -> bool {
        matches!(self.presence(), Presence::Running(_))
    }

    /// Reports whether the process still runs.
    fn presence(&self) -> Presence {
        if boot_id().as_ref() != Some(&self.boot_id) {
            return Presence::Absent;
        }
        match start_ticks(self.pid) {
            Ok(ticks) if ticks == Some(self.start_ticks) => Presence::Running(Holder {
                pid: Some(self.pid),
            }),
            Ok(_) => Presence::Absent,
            // With `hidepid=` a user other than root cannot see the processes of other users, not even process 1.
            Err(error) if error.is_absent() && start_ticks(1).is_ok() => Presence::Absent,
            Err(_) => Presence::Unknown,
        }
    }
}

/// Acquires the lock, or returns its holder. Waits for no other process, and some seconds for a disk that does not respond.
pub fn acquire(root: &Root) -> Result<Lock, LockError> {
    let tree = root.clone();
    let opened = disk::within(DISK_TIMEOUT, move || lock(&tree));
    let lock = opened.unwrap_or(Err(LockError::Stalled))?;
    // The process ID is only for users; the lock is also valid without it (when the disk is full).
    let file = lock.0.try_clone();
    // Closed before the result is there: each descriptor keeps the lock.
    disk::within(DISK_TIMEOUT, move || file.and_then(write_pid));
    Ok(lock)
}

fn lock(root: &Root) -> Result<Lock, LockError> {
    let place = Location::open(root, Path::new(LOCK_FILE)).map_err(LockError::Unusable)?;
    let opened = place.open_in_place(LOCK_MODE);
    let mut file = opened.map_err(LockError::Unusable)?;
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => {}
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let holder = read_holder(&mut file);
            return Err(LockError::Held { holder });
        }
        Err(errno) => return Err(LockError::Unusable(place.io_error("lock")(errno))),
    }
    Ok(Lock(file))
}

/// Reports whether an agent runs, without changing its lock. `published` is the process in the last status: it
/// decides for users who cannot open the lock, and for a daemon that could not acquire it.
pub fn presence(root: &Root, published: Option<&Instance>) -> Presence {
    let holder = holder(root);
    if let Ok(Some(holder)) = holder {
        return Presence::Running(holder);
    }
    let is_hidden = matches!(holder, Err(Errno::EACCES | Errno::EPERM));
    match published {
        Some(instance) => instance.presence(),
        // A running agent has a runtime directory, which has no status just after the start.
        None if is_hidden && root.exists(RUNTIME_DIRECTORY) => Presence::Unknown,
        None => Presence::Absent,
    }
}

/// Returns the holder of the lock, if there is one.
fn holder(root: &Root) -> nix::Result<Option<Holder>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut file = File::from(root.open_below(Path::new(LOCK_FILE), flags)?);
    let mut answer = whole_file(libc::F_RDLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut answer))?;
    Ok((i32::from(answer.l_type) != libc::F_UNLCK).then(|| read_holder(&mut file)))
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // The kernel requires 0 here for open-file-description locks.
        l_pid: 0,
    }
}

fn write_pid(mut file: File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(PID_LIMIT).read_to_string(&mut text);
    let pid = read.ok().and_then(|_| text.trim_end().parse().ok());
    Holder { pid }
}

/// Returns the start time of a process; `None` for a zombie. It is read from the running kernel, also with `--root`.
fn start_ticks(pid: u32) -> Result<Option<u64>, ReadError> {
    let stat = Root::new("/").read_text(format!("/proc/{pid}/stat"), STAT_LIMIT)?;
    Ok(parse_stat(&stat))
}

/// Parses the `starttime` of a line. The program name in parentheses may contain any character, so the line is split at the
/// last closing parenthesis.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    let ticks = fields.nth(18)?.parse().ok()?;
    (!has_ended).then_some(ticks)
}

fn boot_id() -> Option<String> {
    let id = Root::new("/").read_text("/proc/sys/kernel/random/boot_id", BOOT_ID_LIMIT);
    Some(id.ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests;
