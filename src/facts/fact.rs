// SPDX-License-Identifier: Apache-2.0
//! A fact, or the reason why it is missing.

use std::time::Duration;

use serde::Serialize;

/// A fact, or the reason why it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// The source was read and contains this value.
    Known(T),
    /// The source was read and has no value.
    Absent,
    /// The source could not be read. Nothing may be concluded from it.
    Failed(Unavailable),
}

impl<T> Fact<T> {
    /// Returns the fact, if known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Failed(_) => None,
        }
    }

    /// Returns the error, if the source could not be read.
    pub fn why(&self) -> Option<&Unavailable> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Known(_) | Self::Absent => None,
        }
    }

    /// Converts the value, if known.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Known(change(value)))
    }

    /// Returns the fact in the value, if that is known.
    pub fn and_then<U>(self, read: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Self::Known(value) => read(value),
            Self::Absent => Fact::Absent,
            Self::Failed(why) => Fact::Failed(why),
        }
    }

    /// Creates a fact that could not be read.
    pub fn failed(kind: UnavailableKind, text: impl Into<String>) -> Self {
        Self::Failed(Unavailable::new(kind, text))
    }
}

impl<T> Default for Fact<T> {
    /// Creates a fact whose source was not read yet.
    fn default() -> Self {
        Self::failed(UnavailableKind::NotAsked, "not read yet")
    }
}

/// A source without a value is absent.
impl<T> From<Option<T>> for Fact<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Known)
    }
}

/// The error of a source that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// The kind of failure.
    pub kind: UnavailableKind,
    /// A one-line message: what failed, on which object.
    pub text: String,
    /// The delay that the server requested, as in `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether a watch that is being re-established will deliver the fact, so that no other retry is needed.
    pub is_watched: bool,
    /// Whether no request was sent, because another one failed shortly before.
    pub is_deferred: bool,
}

impl Unavailable {
    /// Creates a failure with a one-line message.
    pub fn new(kind: UnavailableKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            retry_after: None,
            is_watched: false,
            is_deferred: false,
        }
    }

    /// Returns the failure of a read that was skipped because of this one.
    pub fn skipping(&self) -> Self {
        Self::new(UnavailableKind::NotAsked, self.text.clone())
    }
}

/// The kinds of failure that decisions distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnavailableKind {
    /// The read was skipped, because a prerequisite is missing or because it is disabled.
    #[serde(rename = "not-requested")]
    NotAsked,
    /// The file does not exist.
    Missing,
    /// The file of the credential is empty.
    EmptyFile,
    /// A directory is in the place of the credential.
    Directory,
    /// The server of the Harvester credential is the guest cluster's own API.
    OwnApi,
    /// No response, or a temporary error: connection, timeout, 429, 5xx, or a file that the kernel could not read.
    Unreachable,
    /// The server rejects the credential (401), or the credential cannot be used.
    #[serde(rename = "unauthorized")]
    Credential,
    /// The server (403) or the kernel denies access.
    Forbidden,
    /// The certificate of the server was not accepted.
    #[serde(rename = "tls-error")]
    Tls,
    /// The response is not acceptable: too large, compressed, redirected, or not what was requested.
    #[serde(rename = "bad-response")]
    Refused,
    /// The response contains another object than the requested one.
    UnexpectedObject,
    /// The text could not be parsed.
    #[serde(rename = "invalid")]
    Malformed,
    /// The object belongs to another machine.
    AnotherMachine,
    /// The kubelet's credential is for another Node than the requested one.
    AnotherNode,
}

impl UnavailableKind {
    /// Reports whether the same request may succeed soon, with no change on this machine.
    pub fn is_passing(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::Tls
                | Self::Refused
                | Self::UnexpectedObject
                | Self::Credential
                | Self::AnotherMachine
        )
    }
}
