// SPDX-License-Identifier: Apache-2.0
//! Debug messages for developers, from any module. Unless they are requested, they are not even formatted.

use std::sync::OnceLock;

static WRITER: OnceLock<Box<dyn Fn(String) + Send + Sync>> = OnceLock::new();

/// Writes the messages from now on. Later calls have no effect.
pub fn write_to(write: impl Fn(String) + Send + Sync + 'static) {
    // Fails only if there already is a writer.
    let _ = WRITER.set(Box::new(write));
}

/// Writes a message, if that was requested.
pub fn debug(message: impl FnOnce() -> String) {
    if let Some(write) = WRITER.get() {
        write(message());
    }
}
