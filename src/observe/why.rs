// SPDX-License-Identifier: Apache-2.0
//! Errors of the wire as reasons why a fact is not known.

use crate::facts::{Seen, Why, WhyKind};
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Class, Error};

/// An error of the wire as a reason.
pub fn why(error: &Error) -> Why {
    let kind = match error.class() {
        Class::Retry | Class::Gone | Class::Conflict => WhyKind::Unreachable,
        Class::Credential => WhyKind::Credential,
        Class::Forbidden => WhyKind::Forbidden,
        Class::Tls => WhyKind::Tls,
        Class::UnexpectedObject => WhyKind::UnexpectedObject,
        Class::NotFound | Class::Refused => WhyKind::Refused,
    };
    Why {
        retry_after: error.retry_after(),
        ..Why::new(kind, chain(error))
    }
}

impl<T> From<Result<T, Why>> for Seen<T> {
    fn from(result: Result<T, Why>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(why) => Self::Failed(why),
        }
    }
}
