// SPDX-License-Identifier: Apache-2.0
//! Keys of labels and types of conditions, as the agent writes them. Literals on purpose: a test must not take them from the
//! program that it tests.

/// The region of a Node.
pub const REGION: &str = "topology.kubernetes.io/region";

/// Its zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The deprecated beta label of the region.
pub const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";

/// The deprecated beta label of the zone.
pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";

/// The Harvester host.
pub const HOST: &str = "topology.harvesterhci.io/host";

/// The condition that says whether the names match the VM.
pub const IDENTITY: &str = "HarvesterIdentityVerified";

/// The condition that says whether the labels are in sync.
pub const TOPOLOGY: &str = "HarvesterTopologySynced";

/// The condition that says whether qemu-guest-agent serves the host.
pub const GUEST_AGENT: &str = "QemuGuestAgentReady";
