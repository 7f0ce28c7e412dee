// SPDX-License-Identifier: Apache-2.0
//! Reads the host's metrics from vhostmd's disk: 256 KiB that the host writes again every five seconds
//! (`pkg/downwardmetrics/vhostmd/disk.go`).
//!
//! Sixteen bytes come first, as four big-endian numbers: the signature `mvbd`, whether the host is writing now, the sum of
//! the body's bytes, and their number. Nothing locks it, so the head is read again after the body and must be the same.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::facts::host_metrics::{HostMetrics, MetricsError, Via};
use crate::sys::root::Root;

const SIGNATURE: [u8; 4] = *b"mvbd";

/// Bytes before the body.
const HEAD: usize = 16;

/// The longest body.
const BODY_MAX: usize = 262_120;

/// What `/sys/block/*/size` says of such a disk: sectors of 512 bytes, whatever the disk's own are.
const SECTORS: &str = "512";

/// Every disk takes reads of this size and alignment past the page cache.
const BLOCK: usize = 4096;

const SYS_BLOCK: &str = "/sys/block";

/// A number with a line break.
const SIZE_MAX: u64 = 32;

/// Times that a disk is read while the host is writing to it.
const TRIES: usize = 3;

/// How the names of virtio-blk disks begin (`drivers/block/virtio_blk.c`).
const VIRTIO: &str = "vd";

/// How the unit is made to allow it.
const DROP_IN: &str = "/usr/share/doc/harvester-node-agent/examples/systemd/vhostmd.conf";

/// Between two of them; the host writes for much less.
const PAUSE: Duration = Duration::from_secs(1);

/// A disk of a host that is in trouble may not answer at all.
const STALL: Duration = Duration::from_secs(5);

/// Why a disk that is vhostmd's gave no metrics.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel refused access.
    #[error("not permitted to read the disk `{}`; to allow it for the service: {DROP_IN}", .0.display())]
    Denied(PathBuf),
    /// Any other failure to read.
    #[error("failed to read the disk `{}`", .disk.display())]
    Io {
        /// The disk.
        disk: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The host was writing each time it was read.
    #[error("the host is writing the metrics on `{}`", .0.display())]
    Busy(PathBuf),
    /// The body does not add up to what the head says.
    #[error("the metrics on `{}` do not match their checksum", .0.display())]
    Checksum(PathBuf),
    /// The body would be longer than the disk.
    #[error("the metrics on `{}` have a length of {length} bytes, more than {BODY_MAX}", .disk.display())]
    TooLarge {
        /// The disk.
        disk: PathBuf,
        /// The length that it claims, in bytes.
        length: u32,
    },
    /// The disk ends before the body does.
    #[error("the metrics on `{}` are truncated", .0.display())]
    Truncated(PathBuf),
    /// Bytes that are no text.
    #[error("the metrics on `{}` are not valid UTF-8", .0.display())]
    NotText(PathBuf),
    /// A document that says nothing about the host.
    #[error("the metrics on `{}` are invalid", .disk.display())]
    Document {
        /// The disk.
        disk: PathBuf,
        /// What is wrong with it.
        source: MetricsError,
    },
    /// It cannot be determined which of them is the host's.
    #[error("`{}` is not the only metrics disk", .0.display())]
    Several(PathBuf),
    /// The read did not come back.
    #[error("reading the metrics disk timed out after {} s", STALL.as_secs())]
    Stalled,
}

impl DiskError {
    /// Whether the next round may find the host done with writing.
    fn is_half_written(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Checksum(_))
    }
}

/// Reads what the host says of itself; `None` where it offers no such disk.
///
/// # Errors
///
/// When there is one and it gave no whole document.
pub async fn read(root: &Root) -> Result<Option<HostMetrics>, DiskError> {
    read_with_pause(root, PAUSE).await
}

async fn read_with_pause(root: &Root, pause: Duration) -> Result<Option<HostMetrics>, DiskError> {
    let disks = small_disks(root);
    if disks.is_empty() {
        return Ok(None);
    }
    for _ in 1..TRIES {
        match read_aside(root, &disks).await {
            Err(error) if error.is_half_written() => sleep(pause).await,
            done => return done,
        }
    }
    read_aside(root, &disks).await
}

/// Reads in a thread of its own: nothing limits the time that the kernel waits for a disk.
async fn read_aside(root: &Root, disks: &[PathBuf]) -> Result<Option<HostMetrics>, DiskError> {
    let (root, disks) = (root.clone(), disks.to_vec());
    let reading = tokio::task::spawn_blocking(move || match signed(&root, &disks)? {
        Some((disk, file)) => read_metrics(disk, &file).map(Some),
        None => Ok(None),
    });
    match timeout(STALL, reading).await {
        Ok(Ok(read)) => read,
        _ => Err(DiskError::Stalled),
    }
}

