// SPDX-License-Identifier: Apache-2.0
//! `/run/harvester-node-agent/status.json`: the last status of the running daemon, for `status` and for all users.
//!
//! The file is world-readable: it must never contain a secret.

use serde::Serialize;
use serde_json::Value;

use crate::sys::disk::Content;
use crate::sys::document::json::damage;
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
    /// It is of another version.
    #[error("the status file is of another version of the agent: {0}")]
    Version(String),
    /// The file is not JSON, or a field is missing or invalid.
    #[error("`{STATUS_FILE}` is damaged: {0}")]
    Damaged(String),
}

/// Returns the content of the file.
pub fn content<T: Serialize>(status: &T) -> Content {
    let text = serde_json::to_string_pretty(status).unwrap_or_default();
    Content {
        path: STATUS_FILE.into(),
        text: Some(format!("{}\n", in_json(&text))),
        mode: STATUS_MODE,
    }
}

/// Reads the last published status.
pub fn read(root: &Root) -> Result<Value, StatusError> {
    let bytes = root
        .read(STATUS_FILE, STATUS_LIMIT)
        .map_err(StatusError::Unreadable)?;
    serde_json::from_slice(&bytes).map_err(|error| StatusError::Damaged(damage(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_absent_and_a_broken_status_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        assert!(matches!(read(&root), Err(StatusError::Unreadable(error)) if error.is_absent()));
        std::fs::create_dir_all(root.join(STATUS_FILE).parent().unwrap()).unwrap();
        std::fs::write(root.join(STATUS_FILE), content(&json!({})).text.unwrap()).unwrap();
        assert_eq!(read(&root).unwrap(), json!({}));
        for (text, says) in [
            ("", "it ends too early, in line 1"),
            ("{\n\"a\": b}", "line 2 is not JSON"),
        ] {
            std::fs::write(root.join(STATUS_FILE), text).unwrap();
            let error = read(&root).unwrap_err().to_string();
            assert_eq!(error, format!("`{STATUS_FILE}` is damaged: {says}"));
        }
    }
}
