// SPDX-License-Identifier: Apache-2.0
//! Where the next stream of a watch begins, and how long it may be silent.

use std::cmp::Ordering;
use std::time::Duration;

use crate::wire::kubeapi::{LONGEST_SILENCE, ObjectPath, Timeouts, WatchRequest, age};

/// The silence after which a stream that resumed at a version is given up. Servers send a bookmark every minute, but not before they
/// have reached that version: after a restore of etcd, that may take days. Migrations are missed in the meantime.
const DEAF: Duration = Duration::from_secs(75);

/// The maximum length of a resource version, which has at most 20 digits. A longer one is not sent: the request would not fit.
const MAXIMUM_VERSION: usize = 128;

/// The version that requests the object from the server's cache, or nothing if it does not exist.
const FROM_CACHE: &str = "0";

/// The beginning of the next stream.
#[derive(Debug, Default)]
pub(super) struct Resume {
    /// The version at which it resumes; `None`: start with the current object.
    pub(super) version: Option<String>,
    /// The number of consecutive streams that timed out without a bookmark.
    silent: u32,
    /// Whether no bookmarks are requested.
    pub(super) without_bookmarks: bool,
}

impl Resume {
    /// Returns the request for the stream.
    pub(super) fn request(&self, path: &ObjectPath, metadata_only: bool) -> WatchRequest {
        let usual = match self.version {
            Some(_) => DEAF,
            None => Timeouts::default().watch_silence,
        };
        // Some proxies and old servers send no bookmarks: there silence proves nothing, and TCP detects a peer that is gone.
        let silent = match self.without_bookmarks {
            true => u32::MAX,
            false => self.silent,
        };
        let factor = 2_u32.saturating_pow(silent);
        let version = self.version.as_deref().unwrap_or(FROM_CACHE);
        WatchRequest {
            path: path.clone(),
            resource_version: version.to_owned(),
            metadata_only,
            silence_limit: usual.saturating_mul(factor).min(LONGEST_SILENCE),
            bookmarks: !self.without_bookmarks,
        }
    }

    /// Resumes at the version of an event.
    pub(super) fn at(&mut self, version: String) {
        let is_sent = !version.is_empty() && version.len() <= MAXIMUM_VERSION;
        self.version = is_sent.then_some(version);
    }

    /// Resumes at the version of a bookmark. Returns false if it is older than the last version, if both are numbers: the history of the
    /// server has changed, as after a restore of etcd. The next stream then starts with the current object.
    pub(super) fn at_bookmark(&mut self, version: String) -> bool {
        self.silent = 0;
        let is_older = age(&version, self.version.take().as_deref()) == Some(Ordering::Less);
        if !is_older {
            self.at(version);
        }
        !is_older
    }

    /// Starts with the current object after a stream that was silent: a server that has not reached the version yet is silent, too.
    pub(super) fn after_silence(&mut self) {
        self.silent = self.silent.saturating_add(1);
        self.version = None;
    }

    /// Requests bookmarks of a server that may have another storage now. Only a stream from the beginning shows it.
    pub(super) fn with_bookmarks(&mut self) {
        if std::mem::take(&mut self.without_bookmarks) {
            self.version = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::kubeapi::NODES;

    /// Returns the version of the next request, and its silence limit in seconds.
    fn asked(resume: &Resume) -> (String, u64) {
        let request = resume.request(&NODES, true);
        (request.resource_version, request.silence_limit.as_secs())
    }

    #[test]
    fn a_stream_resumes_at_the_last_version_that_can_be_sent() {
        let mut resume = Resume::default();
        assert_eq!(asked(&resume), ("0".to_owned(), 90));
        for (version, expected) in [("7", "7"), ("", "0"), ("x", "x"), (&"9".repeat(129), "0")] {
            resume.at(version.to_owned());
            assert_eq!(asked(&resume).0, expected, "{version}");
        }
    }

    #[test]
    fn a_bookmark_that_is_older_than_the_last_version_begins_anew() {
        for (last, bookmark, is_newer) in [
            ("7", "8", true),
            ("7", "7", true),
            ("7", "6", false),
            ("10", "9", false),
            ("x", "6", true),
            ("7", "x", true),
        ] {
            let mut resume = Resume::default();
            resume.at(last.to_owned());
            assert_eq!(resume.at_bookmark(bookmark.to_owned()), is_newer);
            let expected = if is_newer { bookmark } else { "0" };
            assert_eq!(asked(&resume).0, expected, "{last} {bookmark}");
        }
    }

    #[test]
    fn silence_allows_more_until_a_bookmark_and_without_bookmarks_half_an_hour() {
        let mut resume = Resume::default();
        for seconds in [90, 180, 360, 720, 1440, 1800, 1800] {
            assert_eq!(asked(&resume).1, seconds);
            resume.after_silence();
        }
        resume = Resume::default();
        resume.at("7".to_owned());
        assert_eq!(asked(&resume), ("7".to_owned(), 75));
        resume.after_silence();
        assert_eq!(asked(&resume), ("0".to_owned(), 180));
        assert!(resume.at_bookmark("8".to_owned()));
        assert_eq!(asked(&resume), ("8".to_owned(), 75));
        resume.without_bookmarks = true;
        assert_eq!(asked(&resume), ("8".to_owned(), 1800));
        assert!(!resume.request(&NODES, true).bookmarks);
        resume.with_bookmarks();
        assert_eq!(asked(&resume), ("0".to_owned(), 90));
        resume.at("9".to_owned());
        resume.with_bookmarks();
        assert_eq!(asked(&resume).0, "9", "they were requested all the time");
    }
}
