// SPDX-License-Identifier: Apache-2.0
//! Replaces files atomically.
//!
//! A reader never sees an incomplete file, an unchanged file is not written, and a planted object at the
//! path (a symbolic or hard link, a FIFO, another user's file) is never followed, opened for writing or replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, fsync, unlinkat};

use crate::sys::root::Root;

/// The agent's directory for files that may be lost at a reboot: the status. World-readable, so it must never contain a secret.
pub const RUNTIME_DIRECTORY: &str = "/run/harvester-node-agent";

/// The agent's directory for files that must survive a reboot, and for the lock. Private to root: no other user can open a file in
/// it.
pub const STATE_DIRECTORY: &str = "/var/lib/harvester-node-agent";

/// The mode of missing parent directories of the agent's directories (only below `--root`).
const ANCESTOR_MODE: u32 = 0o755;

/// The mode of the state directory.
const PRIVATE_MODE: u32 = 0o700;

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file now has the new content.
    Written,
    /// The file already had this content and mode, and was not changed.
    Unchanged,
}

/// The reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object at the path must not be changed.
    #[error("did not write `{path}`: `{obstacle}` {reason}")]
    Refused {
        /// The file that was to be written.
        path: PathBuf,
        /// The object.
        obstacle: PathBuf,
        /// The problem of the object.
        reason: &'static str,
    },
    /// A system call failed.
    #[error("failed to {action} `{path}`")]
    Io {
        /// The step, such as "rename".
        action: &'static str,
        /// The file or directory of that step.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
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
    let place = Location::open(root, path.as_ref())?;
    if let Some(present) = place.stat()?
        && present.st_mode & 0o7777 == mode
        && place.holds(bytes)
    {
        return Ok(WriteOutcome::Unchanged);
    }
    let result = place.write_new(bytes, mode).and_then(|()| place.publish());
    if result.is_err() {
        // Best effort: the first error is the relevant one, and the next write removes the file.
        let _ = unlinkat(
            &place.directory,
            place.new_name().as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
    result.map(|()| WriteOutcome::Written)
}

/// Renames the file at `path` by appending `.suffix`, and replaces an earlier one of that name: only one such file is kept.
pub fn move_aside(
    root: &Root,
    path: impl AsRef<Path>,
    suffix: &str,
) -> Result<PathBuf, WriteError> {
    let place = Location::open(root, path.as_ref())?;
    let aside = format!("{}.{suffix}", place.name);
    renameat(
        &place.directory,
        place.name.as_str(),
        &place.directory,
        aside.as_str(),
    )
    .map_err(place.io_error("move aside"))?;
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
    if place.stat()?.is_none() {
        return Ok(());
    }
    unlinkat(
        &place.directory,
        place.name.as_str(),
        UnlinkatFlags::NoRemoveDir,
    )
    .map_err(place.io_error("remove"))
}

/// A name in a directory that is held open, so that no later change of the path above it can redirect a write.
#[derive(Debug)]
pub(crate) struct Location {
    directory: OwnedFd,
    keeping: Keeping,
    path: PathBuf,
    name: String,
}

/// The purpose of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Runtime,
    State,
    /// The configuration of the distribution or systemd, which is also read at the next boot.
    Configuration,
    /// A directory of another program, such as the metrics directory of the node exporter.
    Foreign,
}

impl Keeping {
    fn of(directory: &Path) -> Self {
        if directory == Path::new(RUNTIME_DIRECTORY) {
            Self::Runtime
        } else if directory == Path::new(STATE_DIRECTORY) {
            Self::State
        } else if directory.starts_with("/etc") {
            Self::Configuration
        } else {
            Self::Foreign
        }
    }

    fn outlives_a_boot(self) -> bool {
        matches!(self, Self::State | Self::Configuration)
    }
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
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(invalid)?;
        let keeping = Keeping::of(parent);
        let directory = match keeping {
            Keeping::Runtime => own_directory(root, path, parent, 0o755)?,
            Keeping::State => own_directory(root, path, parent, PRIVATE_MODE)?,
            Keeping::Configuration | Keeping::Foreign => open_steadily(root, path, parent)?,
        };
        Ok(Self {
            directory,
            keeping,
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns the status of the object with this name, if there is one. Fails unless it is a regular file of the agent.
    pub(crate) fn stat(&self) -> Result<Option<FileStat>, WriteError> {
        let found = fstatat(
            &self.directory,
            self.name.as_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        match found {
            Ok(found) => match objection(&found) {
                None => Ok(Some(found)),
                Some(reason) => Err(self.refused(reason)),
            },
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.io_error("examine")(errno)),
        }
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
        let mut file = self.create_new(mode).map_err(self.io_error("create"))?;
        // The mode of open(2) is restricted by the umask, which the unit sets to 0077.
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(self.io_error("set the mode of"))?;
        file.write_all(bytes).map_err(self.io_error("write"))?;
        if self.keeping.outlives_a_boot() {
            file.sync_all().map_err(self.io_error("sync"))?;
        }
        Ok(())
    }

    fn create_new(&self, mode: u32) -> nix::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let name = self.new_name();
        match self.open_name(&name, flags, mode) {
            // Left by a process that was killed before the rename.
            Err(Errno::EEXIST) => {
                unlinkat(&self.directory, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
                self.open_name(&name, flags, mode)
            }
            other => other,
        }
    }

    fn publish(&self) -> Result<(), WriteError> {
        renameat(
            &self.directory,
            self.new_name().as_str(),
            &self.directory,
            self.name.as_str(),
        )
        .map_err(self.io_error("replace"))?;
        // Other files may be lost at a power failure: /run is lost anyway, and metrics are written again.
        if self.keeping.outlives_a_boot() {
            fsync(&self.directory).map_err(self.io_error("sync the directory of"))?;
        }
        Ok(())
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
        WriteError::Refused {
            path: self.path.clone(),
            obstacle: self.path.clone(),
            reason,
        }
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

/// Opens one of the agent's own directories, which must not be a link, and which only the agent may own and write to.
fn own_directory(
    root: &Root,
    path: &Path,
    directory: &Path,
    mode: u32,
) -> Result<OwnedFd, WriteError> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return open_below(root, directory).map_err(io_error("open", directory));
    };
    let refused = |reason| WriteError::Refused {
        path: path.to_owned(),
        obstacle: directory.to_owned(),
        reason,
    };
    let parent = ancestor(root, parent).map_err(io_error("open", parent))?;
    let created = match mkdirat(&parent, name, Mode::from_bits_truncate(mode)) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        // On a read-only file system this is the error even if the directory exists.
        Err(Errno::EROFS) => false,
        Err(errno) => return Err(io_error("create", directory)(errno)),
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let opened = match openat(&parent, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::ELOOP | Errno::ENOTDIR) => return Err(refused("is not a directory")),
        Err(errno) => return Err(io_error("open", directory)(errno)),
    };
    let found = fstat(&opened).map_err(io_error("examine", directory))?;
    if found.st_uid != Uid::effective().as_raw() {
        return Err(refused("belongs to another user"));
    }
    if !created && found.st_mode & 0o022 != 0 {
        return Err(refused("is writable by other users"));
    }
    // As for files: the result must not depend on the umask. A private directory that others can enter is restricted again.
    let is_open = mode == PRIVATE_MODE && found.st_mode & 0o077 != 0;
    if created || is_open {
        fchmod(&opened, Mode::from_bits_truncate(mode))
            .map_err(io_error("set the mode of", directory))?;
    }
    Ok(opened)
}

/// Opens a directory, and creates its missing components: `/run` or `/var/lib` in an empty tree below `--root`, or the directory
/// of a distribution's drop-ins.
fn ancestor(root: &Root, directory: &Path) -> nix::Result<OwnedFd> {
    match (
        open_below(root, directory),
        directory.parent(),
        directory.file_name(),
    ) {
        (Err(Errno::ENOENT), Some(parent), Some(name)) => {
            let parent = ancestor(root, parent)?;
            match mkdirat(&parent, name, Mode::from_bits_truncate(ANCESTOR_MODE)) {
                Ok(()) => {
                    let made = open_below(root, directory)?;
                    // The result must not depend on the umask, which the unit sets to 0077.
                    fchmod(&made, Mode::from_bits_truncate(ANCESTOR_MODE))?;
                    Ok(made)
                }
                Err(Errno::EEXIST) => open_below(root, directory),
                Err(errno) => Err(errno),
            }
        }
        (opened, ..) => opened,
    }
}

/// Opens the directory of `path` for an object that is created by name, and also returns that name. Rejects a directory that
/// other users can write to.
pub(crate) fn open_private_parent(
    root: &Root,
    path: &Path,
) -> Result<(OwnedFd, String), WriteError> {
    let invalid = || io_error("find the directory of", path)(Errno::EINVAL);
    let parent = path.parent().ok_or_else(invalid)?;
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(invalid)?.to_owned();
    let directory = open_steadily(root, path, parent)?;
    let found = fstat(&directory).map_err(io_error("examine", parent))?;
    match shared(&found) {
        None => Ok((directory, name)),
        Some(reason) => Err(WriteError::Refused {
            path: path.to_owned(),
            obstacle: parent.to_owned(),
            reason,
        }),
    }
}

/// Opens the directory of `path`, which another user may own. A symbolic link on the path is followed only if root or the agent's
/// user created it: in a directory that other users can write to, a link would let them choose where the agent writes.
fn open_steadily(root: &Root, path: &Path, directory: &Path) -> Result<OwnedFd, WriteError> {
    let mut links = root.steps(directory);
    // The last step is the target of the links.
    let real = links.pop().unwrap_or_else(|| directory.to_owned());
    for link in links {
        let mut is_shared = false;
        let above = link.parent().unwrap_or(Path::new("/"));
        descend(root, above, |found| is_shared |= shared(found).is_some())
            .map_err(io_error("open", directory))?;
        if is_shared {
            return Err(WriteError::Refused {
                path: path.to_owned(),
                obstacle: link,
                reason: "is a symbolic link that another user can change",
            });
        }
    }
    descend(root, &real, |_| {}).map_err(io_error("open", directory))
}

/// Opens a directory by a path without symbolic links, one component at a time. A link that is created meanwhile is not followed.
/// `pass` is called with each directory on the path, including the last one.
fn descend(root: &Root, directory: &Path, mut pass: impl FnMut(&FileStat)) -> nix::Result<OwnedFd> {
    let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut here = nix::fcntl::open(
        &root.join("/"),
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    pass(&fstat(&here)?);
    for component in directory.components() {
        if let Component::Normal(name) = component {
            here = openat(&here, name, step, Mode::empty())?;
            pass(&fstat(&here)?);
        }
    }
    // Only a directory that is open for reading can be synced.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(&here, ".", flags, Mode::empty())
}

/// Returns the reason why other users can change the entries of a directory, if they can.
fn shared(found: &FileStat) -> Option<&'static str> {
    let owner = Uid::from_raw(found.st_uid);
    if !owner.is_root() && owner != Uid::effective() {
        Some("belongs to another user")
    } else if found.st_mode & 0o022 != 0 {
        Some("is writable by other users")
    } else {
        None
    }
}

/// Opens a directory. Resolves every symbolic link on the path inside the root.
pub(crate) fn open_below(root: &Root, directory: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let top = nix::fcntl::open(&root.join("/"), flags, Mode::empty())?;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    match openat2(&top, directory, how) {
        // Kernels before 5.6 and some sandboxes have no openat2; the running system needs no confinement.
        Err(Errno::ENOSYS) if root.is_live() => nix::fcntl::open(directory, flags, Mode::empty()),
        other => other,
    }
}

fn io_error<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Io {
        action,
        path,
        source: source.into(),
    }
}

#[cfg(test)]
mod tests;
