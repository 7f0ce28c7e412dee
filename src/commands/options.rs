// SPDX-License-Identifier: Apache-2.0
//! Parts of options that several commands have.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::sys::escape::shell_path;

/// The help of `--strict`.
pub(super) const STRICT: &str = "Exit with status 3 if there are only warnings";

/// Returns the option for the only configuration file in a command, with a space; nothing for the default files.
pub(super) fn config_option(only: Option<&Path>) -> String {
    only.map(|file| format!("--config={} ", shell_path(file)))
        .unwrap_or_default()
}

/// Parses a path that is relative to the caller's working directory, which does not exist inside the root.
pub(super) fn outer_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}
