// SPDX-License-Identifier: Apache-2.0
//! Replaces files atomically.
//!
//! A reader never sees an incomplete file, an unchanged file is not written, and a planted object at the
//! path (a symbolic or hard link, a FIFO, another user's file) is never followed, opened for writing or replaced.

mod directory;
mod error;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{Uid, UnlinkatFlags, fsync, unlinkat};

use crate::sys::root::Root;
use directory::{PRIVATE_MODE, ancestor, open_steadily, own_directory, shared};
pub use error::WriteError;
use error::{io_error, refused};

/// The agent's directory for files that may be lost at a reboot: the status. World-readable, so it must never contain a secret.
pub const RUNTIME_DIRECTORY: &str = "/run/harvester-node-agent";

/// The agent's directory for files that must survive a reboot, and for the lock. Private to root: no other user can open a file in
/// it.
pub const STATE_DIRECTORY: &str = "/var/lib/harvester-node-agent";

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file now has the new content.
    Written,
    /// The file already had this content and mode, and was not changed.
    Unchanged,
}

/// Replaces the content of the file at `path` with `bytes` and sets exactly the permissions `mode`, unless the file already has
/// both.
///
/// The agent's own two directories are created when missing; any other directory must exist.
pub fn write_atomic(
    root: &Root,
    path: impl AsRef<Path>,
    bytes: &[u8],
    mode: u32,
) -> Result<WriteOutcome, WriteError> {
    Location::open(root, path.as_ref())?.replace(bytes, mode)
}

/// Replaces the content of a file that only root may read, as [`write_atomic`] with mode 0600, in any directory that other users
/// cannot write to. After a power failure, the file has the old or the new content.
pub fn write_secret(root: &Root, path: &Path, bytes: &[u8]) -> Result<WriteOutcome, WriteError> {
    let place = Location {
        outlives_a_boot: true,
        ..Location::open(root, path)?
    };
    let found = fstat(&place.directory).map_err(place.io_error("examine the directory of"))?;
    if let Some(reason) = shared(found.st_uid, found.st_mode) {
        return Err(refused(path, path.parent().unwrap_or(path), reason));
    }
    place.replace(bytes, 0o600)
}

/// Renames the file at `path` by appending `.suffix`, and replaces an earlier one of that name: only one such file is kept.
pub fn move_aside(
    root: &Root,
    path: impl AsRef<Path>,
    suffix: &str,
) -> Result<PathBuf, WriteError> {
    let place = Location::open(root, path.as_ref())?;
    let aside = format!("{}.{suffix}", place.name);
    let moved = place.rename(&place.name, &aside);
    moved.map_err(place.io_error("move aside"))?;
    Ok(place.path.with_file_name(aside))
}

/// Creates a directory and its missing parents, readable by all users.
pub fn make_directory(root: &Root, directory: &Path) -> Result<(), WriteError> {
    ancestor(root, directory)
        .map(drop)
        .map_err(io_error("create", directory))
}

/// Removes the file at `path`, if it exists and is the agent's.
pub fn remove(root: &Root, path: impl AsRef<Path>) -> Result<(), WriteError> {
    let place = Location::open(root, path.as_ref())?;
    place.remove_new();
    if place.stat()?.is_none() {
        return Ok(());
    }
    let removed = place.unlink(&place.name);
    removed.map_err(place.io_error("remove"))
}

/// A name in a directory that is held open, so that no later change of the path above it can redirect a write.
#[derive(Debug)]
pub(crate) struct Location {
    directory: OwnedFd,
    /// Whether the file is read after a boot: the state, and the configuration of the distribution. Other files may be lost at a power
    /// failure: /run is lost anyway, and metrics are written again.
    outlives_a_boot: bool,
    path: PathBuf,
    name: String,
}

