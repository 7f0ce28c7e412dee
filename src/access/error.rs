// SPDX-License-Identifier: Apache-2.0
//! The reasons why a kubeconfig cannot be used as a credential.
//!
//! Every error names the file and the key, the value found there and the valid ones. Values are quoted only if they
//! cannot be a secret, and then truncated, with control characters escaped.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use zeroize::Zeroizing;

use crate::sys::escape::one_line;
use crate::sys::root::ReadError;

/// The maximum number of characters of a quoted value; a name or a URL scheme fits, a token does not.
const QUOTED_MAX: usize = 40;

/// The start of a reference to a Secret in Rancher.
pub(super) const REFERENCE: &str = "secret://";

/// The reason why a kubeconfig cannot be used as a credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The kubeconfig itself cannot be read.
    #[error("failed to read the kubeconfig")]
    Unreadable(#[source] ReadError),
    /// A file that the kubeconfig names cannot be read.
    #[error("failed to read the file in `{key}` of `{path}`")]
    Reference {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The cause.
        #[source]
        source: ReadError,
    },
    /// The value of a key that names a file is no path of one. It is not shown: it may be a secret at the wrong key.
    #[error("`{key}` of `{path}` is not the path of a file that exists")]
    NotAFile {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The kubeconfig, or a file that it names, cannot be used.
    #[error("{0}")]
    Unusable(String),
}

impl CredentialError {
    /// Creates the error for the value of a key. `problem` must not quote a value that may be a secret.
    pub(super) fn at(path: &Path, key: &str, problem: impl Display) -> Self {
        Self::Unusable(format!("`{key}` of `{}` {problem}", path.display()))
    }

    /// Reports whether the kernel denies access to the kubeconfig or a file that it names.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Unreadable(error) | Self::Reference { source: error, .. } if error.is_denied())
    }

    /// Reports whether the kernel could not read one of them, which may pass.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreadable(error) | Self::Reference { source: error, .. } if error.is_passing())
    }
}

/// Returns why a text that is no mapping cannot be used, if it is an encoding of a kubeconfig, as APIs and tools return one. A client
/// would have to guess which of them is meant, so none is used.
pub(super) fn encoding(text: &[u8]) -> Option<&'static str> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if text.starts_with(REFERENCE) {
        return Some(
            "is a reference (`secret://`) that only Rancher resolves: write the kubeconfig of that Secret to this file",
        );
    }
    // As the API of Rancher and Harvester returns it.
    if let Ok(inner) = serde_json::from_str(text).map(Zeroizing::<String>::new) {
        return is_kubeconfig(&inner).then_some(
            "is a JSON string that contains a kubeconfig: decode it (`jq -r .`) into another file with mode 0600, and replace this file by that one",
        );
    }
    let unquoted = text.trim_matches(['"', '\'']);
    if unquoted.contains("\\n") && is_kubeconfig(unquoted) {
        return Some(
            "is a kubeconfig with `\\n` in place of line breaks: write a line break for each, and no quotes around the text, into another file with mode 0600, and replace this file by that one",
        );
    }
    // As in a Secret.
    let joined: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    let decoded = BASE64_STANDARD
        .decode(joined.as_bytes())
        .map(Zeroizing::new)
        .ok()?;
    let inner = std::str::from_utf8(&decoded).ok()?;
    is_kubeconfig(inner).then_some(
        "is the base64 of a kubeconfig: decode it (`base64 -di`) into another file with mode 0600, and replace this file by that one",
    )
}

/// Reports whether a text has the keys of a kubeconfig, in YAML or JSON.
fn is_kubeconfig(text: &str) -> bool {
    ["clusters", "users"].iter().all(|key| text.contains(key))
}

/// Returns a value for a message: truncated, in one line.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", one_line(text, QUOTED_MAX))
}
