// SPDX-License-Identifier: Apache-2.0
//! Converts errors to the reason why a fact is unavailable.

use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::sys::escape::chain;
use crate::sys::root::ReadError;
use crate::wire::kubeapi::{Class, Error};

/// Converts a request error to a reason.
pub fn why(error: &Error) -> Unavailable {
    let kind = match error.class() {
        Class::Retry | Class::Gone | Class::Conflict => UnavailableKind::Unreachable,
        Class::Credential => UnavailableKind::Credential,
        Class::Forbidden => UnavailableKind::Forbidden,
        Class::Tls => UnavailableKind::Tls,
        Class::UnexpectedObject => UnavailableKind::UnexpectedObject,
        Class::NotFound | Class::Refused => UnavailableKind::Refused,
    };
    Unavailable {
        retry_after: error.retry_after(),
        is_deferred: matches!(error, Error::Deferred { .. }),
        ..Unavailable::new(kind, chain(error))
    }
}

impl<T> From<Result<T, Unavailable>> for Fact<T> {
    fn from(result: Result<T, Unavailable>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(why) => Self::Failed(why),
        }
    }
}

/// A file that does not exist is absent, as are its facts.
impl<T> From<ReadError> for Fact<T> {
    fn from(error: ReadError) -> Self {
        match &error {
            ReadError::NotFound(_) => Self::Absent,
            ReadError::Denied(_) => Self::failed(UnavailableKind::Forbidden, chain(&error)),
            ReadError::Io { .. } => Self::failed(UnavailableKind::Unreachable, chain(&error)),
            _ => Self::failed(UnavailableKind::Malformed, chain(&error)),
        }
    }
}
