// SPDX-License-Identifier: Apache-2.0
//! What the observer keeps between rounds: connections, and what was read.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use crate::agent::source_board::SourceBoard;
use crate::apply::Writer;
use crate::decide::schedule::Random;
use crate::facts::machine::Machine;
use crate::facts::names::VmName;
use crate::facts::node::Node;
use crate::facts::observation::Observation;
use crate::facts::vmi::Vmi;
use crate::observe::api_access::Connections;
use crate::observe::distribution::DistributionProblem;
use crate::observe::harvester;
use crate::observe::host_labels::KeptLabels;
use crate::observe::pod_info::PodReader;
use crate::sys::disk::DiskWork;
use crate::sys::root::Root;
use crate::triggers::feed::Feed;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::Timeouts;

/// The timeouts of a single round that a user waits for.
const SHORT_TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(3),
    headers: Duration::from_secs(5),
    body_progress: Duration::from_secs(3),
    body: Duration::from_secs(10),
    watch_silence: Duration::from_secs(10),
};

/// The reads and writes of the agent, with their connections and caches.
#[derive(Debug)]
pub struct Observer {
    pub(super) root: Root,
    pub(super) bus: Bus,
    pub(super) connections: Connections,
    pub(super) board: SourceBoard,
    /// Reads the files of this machine.
    pub(super) files: DiskWork<io::Result<Machine>>,
    /// Whether no user waits, so that expensive reads may be delayed or rare.
    pub(super) is_daemon: bool,
    /// What was read last. What is kept beside a fact follows.
    pub(super) facts: Observation,

    // The files of this machine
    pub(super) distribution_problems: Vec<DistributionProblem>,
    /// A round that is cut off must not lose the read that it began.
    pub(super) pod_reader: tokio::sync::Mutex<PodReader>,

    // Our Node
    /// The deliveries of its watch.
    pub(super) node_feed: Feed<Node>,
    /// Our Node before its API became unreachable.
    pub(super) last_node: Option<Node>,
    /// The version that was last read or delivered. That of the response to a write is newer.
    pub(super) delivered_version: Option<String>,

    // The instances that may be ours
    /// The deliveries of the watch of our VM.
    pub(super) vmi_feed: Feed<Vmi>,
    /// The VM found in an earlier run.
    pub(super) earlier: Option<VmName>,
    /// The names that our VM may have.
    pub(super) names: harvester::Names,
    /// Our own instance, and the search that found it.
    pub(super) own: Option<harvester::OwnInstance>,
    /// Instances that have our hardware, including our own; empty while it is the only one.
    pub(super) duplicates: BTreeSet<VmName>,
    pub(super) listing: Listing,
    /// Whether the instances were read with a previous credential. They are then only good for what a round says about them.
    pub(super) is_outdated: bool,
    /// Whether the credentials are known to lead to different APIs.
    pub(super) is_cleared: bool,

    /// The labels of the hosts, which are no facts.
    pub(super) host_labels: KeptLabels,

    /// Executes the writes.
    pub(super) writer: Writer,
}

impl Observer {
    /// Returns the prefix of all paths.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns the system bus.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Returns the connections to both API servers.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Creates an observer that has read nothing yet. `earlier` is the VM found in an earlier run on this machine.
    pub fn new(root: Root, bus: Bus, board: SourceBoard, earlier: Option<VmName>) -> Self {
        Self {
            writer: Writer::new(root.clone(), bus.clone(), board.clone()),
            root,
            bus,
            connections: Connections::default(),
            board,
            files: DiskWork::default(),
            facts: Observation::default(),
            distribution_problems: Vec::new(),
            delivered_version: None,
            pod_reader: tokio::sync::Mutex::default(),
            earlier,
            names: harvester::Names::default(),
            own: None,
            is_outdated: false,
            is_cleared: false,
            host_labels: KeptLabels::default(),
            last_node: None,
            duplicates: BTreeSet::new(),
            listing: Listing::default(),
            is_daemon: false,
            vmi_feed: Feed::default(),
            node_feed: Feed::default(),
        }
    }

    /// Sets short timeouts of a few seconds, for a command that a user waits for.
    pub fn with_short_timeouts(mut self) -> Self {
        self.connections.timeouts = SHORT_TIMEOUTS;
        self
    }

    /// Enables daemon behavior: an API that fails is retried with increasing backoff, and a namespace is listed late and rarely.
    pub fn backing_off(mut self, random: fn() -> Random) -> Self {
        self.connections.back_off(random);
        self.is_daemon = true;
        self
    }
}

/// The schedule for listing the namespace.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Listing {
    /// The names that this schedule is about.
    pub(super) names: harvester::Names,
    /// The time of the next list, since the start of the process.
    pub(super) due: Option<Duration>,
    /// Whether it was listed already.
    pub(super) is_done: bool,
    /// The number of consecutive failed lists.
    pub(super) failures: u32,
}