/// A disk that may be vhostmd's by what the kernel says of it, without reading it: one in trouble must not hold us up.
pub fn find(root: &Root) -> Option<PathBuf> {
    small_disks(root).into_iter().next()
}

/// The virtio disks as large as vhostmd's that the guest cannot write: what a loop device or a volume holds is a user's word
/// and not the host's.
fn small_disks(root: &Root) -> Vec<PathBuf> {
    let names = root.list(SYS_BLOCK).unwrap_or_default();
    let says = |name: &std::ffi::OsString, file: &str, text: &str| {
        root.read_text(Path::new(SYS_BLOCK).join(name).join(file), SIZE_MAX)
            .is_ok_and(|content| content.trim() == text)
    };
    names
        .into_iter()
        .filter(|name| name.to_string_lossy().starts_with(VIRTIO))
        .filter(|name| says(name, "size", SECTORS) && says(name, "ro", "1"))
        .map(|name| Path::new("/dev").join(name))
        .collect()
}

/// The one disk with the signature. One that cannot be read counts only where none has it.
fn signed(root: &Root, disks: &[PathBuf]) -> Result<Option<(PathBuf, File)>, DiskError> {
    let mut failed = None;
    let mut found = None;
    for disk in disks {
        let opened = root.open_disk(disk).and_then(|file| {
            let head = Blocks::read(&file, HEAD)?;
            Ok((head.bytes().starts_with(&SIGNATURE), file))
        });
        match opened {
            Ok((true, _)) if found.is_some() => return Err(DiskError::Several(disk.clone())),
            Ok((true, file)) => found = Some((disk.clone(), file)),
            Ok((false, _)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => failed = failed.or(Some(unreadable(disk, source))),
        }
    }
    match (found, failed) {
        (None, Some(error)) => Err(error),
        (found, _) => Ok(found),
    }
}

fn unreadable(disk: &Path, source: io::Error) -> DiskError {
    let disk = disk.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => DiskError::Denied(disk),
        _ => DiskError::Io { disk, source },
    }
}

pub(crate) fn read_metrics(disk: PathBuf, file: &File) -> Result<HostMetrics, DiskError> {
    let blocks =
        |length: usize| Blocks::read(file, length).map_err(|source| unreadable(&disk, source));
    let Some(head) = Head::parse(blocks(HEAD)?.bytes()) else {
        return Err(DiskError::Truncated(disk));
    };
    // The rest of such a head means nothing yet.
    if head.busy {
        return Err(DiskError::Busy(disk));
    }
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > BODY_MAX {
        let length = head.length;
        return Err(DiskError::TooLarge { disk, length });
    }
    let whole = blocks(HEAD + length)?;
    let again = Head::parse(blocks(HEAD)?.bytes());
    if again.as_ref() != Some(&head) {
        return Err(DiskError::Busy(disk));
    }
    let Some(body) = whole.bytes().get(HEAD..HEAD + length) else {
        return Err(DiskError::Truncated(disk));
    };
    if sum(body) != head.checksum {
        return Err(DiskError::Checksum(disk));
    }
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(DiskError::NotText(disk));
    };
    HostMetrics::parse(text, Via::Disk).map_err(|source| DiskError::Document { disk, source })
}

/// The sum of all bytes, modulo 2³².
fn sum(body: &[u8]) -> u32 {
    body.iter()
        .fold(0, |sum: u32, byte| sum.wrapping_add(u32::from(*byte)))
}

/// The first bytes of the disk, after the signature.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    busy: bool,
    checksum: u32,
    length: u32,
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (signature, rest) = bytes.split_first_chunk()?;
        let (busy, rest) = rest.split_first_chunk()?;
        let (checksum, rest) = rest.split_first_chunk()?;
        let (length, _) = rest.split_first_chunk()?;
        (*signature == SIGNATURE).then(|| Self {
            busy: u32::from_be_bytes(*busy) != 0,
            checksum: u32::from_be_bytes(*checksum),
            length: u32::from_be_bytes(*length),
        })
    }
}

/// Whole blocks from the start of a disk, in memory that begins at a multiple of [`BLOCK`], as reads past the page cache
/// need it.
#[derive(Debug)]
struct Blocks {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Blocks {
    /// Reads at least `length` bytes, or as many as there are.
    fn read(file: &File, length: usize) -> io::Result<Self> {
        let length = length.next_multiple_of(BLOCK);
        let mut memory = vec![0; length + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let blocks = memory.get_mut(start..start.saturating_add(length));
        let length = file.read_at(blocks.unwrap_or_default(), 0)?;
        Ok(Self {
            memory,
            start,
            length,
        })
    }

    fn bytes(&self) -> &[u8] {
        self.memory
            .get(self.start..self.start.saturating_add(self.length))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
