// SPDX-License-Identifier: Apache-2.0
//! Implements the read and write traits of the agent loop with `observe` and `apply`, and keeps connections and cached reads
//! between rounds.

mod delivered;
pub(crate) mod limit;
mod local;
mod own_api;
mod read;
mod search;
mod situation;
mod targets;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::signal_board::SignalBoard;
use crate::agent::{Observe, Scope};
use crate::apply::event::EventApi;
use crate::apply::registration::Edits;
use crate::config::{LabelSettings, Settings, TopologySettings};
use crate::decide::Now;
use crate::decide::events::EventDraft;
use crate::decide::identity::Identity;
use crate::decide::placement::{HostSource, Located};
use crate::decide::read_plan;
use crate::decide::schedule::Random;
use crate::facts::distribution::Distribution;
use crate::facts::guest_agent::GuestAgent;
use crate::facts::host_metrics::HostMetrics;
use crate::facts::lifecycle::VirtualMachine;
use crate::facts::names::{NodeName, VmName};
use crate::facts::node::Node;
use crate::facts::observation::{Candidates, Harvester, Kubelet, Observation};
use crate::facts::placement::PlacementReads;
use crate::facts::pod_info::PodInfo;
use crate::facts::registration::DropIn;
use crate::facts::requests::Requests;
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, Unavailable, UnavailableKind};
use crate::observe::api_access::Connections;
use crate::observe::harvester::{self, Compared};
use crate::observe::host_labels::{self, Denied, Hosts};
use crate::observe::pod_info::PodReader;
use crate::sys::disk::DiskWork;
use crate::sys::root::Root;
use crate::triggers::Targets;
use crate::triggers::feed::Feed;
use crate::wire::dbus::Bus;
use crate::wire::kubeapi::Timeouts;
use limit::{limited, too_slow_text};
use local::LocalFiles;
use search::{Listing, OwnInstance};

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
    root: Root,
    bus: Bus,
    connections: Connections,
    health: SignalBoard,
    /// Reads the files of this machine.
    files: DiskWork<LocalFiles>,
    /// What it read last.
    local: Option<LocalFiles>,
    distributions: Vec<Distribution>,
    distribution_problems: Vec<String>,
    /// Whether the kernel could not read one of their files, which may pass.
    is_distribution_unread: bool,
    kubelet: Fact<Kubelet>,
    harvester: Fact<Harvester>,
    node: Fact<Node>,
    /// The version of the Node that was last read or delivered. That of the response to a write is newer.
    delivered_version: Option<String>,
    candidates: Fact<Candidates>,
    host_metrics: Fact<HostMetrics>,
    pod_info: Fact<PodInfo>,
    /// A round that is cut off must not lose the read that it began.
    pod_reader: tokio::sync::Mutex<PodReader>,
    guest_agent: Fact<GuestAgent>,
    drop_in: Option<DropIn>,
    /// The changes of label files.
    edits: Edits,
    /// Where Events are sent: the API server of the guest cluster is asked once in a process. Locked while they are sent.
    events: Arc<tokio::sync::Mutex<EventApi>>,
    /// The Events of the last writes, about this Node at that time.
    unsent: Vec<(NodeName, Vec<EventDraft>, Now)>,
    /// The VirtualMachine of our instance while it stops.
    vm: Fact<VirtualMachine>,
    /// The VM found in an earlier run.
    earlier: Option<VmName>,
    /// Our own instance, and the search that found it.
    own: Option<OwnInstance>,
    names: harvester::Names,
    /// The last results of the sources, until the VM is read again.
    reads: Option<PlacementReads>,
    /// The credentials that are known to lead to different APIs.
    cleared: Option<[Option<u64>; 2]>,
    denied: Denied,
    /// Cached labels of hosts.
    hosts: Hosts,
    /// The settings with which `reads` was read.
    read_for: Option<(TopologySettings, LabelSettings)>,
    /// UID and resource version of the instances as last read or delivered.
    versions: Vec<(String, Option<String>)>,
    /// Our Node before its API became unreachable.
    last_node: Option<Node>,
    /// Instances that have our hardware, including our own; empty while it is the only one.
    duplicates: BTreeSet<VmName>,
    /// Instances that do not have our hardware.
    compared: Compared,
    listing: Listing,
    /// Whether no user waits, so that expensive reads may be delayed or rare.
    is_daemon: bool,
    /// The number of this machine, see [`Machine::phase`](crate::facts::machine::Machine::phase).
    machine: Option<u64>,
    /// The deliveries of the watch of our VM.
    vmi_feed: Feed<Vmi>,
    /// The deliveries of the watch of our Node.
    node_feed: Feed<Node>,
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
    pub fn new(root: Root, bus: Bus, health: SignalBoard, earlier: Option<VmName>) -> Self {
        let unread = || Unavailable::new(UnavailableKind::NotAsked, "not read yet");
        Self {
            root,
            bus,
            connections: Connections::default(),
            health,
            files: DiskWork::default(),
            local: None,
            distributions: Vec::new(),
            distribution_problems: Vec::new(),
            is_distribution_unread: false,
            kubelet: Fact::Failed(unread()),
            harvester: Fact::Failed(unread()),
            node: Fact::Failed(unread()),
            delivered_version: None,
            candidates: Fact::Failed(unread()),
            host_metrics: Fact::Failed(unread()),
            pod_info: Fact::Absent,
            pod_reader: tokio::sync::Mutex::default(),
            guest_agent: Fact::Failed(unread()),
            drop_in: None,
            edits: Edits::default(),
            events: Arc::default(),
            unsent: Vec::new(),
            vm: Fact::failed(UnavailableKind::NotAsked, "not needed"),
            earlier,
            own: None,
            names: harvester::Names::default(),
            reads: None,
            cleared: None,
            denied: Denied::default(),
            hosts: Hosts::default(),
            read_for: None,
            versions: Vec::new(),
            last_node: None,
            duplicates: BTreeSet::new(),
            compared: Compared::default(),
            listing: Listing::default(),
            is_daemon: false,
            machine: None,
            vmi_feed: Feed::default(),
            node_feed: Feed::default(),
        }
    }

    /// Sets short timeouts of a few seconds, for a command that a user waits for.
    pub fn with_short_timeouts(mut self) -> Self {
        self.connections.timeouts = SHORT_TIMEOUTS;
        self
    }
}

