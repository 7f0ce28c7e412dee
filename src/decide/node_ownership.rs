// SPDX-License-Identifier: Apache-2.0
//! Checks that the Node of our kubelet's credential belongs to this machine. A clone of a disk contains the same credential.

use std::time::Duration;

use uuid::Uuid;

use super::input::Scene;
use crate::facts::observation::Observation;
use crate::facts::trigger::Scope;
use crate::facts::{Fact, UnavailableKind};

/// The time for which only our kubelet must report the Node after that of another machine did: each kubelet reports at least every
/// 10 s if another one has changed the Node. It may also be ours, restarted after a change of the firmware UUID.
const SETTLED: Duration = Duration::from_secs(30);

/// The same time, if two kubelets have reported the Node in turn.
const IN_TURN: Duration = Duration::from_secs(5 * 60);

/// The time between two reads of the Node within `SETTLED`: less than the interval of a kubelet.
const CHECK: Duration = Duration::from_secs(5);

/// The kubelets that report our Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reporters {
    /// The UUID of another machine, until its kubelet has not been seen for long enough.
    other: Option<Uuid>,
    /// The time since which each read has shown our kubelet, since the start of the process.
    ours_since: Option<Duration>,
    /// Whether our kubelet was seen in this process.
    has_seen_ours: bool,
    /// Whether the other kubelet was seen after ours.
    are_in_turn: bool,
}

impl Reporters {
    /// Returns the same facts without the Node if the kubelet of another machine reports it, or did so shortly before, so that nothing
    /// is decided about it and nothing is written to it.
    ///
    /// Both UUIDs must be known. The kubelet reads its UUID from the same file as this agent.
    pub fn without_node_of_another_machine(&mut self, seen: Scene<'_>) -> Option<Observation> {
        let node = seen.observation.node.known()?;
        let theirs = node.system_uuid?;
        let ours = *seen.observation.machine.product_uuid.known()?;
        if ours.is_nil() || ours.is_max() {
            return None;
        }
        if !is_same_uuid(ours, theirs) {
            self.are_in_turn |= self.has_seen_ours;
            self.other = Some(theirs);
            self.ours_since = None;
        } else {
            self.has_seen_ours = true;
            self.other?;
            let since = *self.ours_since.get_or_insert(seen.now.uptime);
            // A Node that was not read again proves nothing.
            let is_new = seen.reasons.scope.contains(Scope::NODE);
            let limit = if self.are_in_turn { IN_TURN } else { SETTLED };
            if is_new && seen.now.uptime.saturating_sub(since) >= limit {
                *self = Self {
                    has_seen_ours: true,
                    ..Self::default()
                };
                return None;
            }
        }
        let (node, other) = (&node.name, self.other?);
        // Without our UUID: all users can read the status, but only root the UUID.
        let what = match self.are_in_turn {
            true => " and that of this VM in turn: two kubelets use its credential",
            false => ", which is not the product_uuid of this VM",
        };
        let text = format!("Node `{node}` reports systemUUID {other}{what}");
        Some(Observation {
            node: Fact::failed(UnavailableKind::AnotherMachine, text),
            ..seen.observation.clone()
        })
    }

    /// Reports whether our kubelet reports the Node, and no other one has lately.
    pub fn are_ours(&self) -> bool {
        self.has_seen_ours && self.other.is_none()
    }

    /// Returns when the Node is read again to see whether only our kubelet reports it.
    pub(super) fn check(&self) -> Option<Duration> {
        self.other.and(self.ours_since)?;
        Some(if self.are_in_turn { SETTLED } else { CHECK })
    }
}

/// Compares two UUIDs in both byte orders: before SMBIOS 2.6, the byte order of the first three fields was not defined.
pub fn is_same_uuid(ours: Uuid, theirs: Uuid) -> bool {
    ours == theirs || ours.to_bytes_le() == *theirs.as_bytes()
}

#[cfg(test)]
mod tests;
