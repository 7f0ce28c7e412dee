// SPDX-License-Identifier: Apache-2.0
//! Opens the directory of a file that is written, so that no other user chooses where.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::Uid;

use super::error::{WriteError, io_error, refused};
use crate::sys::root::Root;

/// The mode of the state directory.
pub(super) const PRIVATE_MODE: u32 = 0o700;

/// The mode of missing parent directories of the agent's directories (only below `--root`).
const ANCESTOR_MODE: u32 = 0o755;

/// Opens one of the agent's own directories, which must not be a link, and which only the agent may own and write to.
pub(super) fn own_directory(
    root: &Root,
    path: &Path,
    directory: &Path,
    mode: u32,
) -> Result<OwnedFd, WriteError> {
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return open_below(root, directory).map_err(io_error("open", directory));
    };
    let refused = |reason| refused(path, directory, reason);
    let parent = ancestor(root, parent).map_err(io_error("open", parent))?;
    let created = match mkdirat(&parent, name, Mode::from_bits_truncate(mode)) {
        Ok(()) => true,
        // On a read-only file system, EROFS is the error even if the directory exists.
        Err(Errno::EEXIST | Errno::EROFS) => false,
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
pub(super) fn ancestor(root: &Root, directory: &Path) -> nix::Result<OwnedFd> {
    let opened = open_below(root, directory);
    match (opened, directory.parent(), directory.file_name()) {
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

/// Opens the directory of `path`, which another user may own. A symbolic link on the path is followed only if root or the agent's
/// user created it: in a directory that other users can write to, a link would let them choose where the agent writes.
pub(super) fn open_steadily(
    root: &Root,
    path: &Path,
    directory: &Path,
) -> Result<OwnedFd, WriteError> {
    let mut links = root.steps(directory);
    // The last step is the target of the links.
    let real = links.pop().unwrap_or_else(|| directory.to_owned());
    let is_kept = |above: &Path| {
        let found = root.metadata(above);
        found.is_ok_and(|found| shared(found.uid(), found.mode()).is_none())
    };
    let mut links = links.iter();
    if let Some(link) = links.find(|link| !link.ancestors().skip(1).all(is_kept)) {
        let reason = "is a symbolic link that another user can change";
        return Err(refused(path, link, reason));
    }
    descend(root, &real).map_err(io_error("open", directory))
}

/// Opens a directory by a path without symbolic links, one component at a time. A link that is created meanwhile is not followed.
fn descend(root: &Root, directory: &Path) -> nix::Result<OwnedFd> {
    let top = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let step = top | OFlag::O_NOFOLLOW;
    let mut here = nix::fcntl::open(&root.join("/"), top, Mode::empty())?;
    for component in directory.components() {
        if let Component::Normal(name) = component {
            here = openat(&here, name, step, Mode::empty())?;
        }
    }
    // Only a directory that is open for reading can be synced.
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(&here, ".", flags, Mode::empty())
}

/// Returns the reason why other users can change the entries of a directory, if they can.
pub(super) fn shared(owner: u32, mode: u32) -> Option<&'static str> {
    let owner = Uid::from_raw(owner);
    if !owner.is_root() && owner != Uid::effective() {
        Some("belongs to another user")
    } else if mode & 0o022 != 0 {
        Some("is writable by other users")
    } else {
        None
    }
}

/// Opens a directory. Resolves every symbolic link on the path inside the root.
fn open_below(root: &Root, directory: &Path) -> nix::Result<OwnedFd> {
    root.open_below(directory, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}
