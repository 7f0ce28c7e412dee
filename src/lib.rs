// SPDX-License-Identifier: Apache-2.0
//! An agent inside a Harvester VM that is a Kubernetes node. It identifies the VM and its host, detects live migrations, and
//! labels the Node.
//!
//! # Data flow
//!
//! ```text
//!           triggers ──► agent loop, one round at a time (`reconcile` in documents)
//!                          │
//!    observe (reads) ──► facts ──► decide (pure) ──► Plan ──► apply (writes) ──► results
//!                                     ▲               │                            │
//!                                     │               └────────► report ◄──────────┤
//!                                     └──────────────── memory ◄───────────────────┘
//! ```
//!
//! The modules in this picture are the steps. A round reads in two passes: first the facts, and after `decide` has found the host,
//! the labels of that host. A trigger defines *why* to reconcile; a watch also delivers its object ([`triggers::feed`]). An observation never fails: a missing fact is a value ([`facts::Fact`]). A decision is a pure
//! function of observations, configuration, memory and time. A write does exactly what the plan defines. A report may lose a
//! message and never changes a decision. Reads and writes are retried only by the loop ([`agent::run`]), event sources by themselves,
//! and an error never stops it.
//!
//! # Layers
//!
//! A top-level module of `src` uses only those above it in this list. `testing`, and `fleet`, which compiles `tests/fleet`, are for
//! tests only.
//!
//! | module | what it is |
//! |---|---|
//! | `sys` | files below `--root` and their changes, atomic files, the lock, timers, escaping, YAML and JSON with a memory limit |
//! | `catalog` | finding codes and their texts; a finding |
//! | `facts` | data types of everything that is read; why the agent reconciles, and how much it reads |
//! | `config` | configuration keys |
//! | `decide` | decisions: identity, placement, labels, the window after a hint, scheduled events, schedule, findings |
//! | `access` | kubeconfigs, tokens, certificates |
//! | `wire` | protocols without policy: Kubernetes API, D-Bus, netlink, virtio-serial |
//! | `agent` | the loop, its traits, the state on disk |
//! | `apply` | every write |
//! | `report` | journal, systemd, status and events files, metrics |
//! | `triggers` | one file per event source; the wait for all of them |
//! | `observe` | one file per data source; the cache of what was read, which also passes writes to `apply` |
//! | `commands` | one file or directory per command |
//!
//! Additional rules:
//!
//! 1. `facts`, `catalog` and `decide` do no I/O and read no clock: time and randomness are arguments.
//! 2. Only `apply` sends changes to an API.
//! 3. `observe` writes no file.
//! 4. `wire` has no code for labels or findings.
//! 5. The loop in `agent` uses no I/O crate, only its traits; `agent::state` has the state on disk.
//!
//! `tests/tidy` checks the order and these five rules.
//!
//! # Invariants
//!
//! Each has tests with its number in `decide/tests.rs`.
//!
//! 1. The agent never changes a label that it does not own, unless it is one of its topology keys and the policy allows it.
//! 2. A failed or missing read never removes a label.
//! 3. The agent writes only to its own Node (and sends Events about it). On the node itself it changes only its own state, status,
//!    events and metrics files, unless the configuration allows it to start the unit of qemu-guest-agent, or `gate --labels` to write
//!    its own file with the labels for a kubelet that starts. It runs hooks that only root can place.
//! 4. It never changes taints, `spec`, `ownerReferences`.
//! 5. If nothing changed, it writes nothing.
//! 6. If the identity is ambiguous, it writes no label.
//!
//! `packaging/docs/pages/development.md` describes where to make a change.

pub mod access;
pub mod agent;
pub mod apply;
pub mod catalog;
pub mod commands;
pub mod config;
pub mod decide;
pub mod facts;
#[cfg(test)]
#[path = "../tests/fleet/mod.rs"]
mod fleet;
pub mod observe;
pub mod report;
pub mod sys;
#[cfg(test)]
pub(crate) mod testing;
pub mod triggers;
pub mod wire;
