// SPDX-License-Identifier: Apache-2.0
//! The file tree below `--root`.
//!
//! Every path that the agent reads or writes goes through [`Root`], so that the released binary can be run on a directory tree.
//! Symbolic links are resolved as in a chroot (`openat2(2)`, `RESOLVE_IN_ROOT`): an absolute link in the tree never
//! leads out of it. Only regular files are read, never a planted FIFO or device, and never more than a given
//! number of bytes.

#[cfg(test)]
pub(crate) mod testing;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, fstatfs};

/// How often an open is retried when something else is renamed or mounted.
const OPEN_RETRIES: usize = 128;

/// The maximum number of symbolic links in one path, like the kernel's `MAXSYMLINKS`.
const MAX_LINKS: usize = 40;

/// The reason why a file or directory below the root could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No such file or directory.
    #[error("`{0}` does not exist")]
    NotFound(PathBuf),
    /// A symbolic link to nothing.
    #[error("`{path}` is a symbolic link to `{target}`, which does not exist")]
    Dangling {
        /// The link.
        path: PathBuf,
        /// The missing target, inside the root.
        target: PathBuf,
    },
    /// A symbolic link that leads back to itself.
    #[error("`{0}` leads in a loop of symbolic links, or through too many of them")]
    Loop(PathBuf),
    /// The kernel denied access.
    #[error("not permitted to read `{0}`")]
    Denied(PathBuf),
    /// The object at the path is not a regular file.
    #[error("`{0}` is not a regular file")]
    NotAFile(PathBuf),
    /// The file is larger than the limit.
    #[error("`{path}` is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file is not UTF-8 text.
    #[error("`{0}` is not valid UTF-8")]
    NotText(PathBuf),
    /// Any other failure.
    #[error("failed to read `{path}`")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl ReadError {
    /// Returns the file or directory, inside the root.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound(path)
            | Self::Dangling { path, .. }
            | Self::Loop(path)
            | Self::Denied(path)
            | Self::NotAFile(path)
            | Self::NotText(path)
            | Self::TooLarge { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// Reports whether the path does not exist, which is often not an error.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::Dangling { .. })
    }

    /// Reports whether the path exists and the kernel denies access.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }

    /// Reports whether the kernel could not read it, which may pass: too few file descriptors, a disk with errors.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound(path),
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            _ if source.raw_os_error() == Some(Errno::ELOOP as i32) => Self::Loop(path),
            _ => Self::Io { path, source },
        }
    }
}

/// The directory that is used as `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    dir: PathBuf,
}

impl Root {
    /// Creates a root at `dir`; `/` is the running system itself.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Reports whether this is the running system and not a tree for tests or image builds.
    pub fn is_live(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// Returns the real path of `path`, for writes; links inside are not resolved.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(relative(path.as_ref()))
    }

