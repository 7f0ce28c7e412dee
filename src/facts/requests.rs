// SPDX-License-Identifier: Apache-2.0
//! How often the two APIs were asked.

use crate::facts::observation::Api;

/// The requests to one API that ended in one way, since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Which API.
    pub api: Api,
    /// What became of them: `ok`, `timeout`, or the kind of failure.
    pub result: &'static str,
    /// How many.
    pub count: u64,
    /// How many warnings the server sent with its responses.
    pub warnings: u64,
}
