// SPDX-License-Identifier: Apache-2.0
//! Changes of the kernel's host name: its file in `/proc` reports each one (`fs/proc/proc_sysctl.c`, `proc_sys_poll`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use tokio::time::Instant;

use super::inbox::Sender;
use super::restart_delay::Waits;
use crate::agent::Trigger;
use crate::agent::signal_board::{Signal, SignalBoard};
use crate::sys::epoll::EdgeTriggered;
use crate::sys::escape::chain;
use crate::sys::root::{ReadError, Root};

const SIGNAL: &str = "hostname";

/// The file with the kernel's host name.
const PATH: &str = "/proc/sys/kernel/hostname";

/// The size of the read buffer. The kernel's limit is 64 bytes (`__NEW_UTS_LEN`), and a line break.
const NAME_MAX: usize = 128;

/// The time between two reads of the name.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why changes of the name cannot be detected.
#[derive(Debug, thiserror::Error)]
enum HostnameError {
    /// A regular file in place of the kernel's file never reports a change.
    #[error("`{PATH}` is not the file of the running kernel")]
    NotLive,
    /// A sandbox hides the file.
    #[error("`{PATH}` is hidden, as by `ProcSubset=pid` in a unit")]
    Hidden,
    /// The file cannot be opened.
    #[error("failed to open the kernel hostname")]
    Open(#[source] ReadError),
    /// Polling or reading the open file failed.
    #[error("failed to poll `{PATH}`")]
    Io(#[source] io::Error),
}

/// Listens until dropped; returns if there is nothing to listen to.
pub async fn listen(root: Root, sender: Sender, health: SignalBoard) {
    let mut waits = Waits::default();
    loop {
        let opened = Instant::now();
        let Err(error) = follow(&root, &sender, &health).await;
        let detail = chain(&error);
        health.set(SIGNAL, false, detail.clone());
        if matches!(error, HostnameError::NotLive) {
            return;
        }
        let what = format!("{detail}; the hostname is read at each reconcile");
        health.unavailable(SIGNAL, what);
        if matches!(error, HostnameError::Hidden) {
            // The file does not reappear while this process runs.
            return;
        }
        tokio::time::sleep(waits.after(opened.elapsed())).await;
    }
}

/// Returns the state of the event source, without listening. Needs a tokio runtime.
pub fn probe(root: &Root) -> Signal {
    match NameFile::open(root) {
        Ok(_) => Signal {
            live: true,
            detail: PATH.to_owned(),
        },
        Err(error) => Signal {
            live: false,
            detail: chain(&error),
        },
    }
}

async fn follow(
    root: &Root,
    sender: &Sender,
    health: &SignalBoard,
) -> Result<std::convert::Infallible, HostnameError> {
    let file = NameFile::open(root)?;
    // The first edge is not a change: the file is readable from the beginning.
    file.reported().await?;
    let mut name = file.read()?;
    health.set(SIGNAL, true, PATH);
    health.report(SIGNAL, None);
    loop {
        file.reported().await?;
        let now = file.read()?;
        // The name is unchanged, or was set in the namespace of a container: the kernel has one counter for all of them.
        if now != name {
            name = now;
            sender.send(Trigger::Hostname);
        }
        // Any user can set the hostname of a UTS namespace at any rate, and each wakes this task. A change during the pause is reported after it.
        tokio::time::sleep(PAUSE).await;
    }
}

/// The open file, and its changes.
#[derive(Debug)]
struct NameFile {
    // Dropped before the file: an epoll instance must not outlive the file.
    edges: EdgeTriggered,
    file: File,
}

impl NameFile {
    fn open(root: &Root) -> Result<Self, HostnameError> {
        let file = root.open_file(PATH).map_err(|error| match error {
            _ if !root.is_live() => HostnameError::NotLive,
            ReadError::NotFound(_) => HostnameError::Hidden,
            error => HostnameError::Open(error),
        })?;
        // EPOLLIN, which is always set, makes each wake-up an edge. EPOLLPRI alone would be lost: polling the file clears it, and
        // two nested epoll instances poll it.
        match EdgeTriggered::of(&file, EpollFlags::EPOLLPRI | EpollFlags::EPOLLIN) {
            Ok(edges) => Ok(Self { edges, file }),
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
                Err(HostnameError::NotLive)
            }
            Err(error) => Err(HostnameError::Io(error)),
        }
    }

    /// Waits until the name is set. Cancel-safe.
    async fn reported(&self) -> Result<(), HostnameError> {
        self.edges.next().await.map(drop).map_err(HostnameError::Io)
    }

    fn read(&self) -> Result<Vec<u8>, HostnameError> {
        let mut name = vec![0; NAME_MAX];
        let length = self.file.read_at(&mut name, 0).map_err(HostnameError::Io)?;
        name.truncate(length);
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{own_namespaces, run};
    use crate::triggers::testing::sender;
    use harvester_lab::world::{SOON, eventually};
    use nix::unistd::sethostname;
    use tokio::time::timeout;

    /// Reports whether the state of the event source is `live`, with a detail that contains `part`.
    fn stands(health: &SignalBoard, live: bool, part: &str) -> bool {
        let signals = health.signals();
        let signal = signals.get(SIGNAL);
        signal.is_some_and(|signal| signal.live == live && signal.detail.contains(part))
    }

    /// Listens to the host name below `root` in a separate namespace and changes it.
    async fn each_change_is_reported(root: Root) {
        let (sender, mut reasons) = sender();
        let health = SignalBoard::default();
        sethostname("before").unwrap();
        let task = tokio::spawn(listen(root, sender, health.clone()));
        eventually(SOON, "it is live", async || stands(&health, true, PATH)).await;
        for turn in 0..20 {
            sethostname(format!("name-{turn}")).unwrap();
            let (trigger, _) = timeout(SOON, reasons.recv()).await.unwrap().unwrap();
            assert_eq!(trigger, Trigger::Hostname);
        }
        assert!(stands(&health, true, PATH));
        // An unchanged name is not a reason: of these two only the second is.
        sethostname("name-19").unwrap();
        sethostname("after").unwrap();
        timeout(SOON, reasons.recv()).await.unwrap().unwrap();
        reasons.try_recv().unwrap_err();
        task.abort();
    }

    #[tokio::test]
    async fn each_change_of_the_kernels_host_name_is_reported_once() {
        let test =
            "triggers::hostname::tests::each_change_of_the_kernels_host_name_is_reported_once";
        if own_namespaces(test, &["--map-root-user", "--uts"]).is_child() {
            each_change_is_reported(Root::new("/")).await;
        }
    }

    #[tokio::test]
    async fn a_tree_with_the_kernels_file_mounted_in_it_is_live() {
        let test = "triggers::hostname::tests::a_tree_with_the_kernels_file_mounted_in_it_is_live";
        if own_namespaces(test, &["--map-root-user", "--uts", "--mount"]).is_child() {
            let (_dir, root) = tree();
            let file = root.join(PATH);
            run(&["mount", "--bind", PATH, file.to_str().unwrap()]);
            each_change_is_reported(root).await;
            // Otherwise the directory could not be removed.
            run(&["umount", "--lazy", file.to_str().unwrap()]);
        }
    }

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.join(PATH).parent().unwrap()).unwrap();
        std::fs::write(root.join(PATH), "worker-1\n").unwrap();
        (dir, root)
    }

