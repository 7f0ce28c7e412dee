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
mod refusal;
mod request;

pub use input::Input;
pub use refusal::{INPUT_MAX, QgaRefusal, RESET};
pub use request::{QgaCommand, Request};
