// SPDX-License-Identifier: Apache-2.0
//! One agent on each machine.
//!
//! An open-file-description lock (`F_OFD_SETLK`), not `flock(2)`: only it can be asked about without being taken, so that
//! `status` never makes a daemon that starts in the same instant believe that another one is running. The kernel releases it
//! when the process ends, however it ends. The file itself is never removed: two processes could then lock two files.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::libc;
use nix::sys::stat::Mode;

use crate::durable::{Place, RUNTIME_DIRECTORY, WriteError, open_below};
use crate::root::Root;

/// In our runtime directory; readable by all, so that `status` works for all.
pub const LOCK_FILE: &str = "/run/harvester-node-agent/lock";

/// Its name in that directory.
const LOCK_NAME: &str = "lock";

/// A process number has ten digits at most.
const PID_LIMIT: u64 = 32;

/// The right to be the only agent, until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Who has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process, unless it has not got round to writing it down.
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

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent is running.
    #[error("`{LOCK_FILE}` is held by {holder}")]
    Held {
        /// The other agent.
        holder: Holder,
    },
    /// The lock file cannot be used, which says nothing about other agents.
    #[error("failed to use the lock file")]
    Unusable(#[source] WriteError),
}

/// Takes the lock, or says who has it. Never waits.
pub fn acquire(root: &Root) -> Result<Lock, LockError> {
    let place = Place::open(root, Path::new(LOCK_FILE)).map_err(LockError::Unusable)?;
    let mut file = place.open_in_place(0o644).map_err(LockError::Unusable)?;
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => {}
        Err(Errno::EAGAIN | Errno::EACCES) => {
            let holder = read_holder(&mut file);
            return Err(LockError::Held { holder });
        }
        Err(errno) => return Err(LockError::Unusable(place.io_error("lock")(errno))),
    }
    // The number is for people; without it (a full disk) the lock is as good.
    let _ = write_pid(&mut file);
    Ok(Lock { _file: file })
}

/// Who has the lock, without touching it; `None` where nobody has.
pub fn is_held(root: &Root) -> Option<Holder> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let directory = open_below(root, Path::new(RUNTIME_DIRECTORY)).ok()?;
    let mut file = File::from(openat(&directory, LOCK_NAME, flags, Mode::empty()).ok()?);
    let mut answer = whole_file(libc::F_RDLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut answer)).ok()?;
    (i32::from(answer.l_type) != libc::F_UNLCK).then(|| read_holder(&mut file))
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        // The kernel demands 0 here for open-file-description locks.
        l_pid: 0,
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.take(PID_LIMIT).read_to_string(&mut text);
    let pid = read.ok().and_then(|_| text.trim_end().parse().ok());
    Holder { pid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_process;
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        (dir, root)
    }

    #[test]
    fn a_second_agent_is_told_who_the_first_is() {
        if !own_process("lock::tests::a_second_agent_is_told_who_the_first_is").is_child() {
            return;
        }
        let (_dir, root) = tree();
        assert_eq!(is_held(&root), None);
        let lock = acquire(&root).unwrap();
        let me = Holder {
            pid: Some(std::process::id()),
        };
        assert_eq!(is_held(&root), Some(me));
        let Err(LockError::Held { holder }) = acquire(&root) else {
            panic!("two locks")
        };
        assert_eq!(holder, me);
        drop(lock);
        assert_eq!(is_held(&root), None);
        acquire(&root).unwrap();
    }

    #[test]
    fn asking_who_holds_the_lock_never_keeps_an_agent_from_starting() {
        if !own_process("lock::tests::asking_who_holds_the_lock_never_keeps_an_agent_from_starting")
            .is_child()
        {
            return;
        }
        let (_dir, root) = tree();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    is_held(&root);
                }
            });
            let refused = (0..2000).filter(|_| acquire(&root).is_err()).count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
    }

    #[test]
    fn a_lock_file_without_a_number_still_names_a_holder() {
        let (_dir, root) = tree();
        let _lock = acquire(&root).unwrap();
        std::fs::write(root.join(LOCK_FILE), "rubbish\x1b[31m").unwrap();
        assert_eq!(is_held(&root), Some(Holder { pid: None }));
        assert_eq!(
            acquire(&root).unwrap_err().to_string(),
            format!("`{LOCK_FILE}` is held by another process")
        );
    }

    #[test]
    fn a_planted_link_is_not_followed() {
        let (dir, root) = tree();
        drop(acquire(&root).unwrap());
        std::fs::remove_file(root.join(LOCK_FILE)).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, root.join(LOCK_FILE)).unwrap();
        assert!(matches!(acquire(&root), Err(LockError::Unusable(_))));
        assert_eq!(is_held(&root), None);
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn the_lock_of_a_killed_process_is_free() {
        const HOLDER: &str = "HARVESTER_NODE_AGENT_TEST_LOCK_ROOT";
        if let Some(dir) = std::env::var_os(HOLDER) {
            let _lock = acquire(&Root::new(dir)).unwrap();
            println!("\nlocked");
            let _ = io::stdin().read_line(&mut String::new());
            return;
        }
        let (dir, root) = tree();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "lock::tests::the_lock_of_a_killed_process_is_free",
                "--nocapture",
            ])
            .env(HOLDER, dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = io::BufReader::new(child.stdout.take().unwrap());
        let locked = output.lines().any(|line| line.unwrap() == "locked");
        assert!(locked, "the child ended without a lock");
        assert_eq!(
            is_held(&root),
            Some(Holder {
                pid: Some(child.id())
            })
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(is_held(&root), None);
        acquire(&root).unwrap();
    }
}
