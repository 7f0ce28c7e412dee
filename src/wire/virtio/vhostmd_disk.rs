// SPDX-License-Identifier: Apache-2.0
//! Reads the host's metrics from vhostmd's disk: 256 KiB that the host rewrites every five seconds
//! (`pkg/downwardmetrics/vhostmd/disk.go`).
//!
//! The header has sixteen bytes, as four big-endian numbers: the signature `mvbd`, whether the host is writing, the sum of the
//! body's bytes, and the body's length. There is no lock, so the header is read again after the body and must not have changed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::facts::host_metrics::{HostMetrics, MetricsError, Via};
use crate::sys::root::Root;

const SIGNATURE: [u8; 4] = *b"mvbd";

/// The size of the header, in bytes.
const HEAD: usize = 16;

/// The maximum length of the body, in bytes.
const BODY_MAX: usize = 262_120;

/// The `/sys/block/*/size` of such a disk: in sectors of 512 bytes, whatever the disk's sector size is.
const SECTORS: &str = "512";

/// The size and alignment of reads without the page cache, which every disk supports.
const BLOCK: usize = 4096;

const SYS_BLOCK: &str = "/sys/block";

/// The maximum size of the file, in bytes: a number and a line end.
const SIZE_MAX: u64 = 32;

/// The number of reads while the host is writing to the disk.
const TRIES: usize = 3;

/// The prefix of the names of virtio-blk disks (`drivers/block/virtio_blk.c`).
const VIRTIO: &str = "vd";

/// The drop-in that permits the service to read the disk.
const DROP_IN: &str = "/usr/share/doc/harvester-node-agent/examples/systemd/vhostmd.conf";

/// The time between two reads; the host writes for much less.
const PAUSE: Duration = Duration::from_secs(1);

/// The timeout of a read. A disk of a failing host may not respond at all.
const STALL: Duration = Duration::from_secs(5);

/// The reason why vhostmd's disk returned no metrics.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel denied access.
    #[error("not permitted to read the disk `{}`; to allow it for the service: {DROP_IN}", .0.display())]
    Denied(PathBuf),
    /// Any other read error.
    #[error("failed to read the disk `{}`", .disk.display())]
    Io {
        /// The disk.
        disk: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The host was writing during each read.
    #[error("the host is writing the metrics on `{}`", .0.display())]
    Busy(PathBuf),
    /// The body does not match the checksum in the header.
    #[error("the metrics on `{}` do not match their checksum", .0.display())]
    Checksum(PathBuf),
    /// The length in the header is larger than the disk.
    #[error("the metrics on `{}` have a length of {length} bytes, more than {BODY_MAX}", .disk.display())]
    TooLarge {
        /// The disk.
        disk: PathBuf,
        /// The length in the header, in bytes.
        length: u32,
    },
    /// The disk ends before the end of the body.
    #[error("the metrics on `{}` are truncated", .0.display())]
    Truncated(PathBuf),
    /// The metrics are not text.
    #[error("the metrics on `{}` are not valid UTF-8", .0.display())]
    NotText(PathBuf),
    /// The document has no metrics of the host.
    #[error("the metrics on `{}` are invalid", .disk.display())]
    Document {
        /// The disk.
        disk: PathBuf,
        /// The problem of the document.
        source: MetricsError,
    },
    /// Several disks have the signature, and the host's disk cannot be determined.
    #[error("`{}` is not the only metrics disk", .0.display())]
    Several(PathBuf),
    /// The read timed out.
    #[error("reading the metrics disk timed out after {} s", STALL.as_secs())]
    Stalled,
}

impl DiskError {
    /// Reports whether the host may have finished writing in the next round.
    fn is_half_written(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Checksum(_))
    }
}

/// Reads the metrics of the host; `None` if it provides no such disk.
///
/// # Errors
///
/// When there is one and it returned no complete document.
pub async fn read(root: &Root) -> Result<Option<HostMetrics>, DiskError> {
    let disks = small_disks(root);
    if disks.is_empty() {
        return Ok(None);
    }
    for _ in 1..TRIES {
        match read_aside(root, &disks).await {
            Err(error) if error.is_half_written() => sleep(PAUSE).await,
            done => return done,
        }
    }
    read_aside(root, &disks).await
}

/// Reads in a separate thread: the time that the kernel waits for a disk is unlimited.
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

/// Returns a disk that may be vhostmd's according to sysfs, without reading it: a failing disk must not block the agent.
pub fn find(root: &Root) -> Option<PathBuf> {
    small_disks(root).into_iter().next()
}

/// Returns the read-only virtio disks of the size of vhostmd's disk: the content of a loop device or a volume is from a user,
/// not from the host.
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

/// Returns the one disk with the signature. An unreadable disk is an error only if no disk has it.
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
    // The other fields of such a header are not valid yet.
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

/// Returns the sum of all bytes, modulo 2³².
fn sum(body: &[u8]) -> u32 {
    body.iter()
        .fold(0, |sum: u32, byte| sum.wrapping_add(u32::from(*byte)))
}

/// The header of the disk, without the signature.
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

/// Whole blocks from the start of a disk, in memory aligned to [`BLOCK`], as required for reads without the page
/// cache.
#[derive(Debug)]
struct Blocks {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Blocks {
    /// Reads at least `length` bytes, or all bytes if there are fewer.
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