impl Location {
    /// Opens the directory of `path`, and creates it if it is one of the agent's own.
    pub(crate) fn open(root: &Root, path: &Path) -> Result<Self, WriteError> {
        let invalid = || WriteError::Io {
            action: "find the directory of",
            path: path.to_owned(),
            source: Errno::EINVAL.into(),
        };
        let parent = path.parent().ok_or_else(invalid)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(invalid)?;
        let is_state = parent == Path::new(STATE_DIRECTORY);
        let directory = if is_state {
            own_directory(root, path, parent, PRIVATE_MODE)?
        } else if parent == Path::new(RUNTIME_DIRECTORY) {
            own_directory(root, path, parent, 0o755)?
        } else {
            open_steadily(root, path, parent)?
        };
        Ok(Self {
            directory,
            outlives_a_boot: is_state || parent.starts_with("/etc"),
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns the status of the object with this name, if there is one. Fails unless it is a regular file of the agent.
    pub(crate) fn stat(&self) -> Result<Option<FileStat>, WriteError> {
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        match fstatat(&self.directory, self.name.as_str(), flags) {
            Ok(found) => match objection(&found) {
                None => Ok(Some(found)),
                Some(reason) => Err(self.refused(reason)),
            },
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.io_error("examine")(errno)),
        }
    }

    fn replace(&self, bytes: &[u8], mode: u32) -> Result<WriteOutcome, WriteError> {
        let present = self.stat()?;
        // It may be left of a process that was killed before the rename.
        let removed = self.unlink(&self.new_name());
        if present.is_some_and(|present| present.st_mode & 0o7777 == mode) && self.holds(bytes) {
            return Ok(WriteOutcome::Unchanged);
        }
        if let Err(errno) = removed
            && errno != Errno::ENOENT
        {
            return Err(self.io_error("create")(errno));
        }
        let result = self.write_new(bytes, mode).and_then(|()| self.publish());
        if result.is_err() {
            self.remove_new();
        }
        result.map(|()| WriteOutcome::Written)
    }

    /// Removes the temporary file, if there is one. Best effort: the next write removes it, too.
    fn remove_new(&self) {
        let _ = self.unlink(&self.new_name());
    }

    /// Opens the file for reading and writing in place with exactly the permissions `mode`, and creates an empty file if there
    /// is none.
    pub(crate) fn open_in_place(&self, mode: u32) -> Result<File, WriteError> {
        // Before the file is opened: opening a FIFO or a device may have a side effect.
        self.stat()?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK;
        let file = self
            .open_name(&self.name, flags, mode)
            .map_err(self.io_error("open"))?;
        let found = fstat(&file).map_err(self.io_error("examine"))?;
        if let Some(reason) = objection(&found) {
            return Err(self.refused(reason));
        }
        if found.st_mode & 0o7777 != mode {
            let mode = Mode::from_bits_truncate(mode);
            fchmod(&file, mode).map_err(self.io_error("set the mode of"))?;
        }
        Ok(file)
    }

    /// Returns a function that converts the kernel's error to the error of an action on this file.
    pub(crate) fn io_error<E: Into<io::Error>>(
        &self,
        action: &'static str,
    ) -> impl FnOnce(E) -> WriteError {
        io_error(action, &self.path)
    }

    /// Reports whether the file has exactly this content. An unreadable file counts as different.
    fn holds(&self, bytes: &[u8]) -> bool {
        let Ok(file) = self.open_name(&self.name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0) else {
            return false;
        };
        let mut present = Vec::new();
        let limit = (bytes.len() as u64).saturating_add(1);
        file.take(limit).read_to_end(&mut present).is_ok() && present == bytes
    }

    fn write_new(&self, bytes: &[u8], mode: u32) -> Result<(), WriteError> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = self
            .open_name(&self.new_name(), flags, mode)
            .map_err(self.io_error("create"))?;
        // The mode of open(2) is restricted by the umask, which the unit sets to 0077.
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(self.io_error("set the mode of"))?;
        file.write_all(bytes).map_err(self.io_error("write"))?;
        if self.outlives_a_boot {
            file.sync_all().map_err(self.io_error("sync"))?;
        }
        Ok(())
    }

    fn publish(&self) -> Result<(), WriteError> {
        let renamed = self.rename(&self.new_name(), &self.name);
        renamed.map_err(self.io_error("replace"))?;
        if self.outlives_a_boot {
            fsync(&self.directory).map_err(self.io_error("sync the directory of"))?;
        }
        Ok(())
    }

    fn rename(&self, name: &str, new: &str) -> nix::Result<()> {
        renameat(&self.directory, name, &self.directory, new)
    }

    fn unlink(&self, name: &str) -> nix::Result<()> {
        unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir)
    }

    fn open_name(&self, name: &str, flags: OFlag, mode: u32) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, name, flags, Mode::from_bits_truncate(mode)).map(File::from)
    }

    /// Returns the name of the temporary file. It is fixed, so that killed processes leave at most one. It does not end in `.prom`
    /// or `.json`: no other program may read it.
    fn new_name(&self) -> String {
        format!(".{}.new", self.name)
    }

    fn refused(&self, reason: &'static str) -> WriteError {
        refused(&self.path, &self.path, reason)
    }
}

/// Returns the reason why an existing file must not be written.
fn objection(found: &FileStat) -> Option<&'static str> {
    let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFLNK {
        Some("is a symbolic link")
    } else if kind != SFlag::S_IFREG {
        Some("is not a regular file")
    } else if found.st_uid != Uid::effective().as_raw() {
        Some("belongs to another user")
    } else if found.st_nlink > 1 {
        Some("has another hard link")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
