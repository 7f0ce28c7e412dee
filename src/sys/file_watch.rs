// SPDX-License-Identifier: Apache-2.0
//! Changes of files, detected by inotify(7) on the directories that lead to them.
//!
//! A file is written in place, replaced by rename, or reached through a symbolic link that changes; it may not exist yet, nor its
//! directory. So for every path step that leads to the file, the nearest existing directory is watched, and only the events that
//! name the next step count.
//!
//! Of a directory of drop-ins, each file counts: its path ends in [`EACH`].
//!
//! A device is watched by its name only: each write to `/dev/null` is an event of `/dev`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use inotify::{EventMask, Inotify, WatchMask};
use nix::errno::Errno;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, timeout_at};

use crate::sys::root::Root;

/// The delay before a directory that the kernel refused to watch is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The delay after an event. One change by a writer causes several events; they are one reason.
const SETTLE: Duration = Duration::from_millis(50);

/// The size of the event buffer, for some dozens of events; the rest is read next.
const BUFFER_BYTES: usize = 4096;

/// The interval at which files are compared that another machine serves.
const POLL: Duration = Duration::from_secs(60);

/// The last step of a path that stands for each file in a directory.
pub const EACH: &str = "*";

/// Directories to watch, each with the relevant names in it.
type Interest = BTreeMap<PathBuf, BTreeSet<OsString>>;

/// The watched aspect of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The content that is read through the path.
    Content,
    /// The existence of a link or file with this name, such as a device.
    Name,
    /// A file that is always replaced as a whole: one event, and no delay.
    Whole,
}

/// Returns why the kernel watches nothing, with the limit to raise.
pub fn describe(error: &std::io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => {
            "no inotify instance is left (`fs.inotify.max_user_instances`)".to_owned()
        }
        Some(Errno::ENOSPC) => {
            "no inotify watch is left (`fs.inotify.max_user_watches`)".to_owned()
        }
        _ => format!("inotify: {error}"),
    }
}

/// What changes with a file: inode, size and modification time.
type Stamp = (u64, u64, i64, i64);

/// Calls `changed` for each change of those of `files` that another machine serves, such as the host through virtiofs: inotify(7)
/// reports no change that is made there. While there are none, it looks again each time that `files` is sent: inotify reports no mount
/// either. Returns when `files` is dropped.
pub async fn poll(root: Root, files: Receiver<BTreeSet<PathBuf>>, changed: impl FnMut() + Send) {
    let look = move |files: &BTreeSet<PathBuf>| stamps(&root, files, is_served);
    poll_by(look, files, changed).await;
}