    /// Reads a regular file of at most `limit` bytes.
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        #[cfg(test)]
        if let Some(bytes) = testing::known(&self.dir, path) {
            return Ok(bytes);
        }
        let io_error = |source| ReadError::new(path, source);
        let mut file = self.open_file(path)?;
        // A buffer that grows leaves copies of a secret in memory.
        let size = file.metadata().map_err(io_error)?.len().min(limit);
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1);
        file.by_ref()
            .take(limit.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(io_error)?;
        if bytes.len() as u64 > limit {
            let path = path.to_owned();
            return Err(ReadError::TooLarge { path, limit });
        }
        #[cfg(test)]
        testing::keep(&self.dir, path, &bytes);
        Ok(bytes)
    }

    /// Opens a regular file for reading. Files in `/proc` are regular too.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File, ReadError> {
        let path = path.as_ref();
        let io_error = |source| ReadError::new(path, source);
        // O_NONBLOCK: opening a planted FIFO must not block.
        let file = self
            .open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)
            .map_err(io_error)?;
        if file.metadata().map_err(io_error)?.is_file() {
            Ok(file)
        } else {
            Err(ReadError::NotAFile(path.to_owned()))
        }
    }

    /// Reads a regular UTF-8 file of at most `limit` bytes.
    pub fn read_text(&self, path: impl AsRef<Path>, limit: u64) -> Result<String, ReadError> {
        let path = path.as_ref();
        String::from_utf8(self.read(path, limit)?).map_err(|_| ReadError::NotText(path.to_owned()))
    }

    /// Returns the sorted names in a directory.
    pub fn list(&self, dir: impl AsRef<Path>) -> Result<Vec<OsString>, ReadError> {
        let dir = dir.as_ref();
        let io_error = |source| ReadError::new(dir, source);
        let opened = self
            .open(dir, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map_err(io_error)?;
        let mut entries = Dir::from_fd(opened.into()).map_err(|errno| io_error(errno.into()))?;
        let mut names = std::collections::BTreeSet::new();
        for entry in entries.iter() {
            let entry = entry.map_err(|errno| io_error(errno.into()))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.insert(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Opens a non-blocking character device for reading and writing. Anything else is `InvalidInput`.
    ///
    /// A tree cannot contain a pseudo-terminal: the kernel opens it only in its own file system. So in a tree a link to
    /// a pseudo-terminal is followed out of the tree, and no other link is.
    pub fn open_device(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let terminal = self
            .link_target(path)
            .filter(|target| target.starts_with("/dev/pts") && normalise(target) == *target);
        let file = match terminal {
            Some(terminal) => Self::new("/").open(&terminal, flags)?,
            None => self.open(path, flags)?,
        };
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "not a character device");
        let is_device = file.metadata()?.file_type().is_char_device();
        is_device.then_some(file).ok_or_else(other)
    }

    /// Returns the size, mode and owner of the path's target.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<std::fs::Metadata, ReadError> {
        let path = path.as_ref();
        self.open(path, OFlag::O_PATH)
            .and_then(|file| file.metadata())
            .map_err(|source| ReadError::new(path, source))
    }

    /// Returns the type of the file system at the path. The server of a network file system may not respond.
    pub fn file_system(&self, path: impl AsRef<Path>) -> Result<FsType, ReadError> {
        let path = path.as_ref();
        self.open(path, OFlag::O_PATH)
            .and_then(|file| Ok(fstatfs(file)?.filesystem_type()))
            .map_err(|source| ReadError::new(path, source))
    }

    /// Reports whether the target of the path exists and can be reached, without a stat.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.open(path.as_ref(), OFlag::O_PATH).is_ok()
    }

    /// Returns a path with every symbolic link resolved, except one at its end; `None` without a name there.
    pub fn place(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        Some(self.resolve(path.parent()?).join(path.file_name()?))
    }

    /// Returns the target of a symbolic link, unresolved; `None` for anything else.
    pub fn link_target(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.read_link(&self.place(path)?)
    }

    /// Returns the missing target of a symbolic link, inside the root; `None` for anything else.
    pub fn dangling(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        self.link_target(path)?;
        let target = self.resolve(path);
        (!self.exists(&target)).then_some(target)
    }

    /// Returns the owner of a symbolic link itself; `None` for anything else.
    pub fn link_owner(&self, path: impl AsRef<Path>) -> Option<u32> {
        let link = self.join(self.place(path)?);
        let metadata = link.symlink_metadata().ok()?;
        metadata.is_symlink().then(|| metadata.uid())
    }

    /// Returns the target of a link, like `link_target`, for a path without links in its directories.
    pub fn read_link(&self, path: &Path) -> Option<PathBuf> {
        #[cfg(test)]
        if testing::is_declared() {
            return None;
        }
        std::fs::read_link(self.join(path)).ok()
    }

    /// Returns every path (inside the root) whose change can change the target of `path`: each symbolic link on the path, then
    /// the final target. Names that do not exist yet are included.
    pub fn steps(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let mut steps = Vec::new();
        let mut current = Path::new("/").join(relative(path.as_ref()));
        for _ in 0..MAX_LINKS {
            match self.first_link(&current) {
                Some((link, target)) => {
                    steps.push(link);
                    current = target;
                }
                None => break,
            }
        }
        // No link is left, so resolving `..` by text gives the same result as in the kernel.
        steps.push(normalise(&current));
        steps
    }

    /// Returns the target of `path`: the same path inside the root with every symbolic link and every `..` resolved there, whether
    /// or not it exists.
    ///
    /// Commands that are shown to users use this path, because a shell would follow an absolute link out of the root.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.steps(path).pop().unwrap_or_default()
    }

    /// Returns the first symbolic link among the components of `path`, and `path` with that link replaced by its target.
    fn first_link(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let mut walked = PathBuf::from("/");
        let mut components = relative(path).components();
        while let Some(component) = components.next() {
            let here = match component {
                Component::ParentDir => {
                    walked.pop();
                    continue;
                }
                Component::Normal(name) => walked.join(name),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
            };
            if let Some(target) = self.read_link(&here) {
                let replaced = walked.join(target).join(components.as_path());
                return Some((here, replaced));
            }
            walked = here;
        }
        None
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<File> {
        #[cfg(test)]
        if testing::is_absent(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.open_below(path, flags)?.into())
    }

    /// Opens a path. Resolves every symbolic link on it inside the root. The kernel fails with `EAGAIN` at a `..` if anything in the
    /// system was renamed or mounted meanwhile.
    pub(super) fn open_below(&self, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
        let flags = flags | OFlag::O_CLOEXEC;
        let top = nix::fcntl::open(&self.dir, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let how = OpenHow::new()
            .flags(flags)
            .mode(Mode::empty())
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let mut opened = openat2(&top, path, how);
        for _ in 0..OPEN_RETRIES {
            let Err(Errno::EAGAIN) = opened else { break };
            opened = openat2(&top, path, how);
        }
        match opened {
            // Kernels before 5.6 and some sandboxes have no openat2; the running system needs no confinement.
            Err(Errno::ENOSYS) if self.is_live() => nix::fcntl::open(path, flags, Mode::empty()),
            opened => opened,
        }
    }
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Resolves `.` and `..` by text, not above the top of the root.
fn normalise(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::ParentDir => {
                result.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.join("/var/lib/pki")).unwrap();
        std::fs::create_dir_all(root.join("/etc")).unwrap();
        std::fs::write(root.join("/var/lib/pki/one.pem"), "one").unwrap();
        (dir, root)
    }

    #[test]
    fn a_rename_elsewhere_during_a_read_is_no_error() {
        let (_dir, root) = tree();
        symlink("../var/lib/pki/one.pem", root.join("/etc/current.pem")).unwrap();
        let (_elsewhere, other) = tree();
        let paths = ["/etc", "/var/etc"].map(|path| other.join(path));
        let done = std::sync::atomic::AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::fs::rename(&paths[0], &paths[1]).unwrap();
                    std::fs::rename(&paths[1], &paths[0]).unwrap();
                }
            });
            let reads = (0..10_000).map(|_| root.read("/etc/current.pem", 100));
            let failed = reads.filter(Result::is_err).count();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            failed
        });
        assert_eq!(failed, 0);
    }

    #[test]
    fn an_absolute_link_stays_inside_the_root() {
        let (_dir, root) = tree();
        symlink("/var/lib/pki/one.pem", root.join("/etc/current.pem")).unwrap();
        symlink("/../../../../etc/passwd", root.join("/etc/out")).unwrap();
        assert_eq!(root.read("/etc/current.pem", 10).unwrap(), b"one");
        assert!(root.read("/etc/out", 10).unwrap_err().is_absent());
    }

    #[test]
    fn the_buffer_of_a_file_never_grows() {
        let (_dir, root) = tree();
        let text = "x".repeat(10_000);
        std::fs::write(root.join("/etc/key.pem"), &text).unwrap();
        let bytes = root.read("/etc/key.pem", 20_000).unwrap();
        assert_eq!((bytes.len(), bytes.capacity()), (10_000, 10_001));
        assert_eq!(root.read("/var/lib/pki/one.pem", 3).unwrap(), b"one");
    }

    #[test]
    fn size_kind_and_absence_are_distinguished() {
        let (_dir, root) = tree();
        nix::unistd::mkfifo(&root.join("/etc/fifo"), Mode::S_IRWXU).unwrap();
        assert!(matches!(
            root.read("/etc/fifo", 10),
            Err(ReadError::NotAFile(_))
        ));
        assert!(matches!(
            root.read("/etc", 10),
            Err(ReadError::NotAFile(_) | ReadError::Io { .. })
        ));
        assert!(matches!(
            root.read("/var/lib/pki/one.pem", 2),
            Err(ReadError::TooLarge { limit: 2, .. })
        ));
        assert!(root.read("/nowhere/at/all", 10).unwrap_err().is_absent());
    }

    #[test]
    fn a_directory_is_listed_in_order() {
        let (_dir, root) = tree();
        for name in ["b", "a", "c"] {
            std::fs::write(root.join("/etc").join(name), "").unwrap();
        }
        assert_eq!(root.list("/etc").unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn steps_name_every_link_on_the_way() {
        let (_dir, root) = tree();
        symlink("lib", root.join("/var/data")).unwrap();
        symlink("/var/data/pki/one.pem", root.join("/etc/current.pem")).unwrap();
        let expected: Vec<PathBuf> = ["/etc/current.pem", "/var/data", "/var/lib/pki/one.pem"]
            .iter()
            .map(PathBuf::from)
            .collect();
        assert_eq!(root.steps("/etc/current.pem"), expected);
    }

    #[test]
    fn a_path_is_resolved_inside_the_root_whether_or_not_it_exists() {
        let (_dir, root) = tree();
        symlink("/var/lib", root.join("/lib")).unwrap();
        symlink("one.pem", root.join("/var/lib/pki/current.pem")).unwrap();
        symlink("../../lib/../../../one", root.join("/out")).unwrap();
        symlink("loop", root.join("/loop")).unwrap();
        for (path, resolved) in [
            ("/lib/pki/current.pem", "/var/lib/pki/one.pem"),
            ("/lib/pki/none", "/var/lib/pki/none"),
            ("/etc", "/etc"),
            ("/../../../tmp/victim", "/tmp/victim"),
            ("../etc/./none/../..", "/"),
            ("/lib/../run", "/var/run"),
            ("/out", "/one"),
            ("/loop/..", "/"),
        ] {
            assert_eq!(root.resolve(path), Path::new(resolved), "{path}");
        }
        let target = root.link_target("/lib/pki/current.pem");
        assert_eq!(target.as_deref(), Some(Path::new("one.pem")));
    }

    #[test]
    fn a_loop_of_links_ends() {
        let (_dir, root) = tree();
        symlink("b", root.join("/etc/a")).unwrap();
        symlink("a", root.join("/etc/b")).unwrap();
        assert!(!root.steps("/etc/a").is_empty());
        let error = root.read("/etc/a", 10).unwrap_err();
        assert!(matches!(error, ReadError::Loop(_)), "{error}");
    }

    #[test]
    fn a_link_to_nothing_is_distinguished_from_one_to_a_file() {
        let (_dir, root) = tree();
        symlink("/var/lib/none", root.join("/etc/first")).unwrap();
        symlink("first", root.join("/etc/second")).unwrap();
        symlink("../var/lib/pki/one.pem", root.join("/etc/current.pem")).unwrap();
        let missing = Some(PathBuf::from("/var/lib/none"));
        for (path, target) in [
            ("/etc/first", &missing),
            ("/etc/second", &missing),
            ("/etc/current.pem", &None),
            ("/etc/none", &None),
        ] {
            assert_eq!(root.dangling(path), *target, "{path}");
        }
    }
}
