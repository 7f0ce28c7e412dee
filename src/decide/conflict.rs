// SPDX-License-Identifier: Apache-2.0
//! Detects other writers of the same labels or annotations: counts reverts and decides when to stop writing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::action::NodePatch;
use crate::facts::names::HostName;
use crate::facts::node::Node;
use crate::facts::topology::LabelValue;

/// The number of reverts within [`REVERT_WINDOW`] that stops our writes. Fewer reverts can be caused by one or two kubelet
/// restarts.
const REVERT_LIMIT: usize = 3;

/// The time window in which reverts are counted. A conflict ends when no change is needed for this long.
const REVERT_WINDOW: Duration = Duration::from_secs(10 * 60);

/// The maximum number of labels that are remembered.
const TRACKED_MAX: usize = 512;

/// The time without writes before the next attempt.
const STAND_DOWN: Duration = Duration::from_secs(60 * 60);

/// The record of our writes and their reverts. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConflictTracker {
    /// The UID of the Node that this record is for.
    node: String,
    /// The host that this record is for. Values that were written for another host are not compared.
    host: Option<HostName>,
    /// The labels that our successful patches set or removed.
    labels: BTreeMap<String, Option<LabelValue>>,
    /// The annotations that our successful patches set.
    annotations: BTreeMap<String, String>,
    /// Whether a difference from these values counts as a new revert. It is false after a revert was counted, until the next
    /// write.
    armed: bool,
    reverts: Vec<Duration>,
    standing_down: Option<ConflictBackoff>,
    /// Whether we write again, to see whether the conflict is over.
    is_retrying: bool,
    /// The time since which no change is needed.
    peace: Option<Duration>,
}

/// A conflicting writer, and the time until which we do not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictBackoff {
    /// The field manager that wrote the key last, according to `managedFields`.
    pub conflict: String,
    /// The key of the label or annotation.
    pub key: String,
    /// The time of the next attempt.
    pub until: Duration,
}

impl ConflictTracker {
    /// Records a successful patch.
    pub fn wrote(&mut self, patch: &NodePatch) {
        // Other writers can choose which labels are removed, so the record must be limited.
        if self.labels.len() + patch.labels.len() > TRACKED_MAX {
            self.labels.clear();
        }
        self.labels.extend(patch.labels.clone());
        self.annotations.extend(patch.annotations.clone());
        self.armed = true;
    }

    /// Returns the conflict that may be over: a change is needed, or we write again, and no writer has reverted that so far.
    pub fn known(&self) -> Option<&ConflictBackoff> {
        let is_needed = self.is_retrying || self.peace.is_none();
        self.standing_down.as_ref().filter(|_| is_needed)
    }

    /// Compares the current Node with the record, given the patch for `host`. Returns the conflicting writer if the patch must not
    /// be sent.
    pub fn judge(
        &mut self,
        node: &Node,
        host: &HostName,
        patch: Option<&NodePatch>,
        now: Duration,
    ) -> Option<&ConflictBackoff> {
        if self.node != node.uid {
            // A re-created Node has no labels. No writer removed them.
            if !self.node.is_empty() {
                *self = Self::default();
            }
            self.node.clone_from(&node.uid);
        }
        let moved = self.host.as_ref().is_some_and(|known| known != host);
        if moved {
            self.labels.clear();
            self.annotations.clear();
        }
        self.host = Some(host.clone());
        let stand = self.standing_down.as_ref();
        let is_due = patch.is_some() && !self.is_retrying;
        if stand.is_some_and(|stand| moved || is_due && stand.until <= now) {
            self.is_retrying = true;
            // One revert of the next attempt is enough to stop again.
            self.reverts = vec![now; REVERT_LIMIT - 1];
        }
        let Some(patch) = patch else {
            // The Node needs no change, but a conflicting writer that pauses may continue.
            let since = *self.peace.get_or_insert(now);
            if now.saturating_sub(since) >= REVERT_WINDOW {
                self.standing_down = None;
                self.is_retrying = false;
            }
            return None;
        };
        self.peace = None;
        self.reverts
            .retain(|at| now.saturating_sub(*at) < REVERT_WINDOW);
        let reverted = self.reverted(node, patch);
        if let (Some(key), true) = (reverted, self.armed) {
            self.armed = false;
            self.reverts.push(now);
            if self.reverts.len() >= REVERT_LIMIT {
                let unnamed = || "an unnamed writer".to_owned();
                let writer = node.managers.get(key);
                self.standing_down = Some(ConflictBackoff {
                    conflict: writer.cloned().unwrap_or_else(unnamed),
                    key: key.clone(),
                    until: now + STAND_DOWN,
                });
                self.is_retrying = false;
            }
        }
        let has_news = patch
            .labels
            .iter()
            .filter(|(_, value)| value.is_some())
            .any(|(key, value)| self.labels.get(key) != Some(value));
        // Labels that no other writer reverted are still updated. Each counts as new only once for a value of the host.
        let is_paused = !self.is_retrying && !has_news;
        self.standing_down.as_ref().filter(|_| is_paused)
    }