async fn poll_by(
    look: impl Fn(&BTreeSet<PathBuf>) -> BTreeMap<PathBuf, Option<Stamp>> + Send + Sync + 'static,
    mut files: Receiver<BTreeSet<PathBuf>>,
    mut changed: impl FnMut() + Send,
) {
    let look = Arc::new(look);
    let mut before = BTreeMap::new();
    while files.has_changed().is_ok() {
        let (look, wanted) = (Arc::clone(&look), files.borrow_and_update().clone());
        if wanted.is_empty() {
            let _ = files.changed().await;
            continue;
        }
        // A thread, since the time that the kernel waits for a server is unlimited; one, however often `files` is sent meanwhile.
        if let Ok(stamps) = tokio::task::spawn_blocking(move || look(&wanted)).await {
            if stamps != before {
                changed();
            }
            before = stamps;
        }
        if before.is_empty() {
            let _ = files.changed().await;
        } else {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Returns those of the files whose file system is `polled`, each as it is now. For one that does not exist, its directory decides.
fn stamps(
    root: &Root,
    files: &BTreeSet<PathBuf>,
    polled: fn(FsType) -> bool,
) -> BTreeMap<PathBuf, Option<Stamp>> {
    let kind = |path: &Path| root.file_system(path).ok();
    let is_polled = |file: &&PathBuf| file.ancestors().find_map(kind).is_some_and(polled);
    let files = files.iter().filter(is_polled);
    files
        .map(|path| {
            let file = root.metadata(path).ok();
            let stamp = |file: Metadata| (file.ino(), file.size(), file.mtime(), file.mtime_nsec());
            (path.clone(), file.map(stamp))
        })
        .collect()
}

/// File systems of `linux/magic.h` that another machine serves: SMB by its two numbers, and 9P.
const SERVED: [FsType; 5] = [
    FUSE_SUPER_MAGIC,
    NFS_SUPER_MAGIC,
    FsType(0xFF53_4D42),
    FsType(0xFE53_4D42),
    FsType(0x0102_1997),
];

/// Reports whether another machine serves a file system.
fn is_served(kind: FsType) -> bool {
    SERVED.contains(&kind)
}

/// Calls `changed` once the watch is established, for changes before that, and then for each change of one of `files`, until
/// dropped. Calls `established` with the error of a directory that cannot be watched, while others are; it is tried again after a
/// delay. Returns if the kernel refuses.
pub async fn watch(
    root: Root,
    files: Vec<PathBuf>,
    what: What,
    mut changed: impl FnMut(),
    established: impl Fn(Option<&std::io::Error>),
) -> Result<(), std::io::Error> {
    let mut mask = WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    if what == What::Content {
        mask |= WatchMask::CLOSE_WRITE | WatchMask::DELETE | WatchMask::MOVED_FROM;
    }
    loop {
        let interest = interest(&root, &files, what);
        let inotify = Inotify::init()?;
        let mut names = BTreeMap::new();
        let mut refused = None;
        for (directory, wanted) in &interest {
            match inotify.watches().add(root.join(directory), mask) {
                Ok(descriptor) => {
                    names.insert(descriptor, wanted);
                }
                // A directory that was removed in the meantime is found again through its parent in the next iteration.
                Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {}
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if names.is_empty() => return Err(error),
            _ => established(refused.as_ref()),
        }
        // Changes before the watch was established must not be lost: reading unchanged files costs nothing.
        changed();
        if self::interest(&root, &files, what) != interest {
            continue;
        }
        let mut events = inotify.into_event_stream(vec![0; BUFFER_BYTES])?;
        let again = refused.map(|_| Instant::now() + AGAIN);
        loop {
            let event = match again {
                None => next(&mut events).await,
                Some(again) => match timeout_at(again, next(&mut events)).await {
                    Ok(event) => event,
                    Err(_) => break,
                },
            };
            let Some(event) = event else {
                return Ok(());
            };
            let event = event?;
            let whole = EventMask::Q_OVERFLOW
                | EventMask::DELETE_SELF
                | EventMask::MOVE_SELF
                | EventMask::IGNORED;
            let named = names.get(&event.wd).zip(event.name.as_ref());
            let is_wanted = named.is_some_and(|(names, name)| {
                names.contains(name) || names.contains(OsStr::new(EACH))
            });
            if is_wanted || event.mask.intersects(whole) {
                break;
            }
        }
        // Dropping the stream drops the other events of this change; the next iteration calls `changed` again.
        drop(events);
        if what != What::Whole {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// Returns the next event of the stream.
async fn next<B: AsMut<[u8]> + AsRef<[u8]> + Unpin>(
    events: &mut inotify::EventStream<B>,
) -> Option<std::io::Result<inotify::EventOwned>> {
    std::future::poll_fn(|context| Pin::new(&mut *events).poll_next(context)).await
}

/// Returns, for every path step to every file, the nearest existing directory and the name of the next step in it.
fn interest(root: &Root, files: &[PathBuf], what: What) -> Interest {
    let steps = |file: &PathBuf| match what {
        What::Content => root.steps(file),
        What::Name | What::Whole => vec![file.clone()],
    };
    let mut interest = Interest::new();
    for step in files.iter().flat_map(steps) {
        let mut path: &Path = &step;
        while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            if root.exists(parent) {
                let names = interest.entry(parent.to_owned()).or_default();
                names.insert(name.to_owned());
                break;
            }
            path = parent;
        }
    }
    interest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tokio::sync::{mpsc, watch};

    use crate::testing::{own_mounts, run};

    struct Watched {
        _dir: tempfile::TempDir,
        root: Root,
        changes: mpsc::UnboundedReceiver<()>,
        task: tokio::task::JoinHandle<Result<(), std::io::Error>>,
    }

    impl Watched {
        async fn new(file: &str, prepare: impl FnOnce(&Root)) -> Self {
            Self::of(What::Content, file, prepare).await
        }

        async fn of(what: What, file: &str, prepare: impl FnOnce(&Root)) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::new(dir.path());
            prepare(&root);
            let (sender, changes) = mpsc::unbounded_channel();
            let files = vec![PathBuf::from(file)];
            let changed = move || {
                let _ = sender.send(());
            };
            let task = tokio::spawn(super::watch(root.clone(), files, what, changed, |_| {}));
            let mut watched = Self {
                _dir: dir,
                root,
                changes,
                task,
            };
            assert!(watched.changed().await, "once the watch stands");
            watched
        }

        /// Reports whether there was a change until now. The kernel has queued the events of each call that has returned, the
        /// paused clock advances only when nothing else can run, and it stops between them: after the second sleep, the watch has
        /// settled.
        async fn changed(&mut self) -> bool {
            for _ in 0..3 {
                tokio::time::sleep(SETTLE * 4).await;
            }
            std::iter::from_fn(|| self.changes.try_recv().ok()).count() > 0
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.root.join(path).parent().unwrap()).unwrap();
            fs::write(self.root.join(path), text).unwrap();
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.task.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_file_in_a_directory_of_drop_ins_is_seen_also_after_that_is_made_or_is_a_link() {
        let mut watched = Watched::new("/etc/rke2/config.yaml.d/*", |_| {}).await;
        let first = "/etc/rke2/config.yaml.d/60-x.yaml";
        watched.write(first, "1");
        assert!(watched.changed().await);
        watched.write(first, "2");
        assert!(watched.changed().await);
        watched.write("/etc/rke2/new", "3");
        assert!(!watched.changed().await);
        fs::rename(
            watched.root.join("/etc/rke2/new"),
            watched.root.join("/etc/rke2/config.yaml.d/70-y.yaml"),
        )
        .unwrap();
        assert!(watched.changed().await);
        fs::remove_file(watched.root.join(first)).unwrap();
        assert!(watched.changed().await);
        fs::rename(
            watched.root.join("/etc/rke2/config.yaml.d"),
            watched.root.join("/etc/here"),
        )
        .unwrap();
        symlink("../here", watched.root.join("/etc/rke2/config.yaml.d")).unwrap();
        assert!(watched.changed().await);
        watched.write("/etc/here/80-z.yaml", "4");
        assert!(watched.changed().await);
        // A file of that name, or a directory in its place.
        let mut watched = Watched::new("/pki/key.d", |_| {}).await;
        watched.write("/pki/key.d/other", "1");
        assert!(watched.changed().await);
        watched.write("/pki/key.d/other", "2");
        assert!(!watched.changed().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_in_place_a_rename_and_a_removal_are_seen_and_neighbours_are_not() {
        let mut watched = Watched::new("/pki/key.pem", |root| {
            fs::create_dir_all(root.join("/pki")).unwrap();
            fs::write(root.join("/pki/key.pem"), "1").unwrap();
        })
        .await;
        watched.write("/pki/other.pem", "1");
        assert!(!watched.changed().await);
        watched.write("/pki/key.pem", "2");
        assert!(watched.changed().await);
        watched.write("/pki/key.pem.new", "3");
        fs::rename(
            watched.root.join("/pki/key.pem.new"),
            watched.root.join("/pki/key.pem"),
        )
        .unwrap();
        assert!(watched.changed().await);
        fs::remove_file(watched.root.join("/pki/key.pem")).unwrap();
        assert!(watched.changed().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_polled_is_compared_and_a_local_one_is_not_polled() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        fs::create_dir_all(root.join("/sa/1")).unwrap();
        fs::write(root.join("/sa/1/token"), "old").unwrap();
        symlink("1", root.join("/sa/data")).unwrap();
        symlink("data/token", root.join("/sa/token")).unwrap();
        let files = BTreeSet::from([PathBuf::from("/sa/token"), PathBuf::from("/sa/none")]);
        assert!(!is_served(root.file_system("/sa/token").unwrap()));
        // virtiofs, and SMB.
        assert!(is_served(FUSE_SUPER_MAGIC) && is_served(FsType(0xFE53_4D42)));
        let (sender, mut changes) = mpsc::unbounded_channel();
        let (paths, wanted) = watch::channel(files);
        let tree = root.clone();
        let look = move |files: &BTreeSet<PathBuf>| stamps(&tree, files, |_| true);
        let polling = poll_by(look, wanted.clone(), || {
            let _ = sender.send(());
        });
        let flip = async {
            tokio::time::sleep(POLL * 10).await;
            assert!(changes.try_recv().is_ok(), "they are new");
            assert!(changes.try_recv().is_err(), "nothing changed");
            // As the kubelet renews a token.
            fs::create_dir_all(root.join("/sa/2")).unwrap();
            fs::write(root.join("/sa/2/token"), "new").unwrap();
            symlink("2", root.join("/sa/new")).unwrap();
            fs::rename(root.join("/sa/new"), root.join("/sa/data")).unwrap();
            changes.recv().await
        };
        tokio::select! {
            () = polling => panic!("the poll ended"),
            seen = tokio::time::timeout(POLL * 20, flip) => assert_eq!(seen.unwrap(), Some(())),
        }
        let local = poll(root.clone(), wanted, || panic!("a local file is polled"));
        tokio::select! {
            () = local => panic!("the poll ended"),
            () = async {
                tokio::time::sleep(POLL).await;
                fs::write(root.join("/sa/2/token"), "newer").unwrap();
                paths.send_modify(|_| {});
                tokio::time::sleep(POLL * 2).await;
            } => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_on_a_mount_that_comes_later_is_polled() {
        if !own_mounts().is_child() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (root, folder) = (Root::new(dir.path()), dir.path().join("mnt"));
        fs::create_dir(&folder).unwrap();
        let (paths, wanted) = watch::channel(BTreeSet::from([PathBuf::from("/mnt/kubeconfig")]));
        let (sender, mut changes) = mpsc::unbounded_channel();
        let tree = root.clone();
        // RAMFS_MAGIC: a file system that needs no server.
        let is_mounted = |kind| kind == FsType(0x8584_58F6_u32.into());
        let look = move |files: &BTreeSet<PathBuf>| stamps(&tree, files, is_mounted);
        let polling = poll_by(look, wanted, move || sender.send(()).unwrap());
        let task = tokio::spawn(polling);
        tokio::time::sleep(POLL * 2).await;
        run(&["mount", "-t", "ramfs", "none", folder.to_str().unwrap()]);
        fs::write(folder.join("kubeconfig"), "old").unwrap();
        // A round that reads the same files.
        paths.send_modify(|_| {});
        tokio::time::sleep(POLL / 2).await;
        assert!(changes.try_recv().is_ok(), "it is new");
        tokio::time::sleep(POLL * 2).await;
        assert!(changes.try_recv().is_err(), "nothing changed");
        for change in ["newer", ""] {
            match change {
                "" => fs::remove_file(folder.join("kubeconfig")).unwrap(),
                text => fs::write(folder.join("kubeconfig"), text).unwrap(),
            }
            tokio::time::sleep(POLL * 2).await;
            assert!(changes.try_recv().is_ok(), "{change:?}");
        }
        task.abort();
        run(&["umount", "--lazy", folder.to_str().unwrap()]);
    }

    #[tokio::test]
    async fn a_server_that_does_not_respond_holds_one_thread_however_often_the_files_change() {
        let (paths, wanted) = watch::channel(BTreeSet::from([PathBuf::from("/0")]));
        let (looks, mut looked) = mpsc::unbounded_channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Mutex::new(ended);
        let look = move |files: &BTreeSet<PathBuf>| {
            looks.send(files.clone()).unwrap();
            let _ = ended.lock().unwrap().recv();
            BTreeMap::new()
        };
        let task = tokio::spawn(poll_by(look, wanted, || {}));
        looked.recv().await.unwrap();
        for number in 1..20 {
            paths.send_replace(BTreeSet::from([PathBuf::from(format!("/{number}"))]));
            tokio::task::yield_now().await;
        }
        assert!(looked.try_recv().is_err(), "a second thread");
        drop(end);
        // Then the last ones count.
        let last = looked.recv().await.unwrap();
        assert!(last.contains(Path::new("/19")));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_flips_is_seen() {
        let mut watched = Watched::new("/pki/current.pem", |root| {
            fs::create_dir_all(root.join("/pki")).unwrap();
            fs::write(root.join("/pki/1.pem"), "1").unwrap();
            fs::write(root.join("/pki/2.pem"), "2").unwrap();
            symlink("/pki/1.pem", root.join("/pki/current.pem")).unwrap();
        })
        .await;
        symlink("/pki/2.pem", watched.root.join("/pki/new")).unwrap();
        fs::rename(
            watched.root.join("/pki/new"),
            watched.root.join("/pki/current.pem"),
        )
        .unwrap();
        assert!(watched.changed().await);
        watched.write("/pki/1.pem", "no longer the target");
        assert!(!watched.changed().await);
        watched.write("/pki/2.pem", "the target");
        assert!(watched.changed().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_seen_when_it_and_its_directories_come_into_being() {
        let mut watched =
            Watched::new("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", |_| {}).await;
        watched.write("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "x");
        assert!(watched.changed().await);
        watched.write("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "y");
        assert!(watched.changed().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_is_seen_when_its_link_comes_or_flips_and_not_when_it_is_written_to() {
        let link = "/dev/virtio-ports/a.0";
        let mut watched = Watched::of(What::Name, link, |root| {
            fs::create_dir_all(root.join("/dev")).unwrap();
        })
        .await;
        watched.write("/dev/null", "x");
        assert!(!watched.changed().await);
        for target in ["../vport1p1", "../vport2p1"] {
            fs::create_dir_all(watched.root.join("/dev/virtio-ports")).unwrap();
            watched.write("/dev/vport1p1", "x");
            watched.changed().await;
            symlink(target, watched.root.join("/dev/virtio-ports/.new")).unwrap();
            fs::rename(
                watched.root.join("/dev/virtio-ports/.new"),
                watched.root.join(link),
            )
            .unwrap();
            assert!(watched.changed().await, "{target}");
            watched.write("/dev/vport1p1", "y");
            assert!(!watched.changed().await);
        }
    }
}
