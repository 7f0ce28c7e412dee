// SPDX-License-Identifier: Apache-2.0
//! A simulated fleet: thousands of real agents in one process, on tokio's paused clock, against a model of two APIs.
//!
//! `tests/fleet/run` runs it and says what it prints; the stories of one agent in `single` are tests as any other. Real are the loop, the world with its reads and writes, the decisions, the
//! client, the watches and the waits; simulated are the network with its servers, the kernel's timers and the guest's event sources.

mod agents;
mod gates;
mod idle;
mod likeness;
mod network;
mod record;
mod report;
mod scenarios;
mod single;
mod store;
mod wire;
