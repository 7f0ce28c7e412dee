// SPDX-License-Identifier: Apache-2.0
//! The reasons why a kubeconfig cannot be used as a credential.
//!
//! Every error names the file and the key, the value found there and the valid ones. Values are quoted only if they
//! cannot be a secret, and then truncated, with control characters escaped.

use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD, Engine};
use zeroize::Zeroizing;

use super::trust::Changeable;
use crate::sys::document::DocumentError;
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
    /// A file that the kubeconfig names is not read, because other users could have set its name.
    #[error(
        "`{key}` of `{path}` references a file, which is only read if the kubeconfig is writable by root alone: {place}"
    )]
    Untrusted {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The place that other users can change, and the reason.
        place: Changeable,
    },
    /// The kubeconfig is empty, incomplete or another document.
    #[error("`{path}` {problem}")]
    Document {
        /// The kubeconfig.
        path: PathBuf,
        /// The problem; its text is included in this message.
        problem: DocumentError,
    },
    /// The text is an encoding of a kubeconfig, or a reference to one.
    #[error("`{path}` {form}")]
    Encoded {
        /// The kubeconfig.
        path: PathBuf,
        /// The encoding; its text is included in this message.
        form: Encoding,
    },
    /// A required key is missing or empty.
    #[error("`{key}` is missing in `{path}`: {needed}")]
    Missing {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The required content.
        needed: &'static str,
    },
    /// The value of a key has the wrong type.
    #[error("`{key}` of `{path}` is {found}, expected {expected}")]
    WrongKind {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The type that was found.
        found: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// There is no entry with the given name.
    #[error("`{key}` of `{path}` is {name}, but `{list}` has no entry with that name")]
    NoSuchEntry {
        /// The kubeconfig.
        path: PathBuf,
        /// The key that has the name.
        key: String,
        /// The name, quoted.
        name: String,
        /// The list that was searched.
        list: &'static str,
    },
    /// A value is invalid; it is not quoted.
    #[error("`{key}` of `{path}` is {problem}")]
    Invalid {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The problem.
        problem: &'static str,
    },
    /// A setting is not supported.
    #[error("`{key}` of `{path}` is not supported: {reason}")]
    Refused {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The reason.
        reason: &'static str,
    },
    /// There is no CA certificate to verify the server with.
    #[error(
        "`{key}` is missing in `{path}`: without it the server cannot be verified, and the CA certificates of the OS are not used; \
         add the CA certificate that signed that of the server, or replace the file by that of a service account"
    )]
    NoAuthority {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// Neither a token nor a client certificate.
    #[error(
        "`{key}` of `{path}` has no credential: set `token`, `tokenFile`, \
         `client-certificate-data` or `client-certificate`"
    )]
    NoIdentity {
        /// The kubeconfig.
        path: PathBuf,
        /// The user.
        key: String,
    },
    /// The certificates or the key cannot be used.
    #[error("`{key}` of `{path}` {problem}")]
    Pem {
        /// The kubeconfig, or the file that it names.
        path: PathBuf,
        /// The key.
        key: String,
        /// The problem; its text is included in this message.
        problem: PemProblem,
    },
    /// A token cannot be used.
    #[error("the token of `{key}` in `{path}` {problem}")]
    Token {
        /// The kubeconfig, or the file that it names.
        path: PathBuf,
        /// The key.
        key: String,
        /// The problem; its text is included in this message.
        problem: TokenProblem,
    },
    /// The private key belongs to another certificate, as when only one of two files has been rotated.
    #[error("the private key of `{key}` in `{path}` does not match the client certificate")]
    KeyMismatch {
        /// The kubeconfig.
        path: PathBuf,
        /// The user.
        key: String,
    },
    /// The TLS library rejected the key or the certificate.
    #[error("the client certificate and key of `{key}` in `{path}` cannot be used")]
    ClientCertificate {
        /// The kubeconfig.
        path: PathBuf,
        /// The user.
        key: String,
        /// The error of the library.
        #[source]
        source: rustls::Error,
    },
}

impl CredentialError {
    /// Reports whether the kubeconfig itself does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.is_absent())
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

/// An encoding of a kubeconfig, as APIs and tools return one. A client would have to guess which of them is meant, so none is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Encoding {
    /// A JSON string, as the API of Rancher and Harvester returns it.
    #[error(
        "is a JSON string that contains a kubeconfig: decode it with `jq -r . FILE` into another file, and move that to FILE"
    )]
    JsonString,
    /// `\n` in place of line breaks.
    #[error(
        "is a kubeconfig with `\\n` in place of line breaks: decode it with `sed 's/\\\\n/\\n/g' FILE` into another file, and move that to FILE"
    )]
    Escaped,
    /// Base64, as in a Secret.
    #[error(
        "is the base64 of a kubeconfig: decode it with `base64 -d FILE` into another file, and move that to FILE"
    )]
    Base64,
    /// A reference in the configuration of a cluster in Rancher.
    #[error(
        "is a reference (`secret://`) that only Rancher resolves: write the kubeconfig of that Secret to this file"
    )]
    Reference,
}

impl Encoding {
    /// Returns the encoding of a text that is no mapping.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        if text.starts_with(REFERENCE) {
            return Some(Self::Reference);
        }
        if let Ok(inner) = serde_json::from_str(text).map(Zeroizing::<String>::new) {
            return is_kubeconfig(&inner).then_some(Self::JsonString);
        }
        let unquoted = text.trim_matches(['"', '\'']);
        if unquoted.contains("\\n") && is_kubeconfig(unquoted) {
            return Some(Self::Escaped);
        }
        let joined: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
        let decoded = BASE64_STANDARD
            .decode(joined.as_bytes())
            .map(Zeroizing::new)
            .ok()?;
        let inner = std::str::from_utf8(&decoded).ok()?;
        is_kubeconfig(inner).then_some(Self::Base64)
    }
}

/// Reports whether a text has the keys of a kubeconfig, in YAML or JSON.
fn is_kubeconfig(text: &str) -> bool {
    ["clusters", "users"].iter().all(|key| text.contains(key))
}

/// The problem of certificates or a key. Never quotes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemProblem {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// A `-data` key is not base64.
    #[error("is not base64, or is truncated")]
    NotBase64,
    /// A section has a start and no end.
    #[error("is truncated: a PEM section has no END line")]
    NoEnd,
    /// A marker line is invalid.
    #[error("has an invalid PEM header line, or is truncated")]
    BrokenMarker,
    /// The text between two markers is not base64.
    #[error("has a PEM section that is not base64")]
    BrokenSection,
    /// The text has no certificate.
    #[error("has no certificate in PEM format")]
    NoCertificate,
    /// The sections have the right name and invalid content.
    #[error("has no certificate that can be parsed")]
    BrokenCertificate,
    /// The text has no private key.
    #[error("has no private key in PEM format")]
    NoKey,
    /// The private key is encrypted with a password.
    #[error("has an encrypted private key, which is not supported")]
    EncryptedKey,
}

/// The problem of a token. Never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// The token is empty.
    #[error("is empty")]
    Empty,
    /// The text is larger than any token.
    #[error("is too large for a token")]
    TooLarge,
    /// The token contains a line end or another control character.
    #[error("contains a control character or a line break")]
    ControlCharacter,
    /// The token contains a space, or characters that are invalid in a token.
    #[error("contains a space or a character that is not ASCII")]
    NotAToken,
    /// The text is only the start of a JSON Web Token.
    #[error("is a truncated JSON Web Token")]
    CutShort,
}

/// Returns a value for a message: truncated, in one line.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", one_line(text, QUOTED_MAX))
}
