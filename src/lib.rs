// SPDX-License-Identifier: Apache-2.0
//! An agent inside a Harvester VM that is a Kubernetes node. It answers three questions, all the time:
//! **Who am I?** **Where am I?** **Did I just move?** — and puts the answers on its own Node.
//!
//! # The map
//!
//! ```text
//!           triggers ──► agent loop
//!                          │
//!    observe (reads) ──► Who, PlacementReads ──► decide (pure) ──► Plan ──► apply (writes) ──► outcomes
//!                                                                   │                            │
//!                                                                   └────────► report ◄──────────┘
//! ```
//!
//! Folders are these verbs; `facts` holds the nouns. A trigger says only *why* to look. An observation never fails: a fact
//! that is missing is a value ([`facts::Seen`]). A decision is a function of what was seen, configured, remembered, and of
//! the time. A write does what the plan says. A report may lose a message and never changes a decision. The loop
//! ([`agent::run`]) is the one place that retries, and it cannot end by an error.
//!
//! # What each part may touch
//!
//! | where | may use | must not |
//! |---|---|---|
//! | `facts` `decide` `findings` `bake` | data types, serde, XML text | tokio, the network, files, the environment, clocks, randomness, logging |
//! | `config` | files below the root | network, tokio, the environment |
//! | `credentials` | files below the root, X.509, PEM | network, tokio |
//! | `observe` | files below the root, `kubeapi` reads, `bus`, `netlink`, `channel` | write anything, judge anything |
//! | `world` | `observe` and `apply`, behind the traits of `agent` | judge anything |
//! | `triggers` | inotify, timers, process signals, `kubeapi` watches, `bus`, `netlink`, `channel` | carry facts, call `observe` |
//! | `apply` | `kubeapi` writes, `bus`, the files of `facts/registration.rs` below the root | read facts, decide, retry |
//! | `kubeapi` | the wire | know label keys or findings, retry |
//! | `bus` | the wire of the system bus: zbus | judge anything, know findings |
//! | `netlink` | rtnetlink sockets and messages, `/sys/class/net` below the root | judge anything |
//! | `channel` | virtio-serial ports, vhostmd's disk and the status file below the root | the network, judge anything |
//! | `x509` `few` | values | I/O |
//! | `endpoint` | one listening socket of this machine below the root | read facts, judge anything, carry more than the reported text |
//! | `edges` `alarm` | one descriptor and tokio's readiness of it | know what it is for |
//! | `report` | the journal, systemd, our own files | return an error, change a decision |
//! | `agent` | its own traits | any I/O crate |
//! | `connections` | `credentials`, `kubeapi` clients | send a request |
//! | `cli` `main` | everything | hold logic worth testing |
//!
//! `tests/tidy.rs` holds the code to this table.
//!
//! # Invariants
//!
//! Each has a test of its name in `decide/tests.rs`.
//!
//! 1. We never change a label that we do not own, unless it is one of our topology keys and the drift policy says so.
//! 2. A failed or missing read never removes a label.
//! 3. We write to our own Node and to nothing else (and send Events about it). On the machine we change nothing, unless the
//!    configuration lets us: start the unit of qemu-guest-agent; keep a file of our own that tells the kubelet the labels of
//!    its Node, which the daemon changes and removes and only `gate` makes.
//! 4. We never touch taints, `spec`, `ownerReferences`.
//! 5. An unchanged world costs zero writes.
//! 6. An ambiguous identity costs zero label writes.
//!
//! # Where do I change …?
//!
//! | what | where |
//! |---|---|
//! | which evidence proves the VM, how names are judged | [`decide::identity`] |
//! | which source is believed for region and zone | [`decide::placement`] |
//! | which labels are written, kept, removed | [`decide::labels`] |
//! | what may be asked of Harvester, and the roles for it | [`facts::permissions`], [`decide::access`] |
//! | when a kubelet may start for the first time | [`decide::gate`] |
//! | what a kubelet is told at its start | [`decide::registration`] |
//! | when to look again | [`decide::schedule`], after a sign of a move [`decide::window`] |
//! | what people read when something is wrong | [`findings`] |
//! | what only `doctor` looks at and finds | `facts/examination`, `observe/examination`, [`decide::examination`] |
//! | which versions go together | `decide/examination/versions/table.rs`; what RKE2 brings along: `facts/examination/bundle.rs` |
//! | what wakes the agent | [`triggers`], [`reason`] |
//! | which numbers Prometheus gets | `report/metrics.rs`; who may ask for them, [`endpoint`] |
//! | what is sent to the Node | [`apply`] |
//! | what an image must not carry | [`bake`] |
//! | keys of the configuration | `config/keys.rs`, `config/settings.rs` |
//! | the command line | [`cli`] |
//! | which code the service never runs, and so never has in memory | `cold.ld` |

pub mod agent;
pub mod alarm;
pub mod apply;
pub mod bake;
pub mod bus;
pub mod channel;
pub mod cli;
pub mod config;
pub mod connections;
pub mod credentials;
pub mod decide;
pub mod durable;
pub mod edges;
pub mod endpoint;
pub mod escape;
pub mod facts;
pub mod few;
pub mod findings;
pub mod kubeapi;
pub mod lock;
pub mod logging;
pub mod netlink;
pub mod observe;
pub mod reason;
pub mod report;
pub mod root;
pub mod state;
#[cfg(test)]
pub(crate) mod testing;
pub mod triggers;
pub mod world;
pub mod x509;
