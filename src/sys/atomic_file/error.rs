// SPDX-License-Identifier: Apache-2.0
//! The reason why a file could not be written.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// An object at the path must not be changed.
    #[error("did not write `{path}`: `{obstacle}` {reason}")]
    Refused {
        /// The file that was to be written.
        path: PathBuf,
        /// The object.
        obstacle: PathBuf,
        /// The problem of the object.
        reason: &'static str,
    },
    /// A system call failed.
    #[error("failed to {action} `{path}`")]
    Io {
        /// The step, such as "rename".
        action: &'static str,
        /// The file or directory of that step.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// Returns the error for an object that must not be changed.
pub(super) fn refused(path: &Path, obstacle: &Path, reason: &'static str) -> WriteError {
    WriteError::Refused {
        path: path.to_owned(),
        obstacle: obstacle.to_owned(),
        reason,
    }
}

/// Returns a function that converts the error of the kernel to the error of a step.
pub(super) fn io_error<E: Into<io::Error>>(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(E) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Io {
        action,
        path,
        source: source.into(),
    }
}
