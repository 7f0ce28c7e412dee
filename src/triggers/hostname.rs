// SPDX-License-Identifier: Apache-2.0
//! Changes of the kernel's hostname: its file in `/proc` reports each one (`fs/proc/proc_sysctl.c`, `proc_sys_poll`).

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::sys::epoll::EpollFlags;

use super::source::{Lost, Output, Source, Work};
use crate::agent::Trigger;
use crate::sys::epoll::EdgeTriggered;
use crate::sys::escape::chain;
use crate::sys::root::{ReadError, Root};

/// The file with the kernel's hostname.
const PATH: &str = "/proc/sys/kernel/hostname";

/// The size of the read buffer. The kernel's limit is 64 bytes (`__NEW_UTS_LEN`), and a line break.
const NAME_MAX: usize = 128;

/// The time between two reads of the name.
const PAUSE: Duration = Duration::from_millis(100);

/// The event source. Needs a tokio runtime.
#[derive(Debug)]
pub(super) struct Hostname(pub(super) Root);

impl Source for Hostname {
    fn about(&self) -> (&'static str, &'static str) {
        ("hostname", "the hostname is read at each reconcile")
    }

    fn follow<'a>(&'a mut self, out: &'a Output) -> Work<'a, Lost> {
        Box::pin(async move {
            let Err(lost) = follow(&self.0, out).await;
            lost
        })
    }
}

async fn follow(root: &Root, out: &Output) -> Result<Infallible, Lost> {
    let file = open(root)?;
    // The first edge is not a change: the file is readable from the beginning.
    let mut before = name(&file).await.map_err(|error| failed(&error))?;
    out.active(PATH);
    loop {
        let now = name(&file).await.map_err(|error| failed(&error))?;
        // The name is unchanged, or was set in the namespace of a container: the kernel has one counter for all of them.
        if now != before {
            before = now;
            out.fire(Trigger::Hostname);
        }
        // Any user can set the hostname of a UTS namespace at any rate, and each wakes this task. A change during the pause is reported after it.
        tokio::time::sleep(PAUSE).await;
    }
}

/// The loss of an open file that cannot be polled or read.
fn failed(error: &io::Error) -> Lost {
    Lost::Failed(format!("failed to poll `{PATH}`: {}", chain(error)))
}

/// Opens the file of the kernel.
fn open(root: &Root) -> Result<EdgeTriggered<File>, Lost> {
    // A regular file in place of the kernel's file never reports a change.
    let not_live = || {
        let detail = format!("`{PATH}` is not the file of the running kernel");
        Lost::Absent(detail, None)
    };
    let file = root.open_file(PATH).map_err(|error| match error {
        _ if !root.is_live() => not_live(),
        // A sandbox hides the file.
        ReadError::NotFound(_) => Lost::Hidden(format!(
            "`{PATH}` is hidden, as by `ProcSubset=pid` in a unit"
        )),
        error => Lost::Failed(format!(
            "failed to open the kernel hostname: {}",
            chain(&error)
        )),
    })?;
    // EPOLLIN, which is always set, makes each wake-up an edge. EPOLLPRI alone would be lost: polling the file clears it, and
    // two nested epoll instances poll it.
    let polled = EdgeTriggered::of(file, EpollFlags::EPOLLPRI | EpollFlags::EPOLLIN);
    polled.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => not_live(),
        _ => failed(&error),
    })
}

/// Waits until the name is set, and returns it. Cancel-safe.
async fn name(file: &EdgeTriggered<File>) -> io::Result<Vec<u8>> {
    file.next().await?;
    let mut name = vec![0; NAME_MAX];
    let length = file.file.read_at(&mut name, 0)?;
    name.truncate(length);
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::source_board::SourceBoard;
    use crate::testing::{own_namespaces, run};
    use crate::triggers::source::keep;
    use crate::triggers::testing::{output, probed};
    use harvester_lab::world::{SOON, eventually};
    use nix::unistd::sethostname;
    use tokio::time::timeout;

    /// Reports whether the event source is in this state, with a detail that contains `part`.
    fn stands(board: &SourceBoard, is_active: bool, part: &str) -> bool {
        let sources = board.sources();
        let state = sources.get("hostname");
        state.is_some_and(|state| state.is_active == is_active && state.detail.contains(part))
    }

    /// Listens to the hostname below `root` in a separate namespace and changes it.
    async fn each_change_is_reported(root: Root) {
        let mut source = Hostname(root);
        let (out, mut reasons) = output(&source);
        let board = out.board.clone();
        sethostname("before").unwrap();
        let task = tokio::spawn(async move { source.follow(&out).await });
        eventually(SOON, "it is active", async || stands(&board, true, PATH)).await;
        for turn in 0..20 {
            sethostname(format!("name-{turn}")).unwrap();
            let (trigger, _) = timeout(SOON, reasons.recv()).await.unwrap();
            assert_eq!(trigger, Trigger::Hostname);
        }
        assert!(stands(&board, true, PATH));
        // An unchanged name is not a reason: of these two only the second is.
        sethostname("name-19").unwrap();
        sethostname("after").unwrap();
        timeout(SOON, reasons.recv()).await.unwrap();
        assert_eq!(reasons.try_recv(), None);
        task.abort();
    }

    #[tokio::test]
    async fn each_change_of_the_kernels_host_name_is_reported_once() {
        if own_namespaces(&["--map-root-user", "--uts"]).is_child() {
            each_change_is_reported(Root::new("/")).await;
        }
    }

    #[tokio::test]
    async fn a_tree_with_the_kernels_file_mounted_in_it_is_live() {
        if own_namespaces(&["--map-root-user", "--uts", "--mount"]).is_child() {
            let (_dir, root) = tree();
            let file = root.join(PATH);
            run(&["mount", "--bind", PATH, file.to_str().unwrap()]);
            each_change_is_reported(root).await;
            // Otherwise the directory could not be removed.
            run(&["umount", "--lazy", file.to_str().unwrap()]);
        }
    }

    /// Runs the source until it ends, and returns its reports.
    async fn ends(root: &Root) -> SourceBoard {
        let mut source = Hostname(root.clone());
        let (out, _reasons) = output(&source);
        let ended = keep(&mut source, root, &out);
        timeout(SOON, ended).await.unwrap();
        out.board
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
            let board = ends(&root).await;
            assert!(stands(&board, false, "not the file of the running kernel"));
            assert_eq!(board.findings(), []);
            let probed = probed(&mut Hostname(root.clone())).await;
            assert_eq!(probed, board.sources()["hostname"]);
            let _ = std::fs::remove_file(root.join(PATH));
        }
    }

    #[tokio::test]
    async fn a_file_that_a_sandbox_hides_is_complained_about_once_and_for_all() {
        if own_namespaces(&["--map-root-user", "--mount"]).is_child() {
            run(&["mount", "-t", "tmpfs", "none", "/proc/sys"]);
            let board = ends(&Root::new("/")).await;
            assert!(stands(&board, false, "ProcSubset=pid"));
            assert_eq!(board.findings().len(), 1);
        }
    }
}
