// SPDX-License-Identifier: Apache-2.0
//! stub, replaced by the other branch

use super::names::HostName;

/// What the host tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMetrics {
    /// The host.
    pub host: HostName,
    /// Its clock, in seconds since 1970.
    pub time: Option<i64>,
    /// The way.
    pub via: Via,
}

/// How it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The channel.
    Channel,
    /// The disk.
    Disk,
}
