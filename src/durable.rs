// SPDX-License-Identifier: Apache-2.0
//! Files that are either the old or the new, never a part: written beside their place and renamed into it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::root::Root;

/// A file that could not be written. What stood there before still does.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Something that we did not make stands in the way: a link, a directory of somebody else.
    #[error("`{0}` is a link, no directory, or belongs to another user; it is left alone")]
    Planted(PathBuf),
    /// The kernel refused.
    #[error("failed to write `{path}`")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Whether a file must outlive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// It must: written through to the disk.
    Durable,
    /// It lives in memory or can be made again.
    Volatile,
}

/// Makes a directory of ours if it is missing; its parents must exist on a running system and are made in a tree.
pub fn own_directory(root: &Root, path: &str, mode: u32) -> Result<PathBuf, WriteError> {
    let directory = root.join(path);
    let io_error = |source| WriteError::Io {
        path: directory.clone(),
        source,
    };
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent).map_err(io_error)?;
    }
    match DirBuilder::new().mode(mode).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(error)),
    }
    let found = fs::symlink_metadata(&directory).map_err(io_error)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(WriteError::Planted(directory));
    }
    Ok(directory)
}

/// Puts `bytes` at `directory/name`. Nothing is written when the same bytes are there already. A link at the place is
/// replaced, never followed.
pub fn write(
    directory: &Path,
    name: &str,
    bytes: &[u8],
    mode: u32,
    lasting: Lasting,
) -> Result<(), WriteError> {
    let path = directory.join(name);
    let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    if is_file && fs::read(&path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    let temporary = directory.join(format!(".{name}.new"));
    let io_error = |source| WriteError::Io {
        path: path.clone(),
        source,
    };
    let written =
        write_new(&temporary, bytes, mode, lasting).and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(io_error(error));
    }
    match lasting {
        Lasting::Durable => File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(io_error),
        Lasting::Volatile => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8], mode: u32, lasting: Lasting) -> io::Result<()> {
    // What an earlier run left half-written, or somebody put there.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    match lasting {
        Lasting::Durable => file.sync_all(),
        Lasting::Volatile => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> (tempfile::TempDir, Root, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let own = own_directory(&root, "/run/agent", 0o755).unwrap();
        (dir, root, own)
    }

    #[test]
    fn a_file_is_replaced_whole_with_its_mode_and_left_when_it_is_the_same() {
        let (_dir, _root, own) = tree();
        write(&own, "a", b"one", 0o600, Lasting::Durable).unwrap();
        write(&own, "a", b"two", 0o644, Lasting::Volatile).unwrap();
        let found = fs::metadata(own.join("a")).unwrap();
        assert_eq!(
            (
                fs::read(own.join("a")).unwrap(),
                found.permissions().mode() & 0o777
            ),
            (b"two".to_vec(), 0o644)
        );
        write(&own, "a", b"two", 0o644, Lasting::Volatile).unwrap();
        assert_eq!(fs::metadata(own.join("a")).unwrap().ino(), found.ino());
        assert_eq!(
            fs::read_dir(&own).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let (dir, root, own) = tree();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, own.join("a")).unwrap();
        symlink(&victim, own.join(".a.new")).unwrap();
        write(&own, "a", b"new", 0o600, Lasting::Volatile).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(fs::symlink_metadata(own.join("a")).unwrap().is_file());
        symlink(dir.path(), root.join("/run/planted")).unwrap();
        assert!(matches!(
            own_directory(&root, "/run/planted", 0o755),
            Err(WriteError::Planted(_))
        ));
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file_and_no_rest() {
        let (_dir, _root, own) = tree();
        write(&own, "a", b"old", 0o600, Lasting::Volatile).unwrap();
        fs::create_dir(own.join(".a.new")).unwrap();
        assert!(matches!(
            write(&own, "a", b"new", 0o600, Lasting::Volatile),
            Err(WriteError::Io { .. })
        ));
        assert_eq!(fs::read(own.join("a")).unwrap(), b"old");
    }
}
