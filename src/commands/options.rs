// SPDX-License-Identifier: Apache-2.0
//! Parts of options that several commands have.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

/// The help of `--strict`.
pub(super) const STRICT: &str = "Exit with status 3 if there are only warnings";

/// Parses a path that is relative to the caller's working directory, which does not exist inside the root.
pub(super) fn outer_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute)
}
