// SPDX-License-Identifier: Apache-2.0
//! Changes of files, by inotify(7) on the directories that lead to them.
//!
//! A file is written in place, replaced by rename, or reached through a link that flips; it may not exist yet, nor its
//! directory. So what is watched is, for every step that leads to the file, the nearest directory that exists, and of the
//! events there only those that name the next step.
//!
//! A device is watched by its name alone: each write to `/dev/null` is an event of `/dev`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use inotify::{EventMask, Inotify, WatchMask};

use crate::sys::root::Root;

/// A writer makes several events of one change; they are one reason.
const SETTLE: Duration = Duration::from_millis(50);

/// Room for some dozens of events; what does not fit is read next.
const BUFFER_BYTES: usize = 4096;

/// Directories to watch, each with the names in it that matter.
type Interest = BTreeMap<PathBuf, BTreeSet<OsString>>;

/// What of a path is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// What is read through it.
    Content,
    /// That something stands there, a link or what it leads to.
    Name,
    /// The same for a file that is only ever replaced as a whole: one event, and nothing to wait for.
    Whole,
}

/// Calls `changed` once the watch stands, for what changed before it did, and then for each change of one of `files`, until
/// dropped. Ends when the kernel refuses; the next aim starts again.
pub async fn watch(
    root: Root,
    files: BTreeSet<PathBuf>,
    changed: impl FnMut(),
) -> Result<(), std::io::Error> {
    follow(root, files, What::Content, changed).await
}

/// As [`watch`], for something new under the name `path`, such as a device.
pub async fn watch_name(
    root: Root,
    path: PathBuf,
    changed: impl FnMut(),
) -> Result<(), std::io::Error> {
    follow(root, [path].into_iter().collect(), What::Name, changed).await
}

/// As [`watch`], without delay, for a file that is only ever replaced as a whole.
pub async fn watch_whole(
    root: Root,
    path: PathBuf,
    changed: impl FnMut(),
) -> Result<(), std::io::Error> {
    follow(root, [path].into_iter().collect(), What::Whole, changed).await
}

async fn follow(
    root: Root,
    files: BTreeSet<PathBuf>,
    what: What,
    mut changed: impl FnMut(),
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
        for (directory, wanted) in &interest {
            // A directory that went away since is found again with its parent in the next turn.
            if let Ok(descriptor) = inotify.watches().add(root.join(directory), mask) {
                names.insert(descriptor, wanted);
            }
        }
        // What changed before the watch stood is not lost: reading files that hold what they held costs nothing.
        changed();
        if self::interest(&root, &files, what) != interest {
            continue;
        }
        let mut events = inotify.into_event_stream(vec![0; BUFFER_BYTES])?;
        loop {
            let Some(event) = next(&mut events).await else {
                return Ok(());
            };
            let event = event?;
            let whole = EventMask::Q_OVERFLOW
                | EventMask::DELETE_SELF
                | EventMask::MOVE_SELF
                | EventMask::IGNORED;
            let wanted = names
                .get(&event.wd)
                .zip(event.name.as_ref())
                .is_some_and(|(names, name)| names.contains(name));
            if wanted || event.mask.intersects(whole) {
                break;
            }
        }
        // Dropping the stream drops what the rest of this change would say; the next turn begins with a fresh round.
        drop(events);
        if what != What::Whole {
            tokio::time::sleep(SETTLE).await;
        }
    }
}

/// The next event of the stream.
async fn next<B: AsMut<[u8]> + AsRef<[u8]> + Unpin>(
    events: &mut inotify::EventStream<B>,
) -> Option<std::io::Result<inotify::EventOwned>> {
    std::future::poll_fn(|context| Pin::new(&mut *events).poll_next(context)).await
}