impl Observer {
    /// Enables daemon behavior: an API that fails is retried with increasing backoff, and a namespace is listed late and rarely.
    pub fn backing_off(mut self, random: fn() -> Random) -> Self {
        self.connections.back_off(random);
        self.is_daemon = true;
        self
    }

    /// Reports whether another credential may fix a failed fact: credentials are then read immediately.
    fn may_need_credentials(&self) -> bool {
        read_plan::may_need_credentials([(&self.node).into(), (&self.candidates).into()])
    }

    /// Reports whether the labels of the host were read with these settings.
    fn are_reads_for(&self, settings: &Settings) -> bool {
        let wanted = (&settings.topology, &settings.labels);
        self.read_for
            .as_ref()
            .is_none_or(|(topology, extra)| (topology, extra) == wanted)
    }
}

impl Observe for Observer {
    type Targets = Targets;

    fn targets(&self, settings: &Settings, identity: &Identity) -> Targets {
        self.subscriptions(settings, identity)
    }

    fn requests(&self) -> Vec<Requests> {
        self.connections.requests()
    }

    async fn observation(
        &mut self,
        settings: &Settings,
        scope: Scope,
        now: Now,
        alive: &mut dyn FnMut(),
    ) -> Observation {
        // Boxed, so that an idle agent does not keep the memory.
        Box::pin(self.read(settings, scope, now, alive)).await
    }

    async fn placement(
        &mut self,
        settings: &Settings,
        located: &Located<'_>,
        now: Now,
    ) -> PlacementReads {
        let host = &located.host;
        let HostSource::Harvester(vmi) = located.host_source else {
            return PlacementReads::none(host.clone());
        };
        self.keep_found(vmi);
        if let Some(reads) = self.reads.as_ref().filter(|reads| reads.host == *host) {
            return reads.clone();
        }
        let reads = match self.connections.harvester.link() {
            Ok(link) => {
                let (client, generation) = (&link.client, link.generation);
                let memory = (&mut self.denied, &mut self.hosts);
                let reads =
                    host_labels::read(client, generation, settings, vmi, host, memory, now.uptime);
                let failed =
                    || PlacementReads::failed(host.clone(), &too_slow_text("the Harvester API"));
                Box::pin(limited(reads)).await.unwrap_or_else(failed)
            }
            Err(_) => PlacementReads::none(host.clone()),
        };
        self.read_for = Some((settings.topology.clone(), settings.labels.clone()));
        self.reads = Some(reads.clone());
        reads
    }
}
