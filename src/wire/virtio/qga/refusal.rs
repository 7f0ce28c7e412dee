// SPDX-License-Identifier: Apache-2.0
//! The reasons why a request is rejected.

/// The maximum length of a value, in bytes. A request has about a hundred.
pub const INPUT_MAX: usize = 64 * 1024;

/// The byte that resets the parser of either side.
pub const RESET: u8 = 0xFF;

/// The maximum number of characters of an untrusted name in an error.
pub(super) const NAME_SHOWN: usize = 200;

/// The reason why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QgaRefusal {
    /// The bytes are not JSON; the problem.
    #[error("JSON parse error, {0}")]
    NotJson(String),
    /// A value is too long.
    #[error("JSON value is longer than {INPUT_MAX} bytes")]
    TooLong,
    /// JSON, but not a request; the problem.
    #[error("{0}")]
    Invalid(String),
    /// There is no such command. The message is that of qemu-ga.
    #[error("The command {0} has not been found")]
    UnknownCommand(String),
    /// The command is valid and cannot be run now; the reason.
    #[error("{0}")]
    Unavailable(String),
}

impl QgaRefusal {
    /// Returns the error class of QEMU's protocol. It distinguishes an unknown command from all other errors.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::UnknownCommand(_) => "CommandNotFound",
            _ => "GenericError",
        }
    }
}
