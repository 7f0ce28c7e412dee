// SPDX-License-Identifier: Apache-2.0
//! The protocol of QEMU's guest agent, without I/O: bytes to requests, and replies to bytes.
//!
//! A client for qemu-ga (`docs/interop/qemu-ga.rst` of QEMU) can use this channel. A request is one JSON object,
//! `{"execute": NAME, "arguments": {...}, "id": ANYTHING}`; a reply is one line, `{"return": ...}` or `{"error": ...}`, with
//! the `id` of the request. The byte 0xFF, which is never in JSON, resets the parser; a client that does not
//! know the state of the channel sends it before `guest-sync-delimited`, whose reply begins with it.
//!
//! To add a command: add a variant of [`QgaCommand`], its name in [`QgaCommand::NAMES`], a line in [`Request::parse`], and its
//! reply in `triggers/operator_channel.rs`.

mod input;
mod request;

pub use input::{INPUT_MAX, Input};
pub use request::{QgaCommand, Request};

/// The byte that resets the parser of either side.
pub const RESET: u8 = 0xFF;

/// The maximum number of characters of an untrusted name in an error.
const NAME_SHOWN: usize = 200;

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
    fn class(&self) -> &'static str {
        match self {
            Self::UnknownCommand(_) => "CommandNotFound",
            _ => "GenericError",
        }
    }
}
