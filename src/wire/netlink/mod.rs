// SPDX-License-Identifier: Apache-2.0
//! The kernel's rtnetlink: its sockets, its messages, and the NICs that it lists.
//!
//! Sockets and headers come from the `rtnetlink` crate; only the attributes that the agent reads are parsed, here. The
//! crate's own `RouteNetlinkMessage` links the parsers of every attribute of every message (half a megabyte), and it drops a
//! message with an attribute that it does not know, which would lose the signal on the next kernel.
//!
//! To read another attribute: add a constant and a field in [`message`].

pub mod addresses;
pub mod filter;
pub mod inventory;
pub mod message;
pub mod socket;
#[cfg(test)]
pub(crate) mod tests;
