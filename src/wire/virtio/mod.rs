// SPDX-License-Identifier: Apache-2.0
//! Channels to the host: virtio-serial ports, found by the name that the host gave them.
//!
//! Protocols only: the data of a port is an observation for `observe`, and the end of a connection is a reason for `triggers`. The
//! port of QEMU's own guest agent is never opened: it has one reader, which is qemu-ga.
//!
//! To add a channel: add a file that implements its protocol on a [`port::Port`], here or as an event source
//! (`triggers/operator_channel.rs`).

pub mod downward_metrics;
pub mod port;
