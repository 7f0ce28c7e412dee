// SPDX-License-Identifier: Apache-2.0
//! The support archive: the data that support needs to analyze this machine, without secrets.
//!
//! Every part goes through [`scrub`], whatever its source. `contents.txt` lists the missing parts, with the reasons.

pub mod scrub;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::unistd::linkat;
use serde_json::Value;
use time::UtcDateTime;

use crate::decide::rfc3339;
use crate::sys::escape::json_text;

/// For the owner only: [`scrub`] removes only the secrets that it recognizes.
const MODE: u32 = 0o600;

/// The maximum length of a hostname (`__NEW_UTS_LEN`).
const HOST_MAX: usize = 64;

/// The parts of an archive, in their order.
#[derive(Debug, Default)]
pub struct Bundle {
    parts: Vec<(String, String)>,
    absent: Vec<(String, String)>,
}

impl Bundle {
    /// Adds a text, or the reason why it is missing.
    pub fn text(&mut self, name: &str, text: Result<String, String>) {
        self.add(name, text.map(|text| scrub::text(&text)));
    }

    /// Adds a JSON document, or the reason why it is missing. It remains valid JSON without its secrets.
    pub fn document(&mut self, name: &str, document: Result<Value, String>) {
        let document = document.map(|mut value| {
            scrub::value(&mut value);
            json_text(&value)
        });
        self.add(name, document);
    }

    /// Adds journal records, one JSON object per line, or the reason why they are missing.
    pub fn records(&mut self, name: &str, records: Result<String, String>) {
        let records = records.map(|records| {
            let records = records.lines().filter_map(scrub::record);
            records.map(|record| format!("{record}\n")).collect()
        });
        self.add(name, records);
    }

    fn add(&mut self, name: &str, scrubbed: Result<String, String>) {
        match scrubbed {
            Ok(text) => self.parts.push((name.to_owned(), text)),
            Err(why) => self.absent.push((name.to_owned(), scrub::text(&why))),
        }
    }

    /// Returns the archive, in the ustar format. All files are in one directory, whose name has the hostname and the time:
    /// archives of several machines do not overwrite each other.
    ///
    /// # Errors
    ///
    /// Returns an error if the name of a part is outside the directory.
    pub fn archive(&self, host: &str, at: UtcDateTime) -> io::Result<Vec<u8>> {
        let directory = directory(host, at);
        let seconds = u64::try_from(at.unix_timestamp()).unwrap_or_default();
        let contents = ("contents.txt".to_owned(), self.contents());
        let mut archive = tar::Builder::new(Vec::new());
        for (name, text) in [&contents].into_iter().chain(&self.parts) {
            let mut header = tar::Header::new_ustar();
            header.set_mode(MODE);
            header.set_uid(0);
            header.set_gid(0);
            header.set_username("root")?;
            header.set_groupname("root")?;
            header.set_mtime(seconds);
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, format!("{directory}/{name}"), text.as_bytes())?;
        }
        archive.into_inner()
    }

    fn contents(&self) -> String {
        let mut text =
            "Support archive of harvester-node-agent. What looks like a secret is redacted ([removed]).\nReview it before you share it.\n\n"
                .to_owned();
        for (name, part) in &self.parts {
            let removed = match part.matches(scrub::REMOVED).count() {
                0 => String::new(),
                count => format!(", {count} x {}", scrub::REMOVED),
            };
            let _ = writeln!(text, "{name}: {} bytes{removed}", part.len());
        }
        for (name, why) in &self.absent {
            let _ = writeln!(text, "{name}: missing, {why}");
        }
        text
    }
}

/// Returns the name of the directory, valid for any hostname.
fn directory(host: &str, at: UtcDateTime) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let host: String = host.trim().chars().take(HOST_MAX).collect();
    let host = host.replace(|character| !is_plain(character), "-");
    let time = rfc3339(at).replace(['-', ':'], "");
    format!("doctor-{}-{time}", host.trim_matches('-'))
}

