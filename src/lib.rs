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
//! Folders are these verbs; `facts` holds the nouns, `world` brings reads and writes to the loop. A trigger says
//! *why* to look; a watch delivers its object too ([`triggers::feed`]). An observation never fails: a fact that is missing is a value ([`facts::Fact`]). A decision is a
//! function of what was seen, configured, remembered, and of the time. A write does what the plan says. A report may lose
//! a message and never changes a decision. The loop ([`agent::run`]) is the one place that retries, and it cannot end by
//! an error.
//!
//! # What each part may touch
//!
//! | part | may use of ours | and of others | must not |
//! |---|---|---|---|
//! | `facts` | `bake::Code` `document::json` `escape` `catalogue::Group` | `ring` `roxmltree` `serde` `thiserror` `time` `uuid` | read or write anything, log, know what time it is |
//! | `decide` | `bake` `config` `escape` `facts` `findings` `reason` | `serde` `serde_json` `time` | the same: a decision is a function |
//! | `findings` | `escape::shell_word` `facts::observation` | `serde` | read or write anything |
//! | `bake` | | | read or write anything |
//! | `reason` | | `serde` | carry facts |
//! | `config` | `escape` `facts` `root` | `serde_json` `std::net` `strsim` `thiserror` `toml` | write, use the network |
//! | `credentials` | `config` `document` `escape` `facts` `root` `x509` | `base64` `reqwest` `ring` `rustls` `secrecy` `serde` `serde_json` `std::net` `std::os` `thiserror` `zeroize` | write, use the network |
//! | `connections` | `backoff` `config` `credentials` `decide::schedule` `escape` `facts` `kubeapi` `root` | | send a request |
//! | `observe` | `bake::Code` `bus` `channel` `config` `connections` `credentials` `document` `escape` `facts` `kubeapi` `netlink` `root` `x509` | `nix` `now()` `serde` `serde_json` `std::os` `thiserror` `time` `tokio` `uuid` `zbus` `zeroize` | write, judge, remember |
//! | `triggers` | `agent` `alarm` `backoff` `bus` `channel` `decide` `edges` `escape` `facts` `kubeapi` `netlink` `root` | `futures_core` `inotify` `nix` `now()` `serde` `std::fs` `std::os` `std::thread` `thiserror` `tokio` `tracing` `zbus` | judge |
//! | `apply` | `agent::Refusal` `bus` `decide` `durable` `escape` `facts` `kubeapi` `root` | `serde_json` `tracing` | read facts, decide, retry |
//! | `world` | `agent` `apply` `bus` `config` `connections` `decide` `escape` `facts` `kubeapi` `observe` `reason` `root` `triggers` | `now()` `tokio` | judge |
//! | `agent` | `config` `decide` `facts` `reason` | | anything but by its own traits |
//! | `report` | `agent` `config` `decide` `durable` `endpoint::MetricsPage` `escape` `facts` `findings` `reason` `root` `state` `triggers::health` | `nix` `sd_notify` `serde` `serde_json` `std::fs` `std::os` `std::thread` `tar` `thiserror` `time` `tracing` `tracing_journald` `tracing_subscriber` | return an error, change a decision |
//! | `kubeapi` | `alarm` `backoff` `credentials` `document::json` `escape` `x509` | `hyper` `now()` `reqwest` `rustls` `secrecy` `serde` `serde_json` `std::net` `thiserror` `time` `tokio` | know labels or findings, retry |
//! | `bus` | `root` | `std::os` `thiserror` `tokio` `zbus` | judge, know findings |
//! | `netlink` | `facts` `root` | `nix` `rtnetlink` `socket2` `std::net` `thiserror` | judge |
//! | `channel` | `edges` `escape` `facts` `report::status_file` `root` | `nix` `now()` `serde_json` `std::fs` `std::os` `thiserror` `tokio` | use the network, judge |
//! | `endpoint` | `config` `durable` `escape` `facts` `root` `triggers::health` | `hyper` `hyper_util` `nix` `std::net` `std::os` `thiserror` `tokio` | tell more than the reported text |
//! | `state` | `decide` `durable` `escape` `facts` `root` | `serde` `serde_json` `std::thread` `uuid` | decide |
//! | `durable` | `root` | `nix` `std::fs` `std::os` `thiserror` | know what it writes |
//! | `lock` | `durable` `root` | `nix` `std::fs` `std::process` `thiserror` | know for whom |
//! | `root` | | `nix` `std::fs` `std::os` `thiserror` | write |
//! | `logging` | `config` `escape` `report` | `nix` `std::thread` `tracing` `tracing_subscriber` | |
//! | `document` | `escape` | `granit_parser` `serde` `thiserror` `zeroize` | read or write anything, show a value |
//! | `x509` | | `der` `std::net` `thiserror` | read or write anything |
//! | `escape` | | | read or write anything |
//! | `backoff` | `decide::schedule` | `now()` `tokio` | know what failed |
//! | `edges` | | `nix` `std::os` `tokio` | know what its descriptor is for |
//! | `alarm` | | `nix` `std::os` `tokio` `tracing` | know what it is set for |
//! | `cli` | everything | everything | hold logic worth testing |
//! | `main` | everything | everything | hold logic worth testing |
//!
//! `tests/tidy` holds the code to this table: what a row does not name is refused, what it names in vain too. Of the standard
//! library only what reaches out of the process stands there, and `now()` for whoever asks a clock.
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
//! | what is read, and from where | [`observe`]; what is kept between two looks, [`world`] |
//! | what is sent to the Node | [`apply`] |
//! | what an image must not carry | [`bake`] |
//! | keys of the configuration | `config/keys.rs`, `config/settings.rs` |
//! | the command line | [`cli`] |

pub mod access;
pub mod agent;
pub mod apply;
pub mod catalogue;
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
