// SPDX-License-Identifier: Apache-2.0
//! Facts: what was read, parsed once into types that say what they are.
//!
//! Nothing here does I/O, reads a clock or judges. A fact that could not be read is a value too ([`Fact`]), so that
//! a decision always says what it did about a missing one.
//!
//! To add a fact: give it a type here, read it in one file of `observe`, and use it in one decision of `decide`.

pub mod clock;
pub mod distribution;
pub mod guest_agent;
pub mod host_metrics;
pub mod machine;
pub mod names;
pub mod nic;
pub mod node;
pub mod observation;
pub mod permissions;
pub mod placement;
pub mod registration;
pub mod release;
pub mod requests;
pub mod topology;
pub mod trigger;
pub mod vmi;

use std::time::Duration;

use serde::Serialize;

/// A fact, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// The source was read and holds this.
    Known(T),
    /// The source was read and says that there is none.
    Absent,
    /// The source could not be read; nothing may be concluded from it.
    Failed(Unavailable),
}

impl<T> Fact<T> {
    /// The fact, where known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Failed(_) => None,
        }
    }

    /// Why the source could not be read.
    pub fn why(&self) -> Option<&Unavailable> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Known(_) | Self::Absent => None,
        }
    }

    /// The same with the value changed.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Self::Known(value) => Fact::Known(change(value)),
            Self::Absent => Fact::Absent,
            Self::Failed(why) => Fact::Failed(why),
        }
    }

    /// Not read because of `text`.
    pub fn failed(kind: UnavailableKind, text: impl Into<String>) -> Self {
        Self::Failed(Unavailable::new(kind, text))
    }
}

/// Why a source could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unavailable {
    /// What kind of failure.
    pub kind: UnavailableKind,
    /// One line for people: what failed, on which object.
    pub text: String,
    /// How long the server asked us to stay away.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Whether a watch that is opened again and again will tell when it is over, so that nothing else need try.
    #[serde(skip)]
    pub is_watched: bool,
    /// Whether no request was sent, because another one failed shortly before.
    #[serde(skip)]
    pub is_deferred: bool,
}

impl Unavailable {
    /// A failure with one line for people.
    pub fn new(kind: UnavailableKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            retry_after: None,
            is_watched: false,
            is_deferred: false,
        }
    }
}

/// The kinds of failure that decisions tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnavailableKind {
    /// It was not asked, because something before it is missing or because it is switched off.
    #[serde(rename = "not-requested")]
    NotAsked,
    /// There is no file of the kind that was looked for.
    Missing,
    /// The Harvester credential leads to the guest cluster's own API.
    OwnApi,
    /// No answer, or one that asks to come back: connection, timeout, 429, 5xx.
    Unreachable,
    /// The server does not take the credential (401), or the credential cannot be used.
    #[serde(rename = "unauthorized")]
    Credential,
    /// The server knows us and refuses (403), or the kernel does.
    Forbidden,
    /// The server's certificate was not accepted.
    #[serde(rename = "tls-error")]
    Tls,
    /// The answer broke a rule: too large, compressed, redirected, not what was asked for.
    #[serde(rename = "bad-response")]
    Refused,
    /// The answer is about another object than the one that was asked for.
    UnexpectedObject,
    /// The text could not be understood.
    #[serde(rename = "invalid")]
    Malformed,
    /// The object belongs to another machine.
    AnotherMachine,
    /// The kubelet's credential is for another Node than the one that was asked for.
    AnotherNode,
}

impl UnavailableKind {
    /// Whether the same question may have another answer soon, with nothing changed here.
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
