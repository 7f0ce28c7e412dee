// SPDX-License-Identifier: Apache-2.0
//! Channels to the host: virtio-serial ports, found by the name that the host gave them, and vhostmd's disk.
//!
//! The wire only: what a port says is a fact for `observe`, and that one hangs up is a reason for `triggers`. The port of
//! QEMU's own guest agent is never opened: it has one reader, and that is qemu-ga.
//!
//! To add a channel: a file here that speaks its protocol over a [`port::Port`].

pub mod downward_metrics;
pub mod port;
pub mod qga;
pub mod vhostmd_disk;
