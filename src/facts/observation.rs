// SPDX-License-Identifier: Apache-2.0
//! The facts of one observation: the machine, its credentials, its VM and its Node.

use std::path::PathBuf;

use super::clock::ClockSteps;
use super::distribution::Distribution;
use super::fact::{Fact, Unavailable};
use super::guest_agent::GuestAgent;
use super::host_metrics::HostMetrics;
use super::machine::Machine;
use super::names::{Namespace, NodeName, TokenSecret};
use super::node::Node;
use super::pod_info::PodInfo;
use super::scheduled_events::VirtualMachine;
use super::vmi::Vmi;
use crate::catalog::{Api, Finding};

/// The facts of one observation.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// This machine.
    pub machine: Machine,
    /// The Kubernetes distributions whose files are on this machine.
    pub distributions: Vec<Distribution>,
    /// The credential of the kubelet.
    pub kubelet: Fact<Kubelet>,
    /// Our own Node.
    pub node: Fact<Node>,
    /// The Harvester credential.
    pub harvester: Fact<Harvester>,
    /// The VirtualMachineInstances that may be this machine.
    pub candidates: Fact<Candidates>,
    /// The VirtualMachine of our instance. It is read when the instance stops, which needs an explanation.
    pub vm: Fact<VirtualMachine>,
    /// The metrics of the host, if they were read. They are not needed while Harvester's API reports our VM.
    pub host_metrics: Fact<HostMetrics>,
    /// The virt-launcher pod of this VM, from its files.
    pub pod_info: Fact<PodInfo>,
    /// The QEMU guest agent on this machine.
    pub guest_agent: Fact<GuestAgent>,
    /// The steps of the wall clock since the start of the process.
    pub clock: ClockSteps,
    /// Whether the kernel could not read a file of this machine, which may pass. No event reports when.
    pub is_unread: bool,
    /// What is wrong beside the main reads: an invalid file of the distribution, a credential that others can read, an event source
    /// that does not work.
    pub findings: Vec<Finding>,
}

impl Observation {
    /// Returns the instances that may be this machine, as far as they are known.
    pub fn vmis(&self) -> &[Vmi] {
        let known = self.candidates.known();
        let vmis = known.map(|candidates| candidates.vmis.as_slice());
        vmis.unwrap_or_default()
    }

    /// Returns the UID of the VirtualMachine in `spec.providerID` of our Node.
    pub fn node_vm_uid(&self) -> Option<&str> {
        self.node.known()?.vm_uid()
    }

    /// Returns why the credential of an API cannot be used.
    pub fn credential_failure(&self, api: Api) -> Option<&Unavailable> {
        match api {
            Api::Harvester => self.harvester.why(),
            Api::Guest => self.kubelet.why(),
        }
    }

    /// Returns why the first object that is read from an API is unknown: our VM, or our Node.
    pub fn read_failure(&self, api: Api) -> Option<&Unavailable> {
        match api {
            Api::Harvester => self.candidates.why(),
            Api::Guest => self.node.why(),
        }
    }
}

/// The credential of the kubelet, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server.
    pub server: String,
    /// The name of our own Node: that in the client certificate, which the API server compares as well, or the configured one.
    pub node_name: NodeName,
    /// The user of a token instead of a client certificate, if the token contains one.
    pub account: Option<String>,
    /// The time when the client certificate or the token expires, in seconds since 1970.
    pub expires: Option<i64>,
}

/// The Harvester credential, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harvester {
    /// The kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server.
    pub server: String,
    /// The namespace in which our VM is searched for.
    pub namespace: Namespace,
    /// The user in the token, such as `system:serviceaccount:default:gc8`.
    pub account: Option<String>,
    /// The time when the token expires, in seconds since 1970. Harvester's own tokens do not expire.
    pub expires: Option<i64>,
    /// The Secret of a token without expiry.
    pub secret: Option<TokenSecret>,
}

/// The VirtualMachineInstances that may be this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// The instances.
    pub vmis: Vec<Vmi>,
    /// The coverage of the search.
    pub coverage: Coverage,
}

/// The coverage of the search for candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All instances of the namespace: a duplicate would be found.
    Namespace,
    /// Only instances read by name, because the credential may not list, or the list is too large.
    Named,
    /// Only instances read by name: that was sufficient, the last list found no other match, or this list failed.
    Listed,
}
