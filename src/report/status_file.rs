// SPDX-License-Identifier: Apache-2.0
//! `/run/harvester-node-agent/status.json`: the last status of the running daemon, for `status` and for all users.
//!
//! The file is world-readable: it must never contain a secret.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::trouble::Trouble;
use crate::sys::atomic_file;
use crate::sys::escape::in_json;
use crate::sys::root::{ReadError, Root};

/// The path of the status file.
pub const STATUS_FILE: &str = "/run/harvester-node-agent/status.json";

/// The mode of the file: all users may read it, only the agent writes it.
const STATUS_MODE: u32 = 0o644;

/// The maximum size of a status, which usually has a few KiB.
const STATUS_LIMIT: u64 = 1024 * 1024;

/// The reason why the status cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The file cannot be read; a missing file means that no daemon has run since boot.
    #[error("failed to read the status")]
    Unreadable(#[source] ReadError),
    /// The file is not JSON.
    #[error("`{STATUS_FILE}` is not JSON")]
    Malformed(#[source] serde_json::Error),
}

/// Writes the status if it differs from the last one.
pub fn publish<T: Serialize>(root: &Root, status: &T) -> Option<Trouble> {
    let bytes = match serde_json::to_vec_pretty(status) {
        Ok(bytes) => bytes,
        Err(error) => return Some(Trouble::new(STATUS_FILE, &error)),
    };
    let text = String::from_utf8_lossy(&bytes);
    let text = format!("{}\n", in_json(&text));
    atomic_file::write_atomic(root, Path::new(STATUS_FILE), text.as_bytes(), STATUS_MODE)
        .err()
        .map(|error| Trouble::new(STATUS_FILE, &error))
}

/// Reads the last published status.
pub fn read(root: &Root) -> Result<Value, StatusError> {
    let bytes = root
        .read(STATUS_FILE, STATUS_LIMIT)
        .map_err(StatusError::Unreadable)?;
    serde_json::from_slice(&bytes).map_err(StatusError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_status_is_written_on_change_only_and_anybody_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        let metadata = || root.metadata(STATUS_FILE).unwrap();
        assert_eq!(publish(&root, &json!({"host": "hv-a"})), None);
        let first = metadata().ino();
        assert_eq!(metadata().mode() & 0o7777, 0o644);
        assert_eq!(publish(&root, &json!({"host": "hv-a"})), None);
        assert_eq!(metadata().ino(), first);
        assert_eq!(publish(&root, &json!({"host": "hv-b"})), None);
        assert_eq!(read(&root).unwrap(), json!({"host": "hv-b"}));
    }

    #[test]
    fn an_absent_and_a_broken_status_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert!(matches!(read(&root), Err(StatusError::Unreadable(error)) if error.is_absent()));
        publish(&root, &json!({}));
        std::fs::write(root.join(STATUS_FILE), "{").unwrap();
        assert!(matches!(read(&root), Err(StatusError::Malformed(_))));
    }

    #[test]
    fn what_cannot_be_published_becomes_a_trouble_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        std::fs::create_dir_all(root.join(STATUS_FILE)).unwrap();
        let trouble = publish(&root, &json!({})).unwrap();
        assert_eq!(trouble.path, Path::new(STATUS_FILE));
        assert!(trouble.what.contains("is not a regular file"), "{trouble}");
        let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
        assert!(publish(&root, &keys).is_some());
    }
}
