// SPDX-License-Identifier: Apache-2.0
//! `/run/harvester-node-agent/status.json`: for the `status` command and for other programs. It holds no secret.

use super::status::Status;
use crate::durable::{Lasting, WriteError, own_directory, write};
use crate::lock::RUN_DIRECTORY;
use crate::root::{ReadError, Root};

const NAME: &str = "status.json";

/// A status with every finding there is has some 50 kB.
const SIZE_MAX: u64 = 1 << 20;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It cannot be read.
    #[error("no status")]
    Read(#[source] ReadError),
    /// It is not JSON.
    #[error("`{RUN_DIRECTORY}/{NAME}` is not JSON")]
    Malformed(#[source] serde_json::Error),
}

/// Writes the status.
pub fn publish(root: &Root, status: &Status) -> Result<(), WriteError> {
    let directory = own_directory(root, RUN_DIRECTORY, 0o755)?;
    let mut text = serde_json::to_vec_pretty(status).unwrap_or_default();
    text.push(b'\n');
    write(&directory, NAME, &text, 0o644, Lasting::Volatile)
}

/// Reads the status.
pub fn read(root: &Root) -> Result<serde_json::Value, StatusError> {
    let bytes = root
        .read(format!("{RUN_DIRECTORY}/{NAME}"), SIZE_MAX)
        .map_err(StatusError::Read)?;
    serde_json::from_slice(&bytes).map_err(StatusError::Malformed)
}
