// SPDX-License-Identifier: Apache-2.0
//! Files that are replaced as a whole or not at all.
//!
//! A reader never sees half a file, a write that would change nothing is not made, and nothing that someone planted in the
//! way (a symbolic or hard link, a FIFO, another user's file) is ever followed, opened for writing or replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, fsync, unlinkat};

use crate::sys::root::Root;

/// Our directory for what a reboot may take: the status. World-readable, so no secret may ever be written there.
pub const RUNTIME_DIRECTORY: &str = "/run/harvester-node-agent";

/// Our directory for what must outlive a reboot, and for the lock. Private to root: no other user can open a file in it.
pub const STATE_DIRECTORY: &str = "/var/lib/harvester-node-agent";

/// Directories on the way to ours, where they do not exist yet (only below `--root`).
const ANCESTOR_MODE: u32 = 0o755;

/// Of the state directory.
const PRIVATE_MODE: u32 = 0o700;

/// Whether a write was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The file now has the new content.
    Written,
    /// The file had this content and mode already; nothing was touched.
    Unchanged,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Something stands in the way that we must not touch.
    #[error("did not write `{path}`: `{obstacle}` {reason}")]
    Refused {
        /// The file that was to be written.
        path: PathBuf,
        /// What stands in the way.
        obstacle: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The system refused one step.
    #[error("failed to {action} `{path}`")]
    Io {
        /// The step, such as "rename".
        action: &'static str,
        /// The file or directory of that step.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Replaces the file at `path` by `bytes` with exactly the permissions `mode`, unless it has both already.
///
/// Our own two directories are created when missing; any other directory has to exist.
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
        // Best effort: the first error is the one worth telling, and the next write removes what is left.
        let _ = unlinkat(
            &place.directory,
            place.new_name().as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
    result.map(|()| WriteOutcome::Written)
}

/// Renames the file at `path` by appending `.suffix`, over an earlier one of that name: one specimen is kept, not a collection.
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

/// Makes a directory with those above it where they are missing, for everybody to read.
pub fn make_directory(root: &Root, directory: &Path) -> Result<(), WriteError> {
    ancestor(root, directory)
        .map(drop)
        .map_err(io_error("create", directory))
}

/// Removes the file at `path`, if it is there and ours.
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

/// What a directory is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    Runtime,
    State,
    /// A distribution's or systemd's configuration, which is read at the next boot too.
    Configuration,
    /// Someone else's, such as the metrics directory of the node exporter.
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
    /// Opens the directory of `path`, creating it if it is one of our own.
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

    /// What stands at the name, if anything does; an error unless it is a regular file of ours.
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

    /// Opens the name for reading and writing in place with exactly the permissions `mode`, creating an empty file if there
    /// is none.
    pub(crate) fn open_in_place(&self, mode: u32) -> Result<File, WriteError> {
        // Before the opening: opening a FIFO or a device may already do something.
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

    /// An error of one step at this place, as a function of what the kernel said.
    pub(crate) fn io_error<E: Into<io::Error>>(
        &self,
        action: &'static str,
    ) -> impl FnOnce(E) -> WriteError {
        io_error(action, &self.path)
    }

    /// Whether the file has exactly this content. A file that cannot be read is one to be replaced.
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
        // The mode given to open(2) is cut by the umask, which the unit sets to 0077.
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
            // Left by a process that was killed before its rename.
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
        // Elsewhere a power loss may take the file: /run is lost with it anyway, and metrics are written again.
        if self.keeping.outlives_a_boot() {
            fsync(&self.directory).map_err(self.io_error("sync the directory of"))?;
        }
        Ok(())
    }

    fn open_name(&self, name: &str, flags: OFlag, mode: u32) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, name, flags, Mode::from_bits_truncate(mode)).map(File::from)
    }

    /// One fixed name for each file, so that killed processes leave one of them at most. It does not end in `.prom` or
    /// `.json`: no one else may pick it up.
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

/// What is wrong with a file that stands where we want to write.
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

/// Opens one of our own directories, which must be real, ours, and writable by no one else.
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
        // A read-only file system says so even where the directory exists.
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
    // As for files: the umask must not decide. A private directory that others can enter is closed again.
    let is_open = mode == PRIVATE_MODE && found.st_mode & 0o077 != 0;
    if created || is_open {
        fchmod(&opened, Mode::from_bits_truncate(mode))
            .map_err(io_error("set the mode of", directory))?;
    }
    Ok(opened)
}

/// Opens a directory, creating what is missing of it: `/run` or `/var/lib` in an empty tree below `--root`, the directory of a
/// distribution's drop-ins.
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
                    // The umask, which the unit sets to 0077, must not decide.
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

/// Opens the directory of `path` for an object that is created by name, and returns that name as well. Refuses a directory that
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

/// Opens the directory of `path`, which another user may own. A symbolic link on the way is followed only if root or the agent's
/// user created it: below a directory that other users can write to, they would choose where the agent writes.
fn open_steadily(root: &Root, path: &Path, directory: &Path) -> Result<OwnedFd, WriteError> {
    let mut links = root.steps(directory);
    // The last step is what the links lead to.
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

/// Opens a directory by a path without symbolic links, one component at a time. A link that appears meanwhile is not followed.
/// `pass` is called with each directory on the way, the last one included.
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

/// Returns why other users can change the entries of a directory, if they can.
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

/// Opens a directory, with every symbolic link on the way resolved inside the root.
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
