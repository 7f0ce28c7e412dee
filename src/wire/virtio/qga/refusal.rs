// SPDX-License-Identifier: Apache-2.0
//! The reasons why a request is rejected.

/// The maximum length of a value, in bytes. A request has about a hundred.
pub const INPUT_MAX: usize = 64 * 1024;

/// The byte that resets the parser of either side.
pub const RESET: u8 = 0xFF;

/// The maximum number of characters of an untrusted name in an error.
pub(super) const NAME_SHOWN: usize = 200;

/// The reason why a request is rejected. The messages are those of qemu-ga, so that clients can handle them in the same way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QgaRefusal {
    /// The bytes are not JSON; the problem.
    #[error("JSON parse error, {0}")]
    NotJson(String),
    /// A value is too long.
    #[error("JSON value is longer than {INPUT_MAX} bytes")]
    TooLong,
    /// JSON, but not an object.
    #[error("QMP input must be a JSON object")]
    NotAnObject,
    /// The request has no command.
    #[error("QMP input lacks member 'execute'")]
    NoCommand,
    /// A member of the request has the wrong type.
    #[error("QMP input member '{name}' must be {expected}")]
    MemberType {
        /// The member.
        name: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// The request has an unknown member.
    #[error("QMP input member '{0}' is unexpected")]
    UnexpectedMember(String),
    /// There is no such command.
    #[error("The command {0} has not been found")]
    UnknownCommand(String),
    /// The command lacks an argument.
    #[error("Parameter '{0}' is missing")]
    MissingParameter(&'static str),
    /// An argument has the wrong type.
    #[error("Invalid parameter type for '{name}', expected: {expected}")]
    ParameterType {
        /// The argument.
        name: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// The command has no such argument.
    #[error("Parameter '{0}' is unexpected")]
    UnexpectedParameter(String),
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
