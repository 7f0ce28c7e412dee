// SPDX-License-Identifier: Apache-2.0
//! Converts errors to the reason why a fact is unavailable.

use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::escape::chain;
use crate::sys::root::ReadError;
use crate::wire::kubeapi::{Error, Kind};

/// Converts a request error to a reason.
pub fn why(error: &Error) -> Unavailable {
    let kind = match error.kind {
        _ if error.may_pass() => UnavailableKind::Unreachable,
        Kind::Credential => UnavailableKind::Credential,
        Kind::Forbidden | Kind::OtherNode => UnavailableKind::Forbidden,
        Kind::Tls => UnavailableKind::Tls,
        Kind::UnexpectedObject => UnavailableKind::UnexpectedObject,
        _ => UnavailableKind::Refused,
    };
    Unavailable {
        retry_after: error.retry_after,
        is_deferred: error.is_deferred,
        ..Unavailable::new(kind, chain(error))
    }
}

impl<T, E: Into<Self>> From<Result<T, E>> for Fact<T> {
    fn from(result: Result<T, E>) -> Self {
        result.map_or_else(E::into, Self::Known)
    }
}

impl<T> From<Unavailable> for Fact<T> {
    fn from(why: Unavailable) -> Self {
        Self::Failed(why)
    }
}

/// An object that does not exist is absent.
impl<T> From<Error> for Fact<T> {
    fn from(error: Error) -> Self {
        match error.kind {
            Kind::Absent => Self::Absent,
            _ => Self::Failed(why(&error)),
        }
    }
}

/// A file that does not exist is absent, as are its facts.
impl<T> From<ReadError> for Fact<T> {
    fn from(error: ReadError) -> Self {
        match error.is_absent() {
            true => Self::Absent,
            false => Self::Failed(error.into()),
        }
    }
}

impl From<ReadError> for Unavailable {
    fn from(error: ReadError) -> Self {
        let kind = match error {
            ReadError::Denied(_) => UnavailableKind::Forbidden,
            ReadError::Io { .. } => UnavailableKind::Unreachable,
            _ => UnavailableKind::Malformed,
        };
        Self::new(kind, chain(&error))
    }
}
