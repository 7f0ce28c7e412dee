// SPDX-License-Identifier: Apache-2.0
//! Metrics as a file for the textfile collector of the Prometheus node exporter.
//!
//! A file tells nothing of whether its writer lives, so it holds when the agent reconciled last. That alone is no reason to write
//! to a disk after every round: see [`Textfile::publish`]. One that is not to be written any more is taken away: the collector
//! would tell indefinitely what once was.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::trouble::Trouble;
use crate::sys::atomic_file;
use crate::sys::root::Root;

/// The collector's directory as Debian and its descendants package it.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/prometheus/node-exporter";

/// Our file in that directory.
pub const DEFAULT_FILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";

/// The collector runs as another user.
const TEXTFILE_MODE: u32 = 0o644;

/// How old what a round changes may become in the file. Shorter than the usual interval of rounds, so that each of these shows.
const STALE: Duration = Duration::from_secs(5 * 60);

/// The default file, where its directory exists.
pub fn default_file(root: &Root) -> Option<&'static Path> {
    let is_directory = root
        .metadata(DEFAULT_DIRECTORY)
        .is_ok_and(|metadata| metadata.is_dir());
    is_directory.then_some(Path::new(DEFAULT_FILE))
}

/// The file, as it was written last.
#[derive(Debug, Default)]
pub struct Textfile {
    state: String,
    /// When, since the start of the process.
    written: Option<Duration>,
    /// Where it was to be at the last round, if anywhere; none before the first round.
    place: Option<Option<PathBuf>>,
}

impl Textfile {
    /// Takes the file away from where it was, if it is to be elsewhere now. Of an earlier process only the default place is
    /// known.
    pub fn leave(&mut self, root: &Root, path: Option<&Path>) -> Option<Trouble> {
        let place = Some(path.map(Path::to_owned));
        if self.place == place {
            return None;
        }
        let before = std::mem::replace(&mut self.place, place);
        let before = before.unwrap_or_else(|| default_file(root).map(Path::to_owned));
        let before = before.filter(|before| Some(before.as_path()) != path)?;
        self.written = None;
        let error = atomic_file::remove(root, &before).err()?;
        Some(Trouble::new(before, &error))
    }

    /// Writes both pages: when the first one changed at once, for the second one alone not before the file is some minutes
    /// old. Its directory has to exist.
    pub fn publish(
        &mut self,
        root: &Root,
        path: &Path,
        state: &str,
        activity: &str,
        uptime: Duration,
    ) -> Option<Trouble> {
        let is_fresh = self
            .written
            .is_some_and(|written| uptime.saturating_sub(written) < STALE);
        if is_fresh && self.state == state && root.exists(path) {
            return None;
        }
        let text = [state, activity].concat();
        match atomic_file::write_atomic(root, path, text.as_bytes(), TEXTFILE_MODE) {
            Ok(_) => {
                self.state = state.to_owned();
                self.written = Some(uptime);
                None
            }
            Err(error) => Some(Trouble::new(path, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_written_only_into_a_directory_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert_eq!(default_file(&root), None);
        let mut textfile = Textfile::default();
        let path = Path::new(DEFAULT_FILE);
        let mut publish = || textfile.publish(&root, path, "a 1\n", "b 2\n", Duration::ZERO);
        assert_eq!(publish().unwrap().path, path);
        std::fs::create_dir_all(root.join(DEFAULT_DIRECTORY)).unwrap();
        assert_eq!(default_file(&root), Some(path));
        assert_eq!(publish(), None);
        assert_eq!(root.read_text(path, 1000).unwrap(), "a 1\nb 2\n");
        assert_eq!(
            root.list(DEFAULT_DIRECTORY).unwrap(),
            ["harvester_node_agent.prom"]
        );
    }

    #[test]
    fn a_file_that_is_not_to_be_written_any_more_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let (default, other) = (Path::new(DEFAULT_FILE), Path::new("/other.prom"));
        let mut textfile = Textfile::default();
        // Nothing is there to be taken away.
        assert_eq!(textfile.leave(&root, None), None);
        std::fs::create_dir_all(root.join(DEFAULT_DIRECTORY)).unwrap();
        for path in [Some(default), Some(other), Some(default), None] {
            assert_eq!(textfile.leave(&root, path), None);
            if let Some(path) = path {
                let written = textfile.publish(&root, path, "a 1\n", "", Duration::ZERO);
                assert_eq!(written, None);
            }
            for place in [default, other] {
                assert_eq!(root.exists(place), path == Some(place), "{path:?}");
            }
        }
        // What an earlier process left behind, and what is not ours to take away.
        std::fs::write(root.join(default), "old").unwrap();
        assert_eq!(Textfile::default().leave(&root, None), None);
        assert!(!root.exists(default));
        std::fs::create_dir(root.join(default)).unwrap();
        let trouble = Textfile::default().leave(&root, None).unwrap();
        assert!(trouble.what.contains("is not a regular file"), "{trouble}");
    }

    #[test]
    fn a_change_of_state_is_written_at_once_and_a_look_alone_after_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let path = Path::new("/a.prom");
        let mut textfile = Textfile::default();
        let mut written = |state: &str, activity: &str, seconds| {
            let uptime = Duration::from_secs(seconds);
            assert_eq!(textfile.publish(&root, path, state, activity, uptime), None);
            root.read_text(path, 1000).unwrap()
        };
        assert_eq!(written("a 1\n", "t 0\n", 0), "a 1\nt 0\n");
        assert_eq!(written("a 1\n", "t 299\n", 299), "a 1\nt 0\n");
        assert_eq!(written("a 2\n", "t 299\n", 299), "a 2\nt 299\n");
        assert_eq!(written("a 2\n", "t 300\n", 300), "a 2\nt 299\n");
        assert_eq!(written("a 2\n", "t 599\n", 599), "a 2\nt 599\n");
        // Someone who emptied the directory finds the file there again after the next round.
        std::fs::remove_file(root.join(path)).unwrap();
        assert_eq!(written("a 2\n", "t 600\n", 600), "a 2\nt 600\n");
    }
}