/// For every step to every file: the nearest directory that exists, and the name of what is next in it.
fn interest(root: &Root, files: &BTreeSet<PathBuf>, what: What) -> Interest {
    let steps = |file: &PathBuf| match what {
        What::Content => root.steps(file),
        What::Name | What::Whole => vec![file.clone()],
    };
    let mut interest = Interest::new();
    for step in files.iter().flat_map(steps) {
        let mut path: &Path = &step;
        while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            if root.exists(parent) {
                interest
                    .entry(parent.to_owned())
                    .or_default()
                    .insert(name.to_owned());
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
    use tokio::sync::mpsc;

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
            let files = BTreeSet::from([PathBuf::from(file)]);
            let task = tokio::spawn(follow(root.clone(), files, what, move || {
                let _ = sender.send(());
            }));
            let mut watched = Self {
                _dir: dir,
                root,
                changes,
                task,
            };
            assert!(watched.changed().await, "once the watch stands");
            watched
        }

        async fn changed(&mut self) -> bool {
            tokio::time::timeout(Duration::from_secs(2), self.changes.recv())
                .await
                .is_ok()
        }

        async fn quiet(&mut self) -> bool {
            tokio::time::timeout(SETTLE * 4, self.changes.recv())
                .await
                .is_err()
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

    #[tokio::test]
    async fn a_write_in_place_a_rename_and_a_removal_are_seen_and_neighbours_are_not() {
        let mut watched = Watched::new("/pki/key.pem", |root| {
            fs::create_dir_all(root.join("/pki")).unwrap();
            fs::write(root.join("/pki/key.pem"), "1").unwrap();
        })
        .await;
        watched.write("/pki/other.pem", "1");
        assert!(watched.quiet().await);
        watched.write("/pki/key.pem", "2");
        assert!(watched.changed().await);
        tokio::time::sleep(SETTLE).await;
        watched.write("/pki/key.pem.new", "3");
        fs::rename(
            watched.root.join("/pki/key.pem.new"),
            watched.root.join("/pki/key.pem"),
        )
        .unwrap();
        assert!(watched.changed().await);
        tokio::time::sleep(SETTLE).await;
        fs::remove_file(watched.root.join("/pki/key.pem")).unwrap();
        assert!(watched.changed().await);
    }

    #[tokio::test]
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
        tokio::time::sleep(SETTLE).await;
        watched.write("/pki/1.pem", "no longer the target");
        assert!(watched.quiet().await);
        watched.write("/pki/2.pem", "the target");
        assert!(watched.changed().await);
    }

    #[tokio::test]
    async fn a_file_is_seen_when_it_and_its_directories_come_into_being() {
        let mut watched =
            Watched::new("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", |_| {}).await;
        watched.write("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "x");
        assert!(watched.changed().await);
        while watched.changed().await {}
        watched.write("/var/lib/rancher/rke2/agent/kubelet.kubeconfig", "y");
        assert!(watched.changed().await);
    }

    #[tokio::test]
    async fn a_device_is_seen_when_its_link_comes_or_flips_and_not_when_it_is_written_to() {
        let link = "/dev/virtio-ports/a.0";
        let mut watched = Watched::of(What::Name, link, |root| {
            fs::create_dir_all(root.join("/dev")).unwrap();
        })
        .await;
        watched.write("/dev/null", "x");
        assert!(watched.quiet().await);
        for target in ["../vport1p1", "../vport2p1"] {
            fs::create_dir_all(watched.root.join("/dev/virtio-ports")).unwrap();
            watched.write("/dev/vport1p1", "x");
            while !watched.quiet().await {}
            symlink(target, watched.root.join("/dev/virtio-ports/.new")).unwrap();
            fs::rename(
                watched.root.join("/dev/virtio-ports/.new"),
                watched.root.join(link),
            )
            .unwrap();
            assert!(watched.changed().await, "{target}");
            tokio::time::sleep(SETTLE).await;
            watched.write("/dev/vport1p1", "y");
            assert!(watched.quiet().await);
        }
    }
}
