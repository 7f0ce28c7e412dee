// SPDX-License-Identifier: Apache-2.0
//! The server from a client's side, over TLS.

mod access;
mod client;
mod faults;
mod objects;
mod parity;
mod watch;
