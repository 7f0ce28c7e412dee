// SPDX-License-Identifier: Apache-2.0
//! Counters of the requests to the two APIs.

use crate::catalog::Api;

/// The number of requests to one API with one result, since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// The API.
    pub api: Api,
    /// The result: `ok`, `timeout`, or the kind of failure.
    pub result: &'static str,
    /// The number of requests.
    pub count: u64,
}
