// SPDX-License-Identifier: Apache-2.0
//! What the Harvester credential may do, and what each of it is good for.

use super::Seen;

/// A request that would be of use.
#[derive(Debug, PartialEq, Eq)]
pub struct Useful {
    /// Verb.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural.
    pub resource: &'static str,
    /// Whether it is about the VM's namespace or about the whole cluster.
    pub namespaced: bool,
    /// What it is good for.
    pub purpose: &'static str,
}

/// All requests that the agent sends to Harvester.
pub static USEFUL: &[Useful] = &[
    useful(
        "get",
        "kubevirt.io",
        "virtualmachineinstances",
        true,
        "needed: the VM and its host",
    ),
    useful(
        "list",
        "kubevirt.io",
        "virtualmachineinstances",
        true,
        "finds the VM whatever the hostname, and doubles of it",
    ),
    useful(
        "watch",
        "kubevirt.io",
        "virtualmachineinstances",
        true,
        "notices a migration at once",
    ),
    useful(
        "get",
        "",
        "nodes",
        false,
        "source host-node: any VM, any label of the host",
    ),
    useful("list", "", "pods", true, "source launcher-pod"),
];

const fn useful(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespaced: bool,
    purpose: &'static str,
) -> Useful {
    Useful {
        verb,
        group,
        resource,
        namespaced,
        purpose,
    }
}

/// The answer to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The request.
    pub useful: &'static Useful,
    /// Whether it would be let through.
    pub allowed: Seen<bool>,
}
