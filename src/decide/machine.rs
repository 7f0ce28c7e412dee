// SPDX-License-Identifier: Apache-2.0
//! Is the Node that our kubelet's credential leads to the Node of this machine? A clone of a disk has the credential, too.

use uuid::Uuid;

use crate::facts::observation::Observation;
use crate::facts::{Fact, UnavailableKind};

/// The same facts without the Node, where another machine's kubelet reports it: then nothing is decided about it, and so nothing
/// is written to it.
///
/// Both UUIDs must be known. The kubelet reads its own from the same file as we.
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

/// Before SMBIOS 2.6 the order of bytes in the first three fields was not settled.
fn is_same(ours: Uuid, theirs: Uuid) -> bool {
    ours == theirs || ours.to_bytes_le() == *theirs.as_bytes()
}
