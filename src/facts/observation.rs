// SPDX-License-Identifier: Apache-2.0
//! All that is read to answer "who am I?".

use std::path::PathBuf;

use super::Fact;
use super::distribution::Distribution;
use super::guest_agent::GuestAgent;
use super::host_metrics::HostMetrics;
use super::machine::Machine;
use super::names::{Namespace, NodeName};
use super::node::Node;
use super::registration::{DropIn, LabelFile};
use super::vmi::Vmi;

/// The facts of one observation.
#[derive(Debug, Clone)]
pub struct Observation {
    /// This machine.
    pub machine: Machine,
    /// The Kubernetes distributions whose files are here.
    pub distributions: Vec<Distribution>,
    /// The kubelet's credential.
    pub kubelet: Fact<Kubelet>,
    /// Our own Node.
    pub node: Fact<Node>,
    /// The Harvester credential.
    pub harvester: Fact<Harvester>,
    /// The VirtualMachineInstances that this machine might be.
    pub candidates: Fact<Candidates>,
    /// What the host itself tells of itself, where it was asked: while Harvester's API tells of our VM it is not needed.
    pub host_metrics: Fact<HostMetrics>,
    /// QEMU's guest agent in this machine.
    pub guest_agent: Fact<GuestAgent>,
    /// What stands at the places of our files for the kubelet's first labels.
    pub label_files: Vec<LabelFile>,
    /// State of the kubelet's unit in systemd's manager, if it was read.
    pub drop_in: Option<DropIn>,
    /// Readings that failed beside the main ones: a broken file of the distribution, a credential that others can read.
    pub issues: Vec<ObservationIssue>,
}

/// One of the two APIs that the agent talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Harvester's, where the VM is.
    Harvester,
    /// The guest cluster's, where the Node is.
    Guest,
}

impl Api {
    /// The name used in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Harvester => "harvester",
            Self::Guest => "guest",
        }
    }

    /// The name of its credential in messages.
    pub fn credential(self) -> &'static str {
        match self {
            Self::Harvester => "Harvester credential",
            Self::Guest => "kubelet credential",
        }
    }
}

/// A side issue of an observation, which becomes a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservationIssue {
    /// A credential file can be read by others than its owner.
    CredentialExposed {
        /// The API that it is for.
        api: Api,
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Someone besides root can change a file of a credential, or the way to it.
    CredentialChangeable {
        /// The API that it is for.
        api: Api,
        /// The file, a folder above it or a link on the way.
        place: PathBuf,
        /// The place and why.
        problem: String,
    },
    /// A changed credential file could not be used; the credential read before stays in use.
    CredentialKept {
        /// The API that it is for.
        api: Api,
        /// What is wrong with the new one.
        problem: String,
    },
    /// The Harvester credential points at a loopback address.
    HarvesterOnLoopback {
        /// The server.
        server: String,
    },
    /// A configuration file of the distribution could not be understood.
    DistributionFile {
        /// What is wrong, with the file.
        problem: String,
        /// Whether all that is wrong is that the kernel does not let us read it.
        is_denied: bool,
    },
    /// The new configuration has faults; the one before stays in force.
    ConfigurationKept {
        /// The faults.
        faults: String,
    },
    /// The state of an earlier run was not used.
    StateDiscarded {
        /// Why not.
        why: String,
    },
    /// A watch cannot be kept open.
    WatchUnavailable {
        /// At which of the two APIs.
        api: Api,
        /// Why not, and of what.
        what: String,
    },
    /// A watch is ended again and again, though it begins well.
    WatchInterrupted {
        /// At which of the two APIs.
        api: Api,
        /// Of what, and how often.
        what: String,
    },
    /// The storage of the API server does not tell its progress, so that watches have no bookmarks.
    NoWatchProgress {
        /// At which of the two APIs.
        api: Api,
        /// Where.
        what: String,
    },
    /// A signal of this machine does not work.
    SignalUnavailable {
        /// Why not, and what is done without it.
        what: String,
    },
    /// Metrics cannot be determined to clients.
    MetricsUnavailable {
        /// Why not, and where.
        what: String,
        /// The port that the unit denies, if that is the reason.
        forbidden: Option<u16>,
    },
    /// A watch delivered an object that was not asked for.
    UnexpectedObject {
        /// What arrived.
        what: String,
    },
}

/// The kubelet's credential, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server.
    pub server: String,
    /// The name of our own Node.
    pub node_name: NodeName,
    /// Who says so.
    pub node_name_source: NodeNameSource,
    /// When the client certificate ends, in seconds since 1970.
    pub expires: Option<i64>,
}

/// Where the name of our own Node comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeNameSource {
    /// The subject of the client certificate, which is what the API server compares.
    Certificate,
    /// Our own configuration.
    Configuration,
}

/// The Harvester credential, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harvester {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server.
    pub server: String,
    /// The namespace in which our VM is looked for.
    pub namespace: Namespace,
    /// The user that the token claims to be, such as `system:serviceaccount:default:gc8`.
    pub account: Option<String>,
    /// When the token ends, in seconds since 1970; Harvester's own tokens never do.
    pub expires: Option<i64>,
}

/// The VirtualMachineInstances that this machine might be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// The instances.
    pub vmis: Vec<Vmi>,
    /// How many were checked.
    pub coverage: Coverage,
}

/// How far the search for candidates went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All instances of the namespace: a duplicate would have been seen.
    Namespace,
    /// Only instances asked for by name, because the credential may not list.
    Named,
    /// Only instances asked for by name: that was enough, or no other was ours when they were listed last.
    Listed,
}
