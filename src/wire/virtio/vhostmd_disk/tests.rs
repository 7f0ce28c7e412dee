// SPDX-License-Identifier: Apache-2.0
use std::process::Command;

use harvester_lab::downward_metrics::{disk_image, document, offer_disk};
use harvester_lab::guest::GuestTree;

use super::*;
use crate::sys::escape::chain;

fn guest() -> (tempfile::TempDir, GuestTree, Root) {
    let dir = tempfile::tempdir().unwrap();
    let tree = GuestTree::new(dir.path());
    let root = Root::new(dir.path());
    (dir, tree, root)
}

/// Returns an image with one number of its header replaced; the numbers are the signature, busy, the sum and the length.
fn with(mut image: Vec<u8>, number: usize, value: u32) -> Vec<u8> {
    image[number * 4..number * 4 + 4].copy_from_slice(&value.to_be_bytes());
    image
}

fn good(host: &str) -> Vec<u8> {
    disk_image(document(host, 7).as_bytes())
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_the_disk_has_none() {
    let (_dir, tree, root) = guest();
    assert!(read(&root).await.unwrap().is_none());
    // A disk of the same size for another purpose.
    offer_disk(&tree, "vdb", &vec![0; 262_144]);
    // A device that is in sysfs and does not exist.
    tree.write("/sys/block/vdc/size", "512\n");
    tree.write("/sys/block/vda/size", "41943040\n");
    assert!(read(&root).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_guest_could_write_is_not_the_hosts_word() {
    let (_dir, tree, root) = guest();
    offer_disk(&tree, "loop0", &good("liar"));
    offer_disk(&tree, "vdb", &good("liar"));
    tree.write("/sys/block/vdb/ro", "0\n");
    assert!(read(&root).await.unwrap().is_none());
    assert_eq!(find(&root), None);
    tree.write("/sys/block/vdb/ro", "1\n");
    assert_eq!(find(&root), Some(PathBuf::from("/dev/vdb")));
    offer_disk(&tree, "vdc", &good("hv-a"));
    let refused = read(&root).await.unwrap_err();
    assert!(matches!(refused, DiskError::Several(_)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn the_disk_is_found_by_its_signature_among_others_of_its_size() {
    let (_dir, tree, root) = guest();
    offer_disk(&tree, "vdb", b"too short to have a head");
    offer_disk(&tree, "vdc", &good("hv-a"));
    let found = read(&root).await.unwrap().unwrap();
    assert_eq!(
        (found.host.as_str(), found.time, found.via),
        ("hv-a", Some(7), Via::Disk)
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_may_fill_the_disk() {
    let (_dir, tree, root) = guest();
    let mut body = document("hv-a", 7).into_bytes();
    body.resize(BODY_MAX, b'\n');
    offer_disk(&tree, "vdb", &disk_image(&body));
    assert_eq!(read(&root).await.unwrap().unwrap().host.as_str(), "hv-a");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_not_whole_is_refused_in_one_line_that_names_it() {
    let (_dir, tree, root) = guest();
    let mut cut = good("hv-a");
    cut.truncate(600);
    let mut flipped = good("hv-a");
    flipped[100] ^= 1;
    for (image, part) in [
        (with(good("hv-a"), 1, 1), "is writing"),
        (with(with(good("hv-a"), 1, 1), 3, u32::MAX), "is writing"),
        (with(good("hv-a"), 2, 5), "checksum"),
        (flipped, "checksum"),
        (with(good("hv-a"), 3, 1), "checksum"),
        (with(good("hv-a"), 3, 262_121), "262121 bytes"),
        (with(good("hv-a"), 3, u32::MAX), "4294967295 bytes"),
        (cut, "truncated"),
        (b"mvbd".to_vec(), "truncated"),
        (disk_image(b""), "not XML"),
        (
            disk_image(b"<metrics></metrics>"),
            "no metrics at the moment",
        ),
        (disk_image(b"\xff\xff\xff"), "UTF-8"),
        (disk_image(b"<!DOCTYPE a><a/>"), "document type"),
        (disk_image("<\u{1b}".as_bytes()), "not XML"),
    ] {
        offer_disk(&tree, "vdb", &image);
        let line = chain(&read(&root).await.unwrap_err());
        assert!(
            line.contains(part) && line.contains("/dev/vdb"),
            "{part}: {line}"
        );
        assert!(
            line.len() < 400 && !line.chars().any(char::is_control),
            "{line:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_writing_is_given_time() {
    let (_dir, tree, root) = guest();
    offer_disk(&tree, "vdb", &with(good("hv-a"), 1, 1));
    let (found, ()) = tokio::join!(read(&root), async {
        sleep(PAUSE / 3).await;
        offer_disk(&tree, "vdb", &good("hv-b"));
    });
    assert_eq!(found.unwrap().unwrap().host.as_str(), "hv-b");
}

#[tokio::test(start_paused = true)]
async fn only_a_disk_is_opened_as_one() {
    let (_dir, tree, root) = guest();
    offer_disk(&tree, "vdb", b"");
    tree.remove("/dev/vdb");
    nix::unistd::mkfifo(&tree.path("/dev/vdb"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = read(&root).await.unwrap_err();
    assert!(matches!(error, DiskError::Io { .. }), "{error:?}");
    // On the running system a regular file does not count as a disk.
    let file = tempfile::NamedTempFile::new().unwrap();
    let kind = Root::new("/").open_disk(file.path()).unwrap_err().kind();
    assert_eq!(kind, io::ErrorKind::InvalidInput);
}

/// A real block device for a file, until it is dropped.
struct Loop(String);

impl Loop {
    fn on(file: &Path) -> Result<Self, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--read-only"])
            .arg(file)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(Self(
                String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            ))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test(start_paused = true)]
async fn a_real_disk_is_read_past_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, good("hv-a")).unwrap();
    let disk = match Loop::on(&file) {
        Ok(disk) => disk,
        Err(why) => {
            harvester_lab::skip("a_real_disk_is_read_past_the_page_cache", why);
            return;
        }
    };
    let root = Root::new("/");
    let disks = [PathBuf::from(&disk.0)];
    let host = async || read_aside(&root, &disks).await.unwrap().unwrap().host;
    assert_eq!(host().await.as_str(), "hv-a");
    // Another program has the disk open, so the page cache is not invalidated when the host writes.
    let holder = File::open(&disk.0).unwrap();
    let mut cached = vec![0; BLOCK];
    holder.read_exact_at(&mut cached, 0).unwrap();
    std::fs::write(&file, good("hv-b")).unwrap();
    holder.read_exact_at(&mut cached, 0).unwrap();
    assert_eq!(cached, &good("hv-a")[..BLOCK], "the cache saw the host");
    assert_eq!(host().await.as_str(), "hv-b");
}

#[test]
fn changed_bytes_are_refused_or_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    // A simple generator with a fixed seed (xorshift64): the same bytes in each run.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = move |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    let (mut read, mut refused) = (0, 0);
    for _ in 0..500 {
        let mut image = good("hv-a");
        for _ in 0..below(6) {
            image[below(40)] = u8::try_from(below(256)).unwrap();
        }
        image.truncate(below(8192));
        std::fs::write(&path, &image).unwrap();
        match read_metrics("/dev/vdb".into(), &File::open(&path).unwrap()) {
            Ok(metrics) => {
                assert_eq!(metrics.host.as_str(), "hv-a");
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}
