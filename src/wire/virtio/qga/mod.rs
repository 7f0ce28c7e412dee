// SPDX-License-Identifier: Apache-2.0
//! The wire dialect of QEMU's guest agent, as pure data: bytes in, requests; replies, bytes out.
//!
//! A client that speaks to qemu-ga (`docs/interop/qemu-ga.rst` of QEMU) can speak to us. A request is one JSON object,
//! `{"execute": NAME, "arguments": {...}, "id": ANYTHING}`; a reply is one line, `{"return": ...}` or `{"error": ...}`, that
//! carries the request's `id`. The byte 0xFF, which no JSON holds, makes the parser forget what it has; a client that does not
//! know what an earlier one left behind sends it before `guest-sync-delimited`, whose reply begins with it.
//!
//! To add a command: a variant of [`QgaCommand`], its name in [`QgaCommand::NAMES`], a line in [`Request::parse`], and its answer
//! in `triggers/operator_channel.rs`.

mod input;
mod request;

pub use input::{INPUT_MAX, Input};
pub use request::{QgaCommand, Request};

/// Makes the parser of either side forget what it has.
pub const RESET: u8 = 0xFF;

/// Characters of a foreign name that are reported back.
const NAME_SHOWN: usize = 200;

/// Why a request is not done. The words are those of qemu-ga, so that they mean the same to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QgaRefusal {
    /// The bytes are no JSON; what is wrong with them.
    #[error("JSON parse error, {0}")]
    NotJson(String),
    /// A value does not end.
    #[error("JSON value is longer than {INPUT_MAX} bytes")]
    TooLong,
    /// JSON, but not an object.
    #[error("QMP input must be a JSON object")]
    NotAnObject,
    /// No command is named.
    #[error("QMP input lacks member 'execute'")]
    NoCommand,
    /// A member of the request has the wrong type.
    #[error("QMP input member '{name}' must be {expected}")]
    MemberType {
        /// The member.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The request has a member that means nothing.
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
        /// What it must be.
        expected: &'static str,
    },
    /// The command has no such argument.
    #[error("Parameter '{0}' is unexpected")]
    UnexpectedParameter(String),
    /// The command was understood and cannot be done now; why.
    #[error("{0}")]
    Unavailable(String),
}

impl QgaRefusal {
    /// The error class of QEMU's protocol. A client tells a missing command from all other trouble by it.
    fn class(&self) -> &'static str {
        match self {
            Self::UnknownCommand(_) => "CommandNotFound",
            _ => "GenericError",
        }
    }
}
