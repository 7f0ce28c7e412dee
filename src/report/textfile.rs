// SPDX-License-Identifier: Apache-2.0
//! Metrics as a file for the textfile collector of the Prometheus node exporter.
//!
//! A file does not show whether its writer is alive, so it contains the time of the last reconcile. That alone is no reason to
//! write to a disk after every round: see [`Textfile::publish`]. A file that is no longer updated is removed: otherwise the
//! collector would report outdated values indefinitely.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file_writers::SETTLE;
use crate::config::MetricsFile;
use crate::sys::disk::{Content, FileWriter};
use crate::sys::root::Root;

/// The collector's directory in Debian and derived distributions.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/prometheus/node-exporter";

/// The path of our file in that directory.
pub const DEFAULT_FILE: &str = "/var/lib/prometheus/node-exporter/harvester_node_agent.prom";

/// The mode of the file: the collector runs as another user.
const TEXTFILE_MODE: u32 = 0o644;

/// The maximum age of the values that each round changes. Shorter than the usual interval of rounds, so that each is written.
const STALE: Duration = Duration::from_secs(5 * 60);

/// Returns the path of the file; `None` if there is to be no file.
pub fn path(root: &Root, settings: &MetricsFile) -> Option<PathBuf> {
    match settings {
        MetricsFile::Off => None,
        MetricsFile::Path(path) => Some(path.clone()),
        MetricsFile::Auto => {
            let directory = root.metadata(DEFAULT_DIRECTORY);
            let is_directory = directory.is_ok_and(|metadata| metadata.is_dir());
            is_directory.then(|| DEFAULT_FILE.into())
        }
    }
}

/// The file.
#[derive(Debug)]
pub struct Textfile {
    root: Root,
    writer: FileWriter,
    /// What was written last, without what each round changes.
    state: String,
    /// The time of the last write, since the start of the process.
    written: Option<Duration>,
    /// The path in the last round, if any; the outer `None` before the first round.
    place: Option<Option<PathBuf>>,
}

impl Textfile {
    /// Creates a textfile that was not written yet.
    pub fn new(root: &Root, writer: FileWriter) -> Self {
        Self {
            root: root.clone(),
            writer,
            state: String::new(),
            written: None,
            place: None,
        }
    }

    /// Writes both pages: immediately if the first one changed; if only the second one changed, not before the file is some
    /// minutes old. The directory must exist. Without a path, there is to be no file.
    pub fn publish(&mut self, path: Option<&Path>, state: &str, activity: &str, uptime: Duration) {
        self.leave(path);
        let is_fresh = self
            .written
            .is_some_and(|written| uptime.saturating_sub(written) < STALE);
        let is_same = is_fresh && self.state == state;
        let Some(path) = path.filter(|path| !is_same || !self.root.exists(path)) else {
            return;
        };
        let is_written = self.write(path.to_owned(), Some([state, activity].concat()));
        self.written = is_written.then_some(uptime);
        state.clone_into(&mut self.state);
    }

    /// Removes the file from its previous path if the path has changed. For an earlier process only the default path is known.
    fn leave(&mut self, path: Option<&Path>) {
        let place = Some(path.map(Path::to_owned));
        if self.place == place {
            return;
        }
        let before = self.place.clone();
        let before = before.unwrap_or_else(|| self::path(&self.root, &MetricsFile::Auto));
        if let Some(before) = before.filter(|before| Some(before.as_path()) != path) {
            self.written = None;
            // A disk that does not respond must not make the next content replace this one.
            if !self.write(before, None) {
                return;
            }
        }
        self.place = place;
    }

