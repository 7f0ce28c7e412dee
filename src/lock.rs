// SPDX-License-Identifier: Apache-2.0
//! One agent on a machine: a lock that ends with the process, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::{Flock, FlockArg, OFlag};

use crate::durable::{WriteError, own_directory};
use crate::root::Root;

/// Where we keep what lives until the next boot.
pub const RUN_DIRECTORY: &str = "/run/harvester-node-agent";

const NAME: &str = "lock";

/// The lock; held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

/// The lock was not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent runs.
    #[error(
        "another agent runs here (pid {0}); use `status` to ask it, `systemctl reload` to make it look again"
    )]
    Held(u32),
    /// The lock cannot be made.
    #[error("failed to lock `{RUN_DIRECTORY}/{NAME}`")]
    Io(#[source] std::io::Error),
    /// Nor its directory.
    #[error("failed to lock `{RUN_DIRECTORY}/{NAME}`")]
    Directory(#[source] WriteError),
}

/// Takes the lock, or says who has it.
pub fn acquire(root: &Root) -> Result<Lock, LockError> {
    let directory = own_directory(root, RUN_DIRECTORY, 0o755).map_err(LockError::Directory)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(directory.join(NAME))
        .map_err(LockError::Io)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            file.set_len(0).map_err(LockError::Io)?;
            writeln!(file, "{}", std::process::id()).map_err(LockError::Io)?;
            Ok(Lock { _file: file })
        }
        Err((mut file, _)) => Err(LockError::Held(pid_in(&mut file))),
    }
}

/// The process that holds the lock, if one does.
pub fn is_held(root: &Root) -> Option<u32> {
    let file = File::open(root.join(RUN_DIRECTORY).join(NAME)).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => None,
        Err((mut file, _)) => Some(pid_in(&mut file)),
    }
}

fn pid_in(file: &mut File) -> u32 {
    let mut text = String::new();
    let _ = file.take(16).read_to_string(&mut text);
    text.trim().parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_for_one_and_ends_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert_eq!(is_held(&root), None);
        let lock = acquire(&root).unwrap();
        assert_eq!(is_held(&root), Some(std::process::id()));
        assert!(matches!(acquire(&root), Err(LockError::Held(pid)) if pid == std::process::id()));
        drop(lock);
        assert_eq!(is_held(&root), None);
        acquire(&root).unwrap();
    }
}