    #[tokio::test]
    async fn a_plain_file_in_a_tree_and_none_at_all_are_not_live_and_nothing_to_complain_about() {
        let (_dir, root) = tree();
        for _ in 0..2 {
            let health = SignalBoard::default();
            timeout(SOON, listen(root.clone(), sender().0, health.clone()))
                .await
                .unwrap();
            assert!(stands(&health, false, "not the file of the running kernel"));
            assert_eq!(health.findings(), []);
            assert_eq!(probe(&root), health.signals()[SIGNAL]);
            let _ = std::fs::remove_file(root.join(PATH));
        }
    }

    #[tokio::test]
    async fn a_file_that_a_sandbox_hides_is_complained_about_once_and_for_all() {
        let test = "triggers::hostname::tests::a_file_that_a_sandbox_hides_is_complained_about_once_and_for_all";
        if own_namespaces(test, &["--map-root-user", "--mount"]).is_child() {
            run(&["mount", "-t", "tmpfs", "none", "/proc/sys"]);
            let health = SignalBoard::default();
            let ended = listen(Root::new("/"), sender().0, health.clone());
            timeout(SOON, ended).await.unwrap();
            assert!(stands(&health, false, "ProcSubset=pid"));
            assert_eq!(health.findings().len(), 1);
        }
    }
}