    /// Returns the first key that another writer changed after our write and that we would write again.
    fn reverted<'a>(&self, node: &Node, patch: &'a NodePatch) -> Option<&'a String> {
        // A patch has only labels that differ from those of the Node.
        let mut labels = patch.labels.iter();
        let label = labels.find(|(key, value)| self.labels.get(*key) == Some(value));
        // Compares with the value on the Node: a conflicting writer can influence the value that we would write.
        let mut annotations = patch.annotations.keys();
        let annotation = annotations.find(|key| {
            let written = self.annotations.get(*key);
            written.is_some() && written != node.annotations.get(*key)
        });
        label.map(|(key, _)| key).or(annotation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::topology::ZONE;

    fn node(zone: &str) -> Node {
        let mut node: Node =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "n", "uid": "u"}}))
                .unwrap();
        node.labels.insert(ZONE.to_owned(), zone.to_owned());
        node.managers
            .insert(ZONE.to_owned(), "kubectl-label".to_owned());
        node
    }

    fn zone(value: &str) -> NodePatch {
        let node = node("");
        NodePatch {
            node: node.name,
            uid: node.uid,
            resource_version: None,
            labels: BTreeMap::from([(ZONE.to_owned(), LabelValue::parse(value).ok())]),
            annotations: BTreeMap::new(),
            announce: None,
        }
    }

    fn judge<'a>(
        conflicts: &'a mut ConflictTracker,
        node: &Node,
        patch: &NodePatch,
        now: Duration,
    ) -> Option<&'a ConflictBackoff> {
        let host = HostName::parse("hv-a").unwrap();
        conflicts.judge(node, &host, Some(patch), now)
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(count * 60)
    }

    #[test]
    fn three_reverts_in_ten_minutes_stop_us_and_name_the_rival() {
        let mut conflicts = ConflictTracker::default();
        for minute in 0..2 {
            conflicts.wrote(&zone("a"));
            assert_eq!(
                judge(&mut conflicts, &node("b"), &zone("a"), minutes(minute)),
                None
            );
        }
        conflicts.wrote(&zone("a"));
        let stand = judge(&mut conflicts, &node("b"), &zone("a"), minutes(2)).unwrap();
        assert_eq!(
            (stand.conflict.as_str(), stand.key.as_str(), stand.until),
            ("kubectl-label", ZONE, minutes(62))
        );
    }

    #[test]
    fn after_an_hour_one_revert_stops_us_again() {
        let mut conflicts = ConflictTracker::default();
        for _ in 0..3 {
            conflicts.wrote(&zone("a"));
            judge(&mut conflicts, &node("b"), &zone("a"), minutes(0));
        }
        assert_eq!(
            judge(&mut conflicts, &node("b"), &zone("a"), minutes(60)),
            None
        );
        conflicts.wrote(&zone("a"));
        assert!(judge(&mut conflicts, &node("b"), &zone("a"), minutes(60)).is_some());
    }

    #[test]
    fn labels_to_remove_that_others_choose_end_no_stand_down_and_take_no_memory() {
        let mut conflicts = ConflictTracker::default();
        for _ in 0..3 {
            conflicts.wrote(&zone("a"));
            judge(&mut conflicts, &node("b"), &zone("a"), minutes(0));
        }
        let mut patch = zone("a");
        for number in 0..10_000 {
            patch.labels.insert(format!("chosen/{number}"), None);
            if patch.labels.len() > 50 {
                assert!(judge(&mut conflicts, &node("b"), &patch, minutes(1)).is_some());
                conflicts.wrote(&patch);
                patch = zone("a");
            }
        }
        assert!(conflicts.labels.len() <= TRACKED_MAX);
    }

    #[test]
    fn one_revert_seen_twice_counts_once() {
        let mut conflicts = ConflictTracker::default();
        conflicts.wrote(&zone("a"));
        for _ in 0..10 {
            assert_eq!(
                judge(&mut conflicts, &node("b"), &zone("a"), minutes(0)),
                None
            );
        }
    }

    #[test]
    fn slow_reverts_and_our_own_new_values_are_no_fight() {
        let mut conflicts = ConflictTracker::default();
        for round in 0..10 {
            conflicts.wrote(&zone("a"));
            assert_eq!(
                judge(&mut conflicts, &node("b"), &zone("a"), minutes(round * 6)),
                None
            );
        }
        let mut conflicts = ConflictTracker::default();
        for (written, next) in [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")] {
            conflicts.wrote(&zone(written));
            assert_eq!(
                judge(&mut conflicts, &node(written), &zone(next), minutes(0)),
                None
            );
        }
    }
}
