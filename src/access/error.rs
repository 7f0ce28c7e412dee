// SPDX-License-Identifier: Apache-2.0
//! Why a kubeconfig is no credential.
//!
//! Every error names the file and the key, what was found there and what is allowed. Values are quoted only where they
//! cannot be a secret, and then shortened and with control characters escaped.

use std::path::{Path, PathBuf};

use super::trust::Changeable;
use crate::sys::document::DocumentError;
use crate::sys::escape::one_line;
use crate::sys::root::ReadError;

/// Characters of a quoted value; a name or a URL scheme fits, a token does not.
const QUOTED_MAX: usize = 40;

/// Why a kubeconfig is no credential.
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
        /// Why.
        #[source]
        source: ReadError,
    },
    /// A file that the kubeconfig names is not read, because others could have named it.
    #[error(
        "`{key}` of `{path}` references a file, which is only read if the kubeconfig is writable by root alone: {place}"
    )]
    Untrusted {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// What others can change, and why.
        place: Changeable,
    },
    /// The kubeconfig is empty, half-written or something else.
    #[error("`{path}` {problem}")]
    Document {
        /// The kubeconfig.
        path: PathBuf,
        /// What is wrong; its text is a part of this one.
        problem: DocumentError,
    },
    /// A key that is needed is not there, or is empty.
    #[error("`{key}` is missing in `{path}`: {needed}")]
    Missing {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// What belongs there.
        needed: &'static str,
    },
    /// A key has a value of another kind than it should.
    #[error("`{key}` of `{path}` is {found}, expected {expected}")]
    WrongKind {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// The kind that was found.
        found: &'static str,
        /// The kind that belongs there.
        expected: &'static str,
    },
    /// A name leads to no entry.
    #[error("`{key}` of `{path}` is {name}, but `{list}` has no entry with that name")]
    NoSuchEntry {
        /// The kubeconfig.
        path: PathBuf,
        /// The key that holds the name.
        key: String,
        /// The name, quoted.
        name: String,
        /// The list that was searched.
        list: &'static str,
    },
    /// A value that cannot be used; it is not quoted.
    #[error("`{key}` of `{path}` is {problem}")]
    Invalid {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Something that is never done, whatever the configuration says.
    #[error("`{key}` of `{path}` is not supported: {reason}")]
    Refused {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// Why.
        reason: &'static str,
    },
    /// Something that is done only when our own configuration says so.
    #[error(
        "`{key}` of `{path}` {asks}, which requires `allow = [\"{option}\"]` in `[harvester]` or `[guest_cluster]` of the configuration"
    )]
    NeedsOptIn {
        /// The kubeconfig.
        path: PathBuf,
        /// The key.
        key: String,
        /// What the key asks for.
        asks: &'static str,
        /// The option that would allow it.
        option: &'static str,
    },
    /// `https` and nothing to check the server's certificate against.
    #[error(
        "`{key}` is missing in `{path}`: without it the server cannot be verified; the CA certificates of the OS are not used"
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
    /// Certificates or a key cannot be used.
    #[error("`{key}` of `{path}` {problem}")]
    Pem {
        /// The kubeconfig, or the file that it names.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong; its text is a part of this one.
        problem: PemProblem,
    },
    /// A token cannot be used.
    #[error("the token of `{key}` in `{path}` {problem}")]
    Token {
        /// The kubeconfig, or the file that it names.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong; its text is a part of this one.
        problem: TokenProblem,
    },
    /// The private key belongs to another certificate, as when only one of two files is rotated yet.
    #[error("the private key of `{key}` in `{path}` does not match the client certificate")]
    KeyMismatch {
        /// The kubeconfig.
        path: PathBuf,
        /// The user.
        key: String,
    },
    /// The TLS library does not take the key or the certificate.
    #[error("the client certificate and key of `{key}` in `{path}` cannot be used")]
    ClientCertificate {
        /// The kubeconfig.
        path: PathBuf,
        /// The user.
        key: String,
        /// What the library says.
        #[source]
        source: rustls::Error,
    },
}

impl CredentialError {
    /// Whether the kubeconfig itself does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.is_absent())
    }

    /// Whether the kernel does not let us read the kubeconfig or a file that it names.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Unreadable(error) | Self::Reference { source: error, .. } if error.is_denied())
    }

    pub(super) fn missing(path: &Path, key: impl Into<String>, needed: &'static str) -> Self {
        Self::Missing {
            path: path.to_owned(),
            key: key.into(),
            needed,
        }
    }

    pub(super) fn invalid(path: &Path, key: impl Into<String>, problem: &'static str) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            key: key.into(),
            problem,
        }
    }

    pub(super) fn refused(path: &Path, key: impl Into<String>, reason: &'static str) -> Self {
        Self::Refused {
            path: path.to_owned(),
            key: key.into(),
            reason,
        }
    }
}

/// What is wrong with certificates or a key. Never quotes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemProblem {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Not base64, in a `-data` key.
    #[error("is not base64, or is truncated")]
    NotBase64,
    /// Begins and does not end.
    #[error("is truncated: a PEM section has no END line")]
    NoEnd,
    /// A marker line is broken.
    #[error("has an invalid PEM header line, or is truncated")]
    BrokenMarker,
    /// The text between two markers is not base64.
    #[error("has a PEM section that is not base64")]
    BrokenSection,
    /// No certificate.
    #[error("has no certificate in PEM format")]
    NoCertificate,
    /// Sections of the right name with something else in them.
    #[error("has no certificate that can be parsed")]
    BrokenCertificate,
    /// No private key.
    #[error("has no private key in PEM format")]
    NoKey,
    /// A key behind a password.
    #[error("has an encrypted private key, which is not supported")]
    EncryptedKey,
}

/// What is wrong with a token. Never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Larger than any token.
    #[error("is too large for a token")]
    TooLarge,
    /// A line end or another control character within.
    #[error("contains a control character or a line break")]
    ControlCharacter,
    /// White space, or characters that no token has.
    #[error("contains a space or a character that is not ASCII")]
    NotAToken,
    /// The beginning of a JSON Web Token.
    #[error("is a truncated JSON Web Token")]
    CutShort,
}

/// A value for a message: short, one line.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", one_line(text, QUOTED_MAX))
}
