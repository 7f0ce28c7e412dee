// SPDX-License-Identifier: Apache-2.0
//! The least of the tar format: regular files with short names (pax(1), "ustar Interchange Format").

/// Headers and contents are whole blocks.
const BLOCK: usize = 512;

/// The longest name that the header has room for; longer ones are cut. Ours are short.
const NAME_MAX: usize = 100;

/// The longest directory in front of it.
const DIRECTORY_MAX: usize = 155;

/// An archive that grows.
#[derive(Debug)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    /// Where all files are.
    directory: String,
    /// The time for all files, in seconds since 1970.
    at: u64,
}

impl Archive {
    /// An empty one, for files below a directory.
    pub(super) fn new(directory: String, at: u64) -> Self {
        Self {
            bytes: Vec::new(),
            directory,
            at,
        }
    }

    /// Adds a file of mode 0600 that belongs to root.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        let mut header = Vec::with_capacity(BLOCK);
        field(&mut header, name.as_bytes(), NAME_MAX);
        for (number, width) in [
            (0o600, 8),
            (0, 8),
            (0, 8),
            (content.len() as u64, 12),
            (self.at, 12),
        ] {
            octal(&mut header, number, width);
        }
        let checksum_at = header.len();
        // The sum is made with spaces in its own place.
        field(&mut header, b"        ", 8);
        header.push(b'0');
        field(&mut header, b"", 100);
        field(&mut header, b"ustar\x0000", 8);
        field(&mut header, b"root", 32);
        field(&mut header, b"root", 32);
        // No device.
        field(&mut header, b"", 16);
        field(&mut header, self.directory.as_bytes(), DIRECTORY_MAX);
        header.resize(BLOCK, 0);
        let sum = header.iter().map(|byte| u64::from(*byte)).sum();
        let mut checksum = Vec::new();
        octal(&mut checksum, sum, 7);
        checksum.push(b' ');
        header.splice(checksum_at..checksum_at + checksum.len(), checksum);
        self.bytes.extend(header);
        self.bytes.extend(content);
        let end = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(end, 0);
    }

    /// The whole, with its end mark of two empty blocks.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

/// Text, cut or filled up with zeros.
fn field(header: &mut Vec<u8>, text: &[u8], width: usize) {
    let text = text.get(..width).unwrap_or(text);
    header.extend(text);
    header.resize(header.len() + width.saturating_sub(text.len()), 0);
}

/// A number in octal digits, with a zero behind.
fn octal(header: &mut Vec<u8>, number: u64, width: usize) {
    field(
        header,
        format!("{number:0digits$o}", digits = width - 1).as_bytes(),
        width,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_unpacks_what_was_put_in() {
        let long = "x".repeat(BLOCK);
        let unit = format!("units/{}", "u".repeat(NAME_MAX - "units/".len()));
        let files = [
            ("a.txt", "hello\n"),
            (unit.as_str(), ""),
            ("b", long.as_str()),
        ];
        let directory = "d".repeat(DIRECTORY_MAX);
        let mut archive = Archive::new(directory.clone(), 1_795_000_000);
        for (name, content) in files {
            archive.add(name, content.as_bytes());
        }
        let bytes = archive.finish();
        assert_eq!(bytes.len() % BLOCK, 0);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.tar"), bytes).unwrap();
        let tar = |arguments: &[&str]| {
            let output = Command::new("tar")
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
        for (name, content) in files {
            assert_eq!(
                std::fs::read_to_string(dir.path().join(&directory).join(name)).unwrap(),
                content
            );
        }
    }
}