/// Creates a file for its owner only. An existing file or link is not changed. Where the file system supports files without a name
/// (`O_TMPFILE`), the file gets its name when it is complete: a killed process leaves nothing.
///
/// # Errors
///
/// Returns the error of the kernel.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE);
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let mut unnamed = options.clone();
    let unnamed = unnamed.custom_flags(libc::O_TMPFILE);
    if let Ok(file) = unnamed.open(parent.unwrap_or(Path::new("."))) {
        fill(&file, bytes)?;
        let content = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        return Ok(linkat(AT_FDCWD, content.as_str(), AT_FDCWD, path, flags)?);
    }
    let file = options.create_new(true).open(path)?;
    fill(&file, bytes).inspect_err(|_| {
        // A partial archive is useless; the write error is the one to report.
        let _ = std::fs::remove_file(path);
    })
}

fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    // Some file systems report a full disk only at the sync.
    file.write_all(bytes).and_then(|()| file.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let mut bundle = Bundle::default();
        bundle.text("a.txt", Ok("hello".to_owned()));
        bundle.text("b.txt", Err("journalctl is not installed".to_owned()));
        let contents = bundle.contents();
        assert!(contents.contains("a.txt: 5 bytes\nb.txt: missing, journalctl is not installed\n"));
    }

    #[test]
    fn how_much_was_removed_of_each_part_is_said() {
        let mut bundle = Bundle::default();
        bundle.text("a.txt", Ok("password: x\ntoken: y\n".to_owned()));
        bundle.document("b.json", Ok(serde_json::json!({"token": "x"})));
        let contents = bundle.contents();
        for line in [
            "a.txt: 37 bytes, 2 x [removed]",
            "b.json: 27 bytes, 1 x [removed]",
        ] {
            assert!(contents.lines().any(|found| found == line), "{contents}");
        }
    }

    #[test]
    fn tar_unpacks_what_was_put_in() {
        let mut bundle = Bundle::default();
        let unit = format!("units/{}", "u".repeat(200));
        for (name, text) in [("a.txt", "hello\n"), (unit.as_str(), ""), ("b", "words\n")] {
            bundle.text(name, Ok(text.to_owned()));
        }
        let at = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
        let host = "h".repeat(HOST_MAX);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.tar"), bundle.archive(&host, at).unwrap()).unwrap();
        let tar = |arguments: &[&str]| {
            let output = std::process::Command::new("tar")
                .args(arguments)
                .current_dir(dir.path())
                .env("TZ", "UTC")
                .output()
                .unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{output:?}"
            );
            String::from_utf8(output.stdout).unwrap()
        };
        let list = tar(&["-tvf", "a.tar"]);
        assert!(
            list.contains("-rw------- root/root         6 2026-11-18 "),
            "{list}"
        );
        tar(&["-xf", "a.tar"]);
        let unpacked = dir.path().join(directory(&host, at));
        for (name, text) in &bundle.parts {
            assert_eq!(&std::fs::read_to_string(unpacked.join(name)).unwrap(), text);
        }
    }

    #[test]
    fn the_directory_reports_machine_and_time_and_is_one_name_whatever_the_host_is_called() {
        let at = UtcDateTime::from_unix_timestamp(1_795_000_000).unwrap();
        for (host, name) in [
            ("pool1-abcde\n", "doctor-pool1-abcde-20261118T110640Z"),
            ("node.example", "doctor-node-example-20261118T110640Z"),
            ("../../etc/\u{1b}[31m", "doctor-etc---31m-20261118T110640Z"),
            ("", "doctor--20261118T110640Z"),
        ] {
            assert_eq!(directory(host, at), name);
        }
        let long = directory(&"x".repeat(500), at);
        assert_eq!(long.len(), "doctor--20261118T110640Z".len() + HOST_MAX);
    }

    #[test]
    fn a_file_is_new_and_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.tar");
        write(&path, b"one").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let error = write(&path, b"two").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let link = dir.path().join("link.tar");
        symlink(dir.path().join("victim"), &link).unwrap();
        assert_eq!(
            write(&link, b"two").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert!(!dir.path().join("victim").exists());
    }
}
