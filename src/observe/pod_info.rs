// SPDX-License-Identifier: Apache-2.0
//! Reads the files of a downward API volume that the host shares with this VM through virtiofs.
//!
//! The host changes them without an inotify(7) event, so each round reads them. They are opened by path each time: after a
//! migration, a file that was opened before may only return errors (`virtiofsd --migration-on-error=guest-error`).

use std::path::Path;
use std::time::Duration;

use nix::sys::statfs::FUSE_SUPER_MAGIC;

use crate::facts::pod_info::PodInfo;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::disk::DiskWork;
use crate::sys::escape::one_line;
use crate::sys::root::Root;

/// The maximum size of the labels, in bytes. Those of a virt-launcher pod have about 1 kB.
const LABELS_MAX: u64 = 64 * 1024;

/// The maximum size of a file with a name, in bytes.
const NAME_MAX: u64 = 1024;

/// The maximum length of an error, in characters.
const SHOWN_MAX: usize = 600;

/// The timeout of a read. A virtiofsd that was stopped does not respond at all.
const STALL: Duration = Duration::from_secs(5);

/// The reader of the files.
#[derive(Debug, Default)]
pub struct PodReader {
    files: DiskWork<Result<Option<PodInfo>, Unavailable>>,
}

impl PodReader {
    /// Reads the files in a directory; [`Fact::Absent`] if it does not exist, or is empty because nothing is mounted there.
    ///
    /// Only the first round waits for a read that does not return: the time that the kernel waits for the host is unlimited.
    pub async fn read(&mut self, root: &Root, dir: &Path) -> Fact<PodInfo> {
        if !self.files.is_late() && !root.exists(dir) {
            return Fact::Absent;
        }
        let (tree, path) = (root.clone(), dir.to_owned());
        let read = self.files.run(STALL, move || read_files(&tree, &path));
        match read.await {
            Some(Ok(info)) => info.into(),
            Some(Err(why)) => Fact::Failed(why),
            None => {
                let text = format!(
                    "reading `{}` timed out after {} s",
                    dir.display(),
                    STALL.as_secs()
                );
                Fact::failed(UnavailableKind::Unreachable, text)
            }
        }
    }
}

fn read_files(root: &Root, dir: &Path) -> Result<Option<PodInfo>, Unavailable> {
    let malformed =
        |text: String| Unavailable::new(UnavailableKind::Malformed, one_line(&text, SHOWN_MAX));
    let shown = dir.display();
    // In a tree, a directory replaces the mount.
    let is_virtiofs = !root.is_live() || root.file_system(dir)? == FUSE_SUPER_MAGIC;
    if !is_virtiofs {
        return match root.list(dir)?.is_empty() {
            true => Ok(None),
            // Files on a disk of the VM are a copy, and so are those of an ISO image: KubeVirt copies the image of the source host.
            false => Err(malformed(format!("`{shown}` is not a virtiofs mount"))),
        };
    }
    let read = |name: &str, limit| root.read_text(dir.join(name), limit);
    let (labels, name, namespace) = (
        read("labels", LABELS_MAX)?,
        read("name", NAME_MAX)?,
        read("namespace", NAME_MAX)?,
    );
    let info = PodInfo::parse(&labels, &name, &namespace);
    info.map(Some).map_err(|error| {
        malformed(format!(
            "the files in `{shown}` do not describe the pod of this VM: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "virt-launcher-a-x7k2p";

    fn tree(labels: &[u8], name: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.join("/run/podinfo")).unwrap();
        std::fs::write(root.join("/run/podinfo/labels"), labels).unwrap();
        std::fs::write(root.join("/run/podinfo/name"), name).unwrap();
        std::fs::write(root.join("/run/podinfo/namespace"), "default").unwrap();
        (dir, root)
    }

    async fn read(root: &Root) -> Fact<PodInfo> {
        let mut reader = PodReader::default();
        reader.read(root, Path::new("/run/podinfo")).await
    }

    #[tokio::test]
    async fn the_files_are_read_and_a_vm_without_them_has_no_error() {
        let (_dir, root) = tree(b"kubevirt.io/nodeName=\"hv-a\"\n", POD);
        assert_eq!(read(&root).await.known().unwrap().pod, POD);
        std::fs::remove_dir_all(root.join("/run/podinfo")).unwrap();
        assert_eq!(read(&root).await, Fact::Absent);
    }

    #[tokio::test]
    async fn files_of_another_size_or_content_are_refused() {
        for (labels, name, said) in [
            (vec![b'a'; 65 * 1024], POD, "larger than 65536 bytes"),
            (vec![0xff], POD, "not valid UTF-8"),
            (b"x".to_vec(), POD, "line 1 of the labels"),
            (Vec::new(), &"a".repeat(2000), "larger than 1024 bytes"),
        ] {
            let (_dir, root) = tree(&labels, name);
            let fact = read(&root).await;
            let why = fact.why().unwrap();
            assert!(why.text.contains(said), "{why:?}");
            assert!(!why.kind.is_passing(), "{why:?}");
        }
    }

    #[test]
    fn a_directory_of_this_system_is_not_taken_for_virtiofs() {
        let root = Root::new("/");
        let dir = tempfile::tempdir().unwrap();
        assert!(read_files(&root, dir.path()).unwrap().is_none());
        std::fs::write(dir.path().join("labels"), "").unwrap();
        let error = read_files(&root, dir.path()).unwrap_err();
        assert!(error.text.contains("not a virtiofs mount"), "{error:?}");
    }

    #[tokio::test]
    async fn a_read_that_never_returns_is_not_started_twice() {
        let (_dir, root) = tree(b"", POD);
        let (files, _end) = DiskWork::stalled();
        let mut reader = PodReader { files };
        for _ in 0..2 {
            let fact = reader.read(&root, Path::new("/run/podinfo")).await;
            assert!(fact.why().unwrap().text.contains("timed out"), "{fact:?}");
            assert!(reader.files.is_late());
        }
    }
}
