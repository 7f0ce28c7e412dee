// SPDX-License-Identifier: Apache-2.0
//! Checks that the Node of our kubelet's credential belongs to this machine. A clone of a disk contains the same credential.

use uuid::Uuid;

use crate::facts::observation::Observation;
use crate::facts::{Fact, UnavailableKind};

/// Returns the same facts without the Node if the kubelet of another machine reports it, so that nothing is decided about it and
/// nothing is written to it.
///
/// Both UUIDs must be known. The kubelet reads its UUID from the same file as this agent.
pub fn without_node_of_another_machine(observation: &Observation) -> Option<Observation> {
    let node = observation.node.known()?;
    let theirs = node.system_uuid?;
    let ours = *observation.machine.product_uuid.known()?;
    if ours.is_nil() || ours.is_max() || is_same(ours, theirs) {
        return None;
    }
    let text = format!(
        "Node `{}` reports systemUUID {theirs}, product_uuid of this VM is {ours}",
        node.name
    );
    Some(Observation {
        node: Fact::failed(UnavailableKind::AnotherMachine, text),
        ..observation.clone()
    })
}

/// Compares two UUIDs in both byte orders: before SMBIOS 2.6, the byte order of the first three fields was not defined.
fn is_same(ours: Uuid, theirs: Uuid) -> bool {
    ours == theirs || ours.to_bytes_le() == *theirs.as_bytes()
}