    /// Reports whether the file is written, or will be.
    fn write(&self, path: PathBuf, text: Option<String>) -> bool {
        let (mode, is_removal) = (TEXTFILE_MODE, text.is_none());
        let content = Content { path, text, mode };
        self.writer.write(content.clone());
        let is_idle = self.writer.settle(SETTLE);
        !is_idle && !is_removal || self.writer.has_written(&content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;

    use crate::access::testing::tree;
    use crate::sys::disk::Outcome;

    /// Returns a textfile and the outcomes of its writes: errors, or nothing.
    fn textfile(root: &Root) -> (Textfile, mpsc::Receiver<Option<String>>) {
        let (told, outcomes) = mpsc::channel();
        let writer = FileWriter::new(root, move |_, outcome| {
            let is_written = matches!(outcome, Outcome::Written);
            let error = (!is_written).then(|| format!("{outcome:?}"));
            told.send(error).unwrap();
        });
        (Textfile::new(root, writer), outcomes)
    }

    #[test]
    fn the_file_is_written_only_into_a_directory_that_exists() {
        let (_dir, root) = tree();
        assert_eq!(super::path(&root, &MetricsFile::Auto), None);
        let (mut textfile, outcomes) = textfile(&root);
        let path = Path::new(DEFAULT_FILE);
        let mut publish = || textfile.publish(Some(path), "a 1\n", "b 2\n", Duration::ZERO);
        publish();
        let error = outcomes.recv().unwrap().unwrap();
        assert!(error.contains(DEFAULT_DIRECTORY), "{error}");
        std::fs::create_dir_all(root.join(DEFAULT_DIRECTORY)).unwrap();
        let default = super::path(&root, &MetricsFile::Auto);
        assert_eq!(default.as_deref(), Some(path));
        publish();
        assert_eq!(outcomes.recv().unwrap(), None);
        assert_eq!(root.read_text(path, 1000).unwrap(), "a 1\nb 2\n");
        assert_eq!(root.list(DEFAULT_DIRECTORY).unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_is_not_to_be_written_any_more_is_taken_away() {
        let (_dir, root) = tree();
        let (default, other) = (Path::new(DEFAULT_FILE), Path::new("/other.prom"));
        let (mut file, outcomes) = textfile(&root);
        // There is no file to remove.
        file.publish(None, "", "", Duration::ZERO);
        std::fs::create_dir_all(root.join(DEFAULT_DIRECTORY)).unwrap();
        for path in [Some(default), Some(other), Some(default), None] {
            file.publish(path, "a 1\n", "", Duration::ZERO);
            for place in [default, other] {
                assert_eq!(root.exists(place), path == Some(place), "{path:?}");
            }
        }
        assert_eq!(outcomes.try_iter().flatten().next(), None);
        // A file of an earlier process, and a file that is not ours.
        std::fs::write(root.join(default), "old").unwrap();
        let (mut file, _outcomes) = textfile(&root);
        file.publish(None, "", "", Duration::ZERO);
        assert!(!root.exists(default));
        std::fs::create_dir(root.join(default)).unwrap();
        let (mut file, outcomes) = textfile(&root);
        file.publish(None, "", "", Duration::ZERO);
        let error = outcomes.recv().unwrap().unwrap();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_change_of_state_is_written_at_once_and_a_look_alone_after_minutes() {
        let (_dir, root) = tree();
        let path = Path::new("/a.prom");
        let (mut textfile, _outcomes) = textfile(&root);
        let mut written = |state: &str, activity: &str, seconds| {
            let uptime = Duration::from_secs(seconds);
            textfile.publish(Some(path), state, activity, uptime);
            root.read_text(path, 1000).unwrap()
        };
        assert_eq!(written("a 1\n", "t 0\n", 0), "a 1\nt 0\n");
        assert_eq!(written("a 1\n", "t 299\n", 299), "a 1\nt 0\n");
        assert_eq!(written("a 2\n", "t 299\n", 299), "a 2\nt 299\n");
        assert_eq!(written("a 2\n", "t 300\n", 300), "a 2\nt 299\n");
        assert_eq!(written("a 2\n", "t 599\n", 599), "a 2\nt 599\n");
        // If the file was removed, it is written again in the next round.
        std::fs::remove_file(root.join(path)).unwrap();
        assert_eq!(written("a 2\n", "t 600\n", 600), "a 2\nt 600\n");
    }
}
