// SPDX-License-Identifier: Apache-2.0
//! The support archive: what somebody else needs to understand this machine, and nothing that opens a door.
//!
//! Every part goes through [`scrub`], whatever it is made of. What is missing is named in `contents.txt`, with the reason.

pub mod scrub;
mod tar;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;

/// For the owner alone: what is removed is only what could be recognised.
const MODE: u32 = 0o600;

/// The directory that everything unpacks to.
const DIRECTORY: &str = "harvester-node-agent-doctor";

/// The parts of an archive, in their order.
#[derive(Debug, Default)]
pub struct Bundle {
    parts: Vec<(String, String)>,
    absent: Vec<(String, String)>,
}

impl Bundle {
    /// Adds a text, or why there is none.
    pub fn text(&mut self, name: &str, text: Result<String, String>) {
        match text {
            Ok(text) => self.parts.push((name.to_owned(), scrub::text(&text))),
            Err(why) => self.absent.push((name.to_owned(), scrub::text(&why))),
        }
    }

    /// Adds a JSON document, or why there is none. What is removed leaves a document.
    pub fn document(&mut self, name: &str, document: Result<Value, String>) {
        match document {
            Ok(mut value) => {
                scrub::value(&mut value);
                self.parts.push((name.to_owned(), format!("{value:#}\n")));
            }
            Err(why) => self.absent.push((name.to_owned(), scrub::text(&why))),
        }
    }

    /// Adds journal records, a JSON object in each line.
    pub fn records(&mut self, name: &str, records: Result<String, String>) {
        let kept = records.map(|records| {
            let records = records.lines().filter_map(scrub::record);
            records.map(|record| format!("{record}\n")).collect()
        });
        match kept {
            Ok(records) => self.parts.push((name.to_owned(), records)),
            Err(why) => self.absent.push((name.to_owned(), scrub::text(&why))),
        }
    }

    /// The archive, in the format of ustar. `at` is the time for all its files, in seconds since 1970.
    pub fn archive(&self, at: u64) -> Vec<u8> {
        let mut archive = tar::Archive::new(at);
        let contents = ("contents.txt".to_owned(), self.contents());
        for (name, text) in [&contents].into_iter().chain(&self.parts) {
            archive.add(&format!("{DIRECTORY}/{name}"), text.as_bytes());
        }
        archive.finish()
    }

    fn contents(&self) -> String {
        let mut text =
            "A diagnosis of harvester-node-agent, without what looks like a secret ([removed]).\n\
                        Look through it before you pass it on.\n\n"
                .to_owned();
        for (name, part) in &self.parts {
            let _ = writeln!(text, "{name}: {} bytes", part.len());
        }
        for (name, why) in &self.absent {
            let _ = writeln!(text, "{name}: missing, {why}");
        }
        text
    }
}

/// Writes a new file for its owner alone. A file that is there, or a link, stays as it is.
///
/// # Errors
///
/// What the kernel said.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // Half an archive helps nobody; that writing it failed is the error to tell.
        let _ = std::fs::remove_file(path);
    })
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
