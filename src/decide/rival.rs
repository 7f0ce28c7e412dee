// SPDX-License-Identifier: Apache-2.0
//! Somebody else who writes the same labels: counting reverts, and knowing when to stop.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::node::Node;

/// Reverts within [`REVERT_WINDOW`] after which we stop. Fewer could be a kubelet restart or two.
const REVERT_LIMIT: usize = 3;

/// The time in which reverts are counted.
const REVERT_WINDOW: Duration = Duration::from_secs(10 * 60);

/// How long we stay away before one more try.
const STAND_DOWN: Duration = Duration::from_secs(60 * 60);

/// What is remembered of our writes and their fate. Times are since the start of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rivalry {
    /// UID of the Node that all this is about.
    node: String,
    /// What our last successful patch set.
    written: BTreeMap<String, String>,
    /// Whether a difference from `written` would be a new revert and not the one counted already.
    armed: bool,
    reverts: Vec<Duration>,
    standing_down: Option<StandDown>,
}

/// A rival, and how long we leave the labels to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandDown {
    /// The field manager that wrote the label last, as `managedFields` says.
    pub rival: String,
    /// The label.
    pub key: String,
    /// When we try again.
    pub until: Duration,
}

impl Rivalry {
    /// Takes note of a successful patch.
    pub fn wrote(&mut self, changes: &BTreeMap<String, Option<String>>) {
        for (key, value) in changes {
            match value {
                Some(value) => self.written.insert(key.clone(), value.clone()),
                None => self.written.remove(key),
            };
        }
        self.armed = true;
    }

    /// Looks for a revert in the Node as it is now, given what we would change. Answers who is fighting us, if we must stop.
    pub fn judge(
        &mut self,
        node: &Node,
        changes: &BTreeMap<String, Option<String>>,
        now: Duration,
    ) -> Option<&StandDown> {
        if self.node != node.uid {
            // A Node made anew has lost its labels to nobody.
            if !self.node.is_empty() {
                *self = Self::default();
            }
            self.node.clone_from(&node.uid);
        }
        if changes.is_empty() {
            // Peace: the labels are right. The reverts stay counted, in case it is short.
            self.standing_down = None;
            return None;
        }
        if self
            .standing_down
            .as_ref()
            .is_some_and(|stand| stand.until <= now)
        {
            self.standing_down = None;
            // One revert of the new try is enough to stop again.
            self.reverts = vec![now; REVERT_LIMIT - 1];
        }
        self.reverts
            .retain(|at| now.saturating_sub(*at) < REVERT_WINDOW);
        let reverted = changes.iter().find(|(key, value)| {
            value.is_some()
                && self.written.get(*key) == value.as_ref()
                && node.labels.get(*key) != value.as_ref()
        });
        if let (Some((key, _)), true) = (reverted, self.armed) {
            self.armed = false;
            self.reverts.push(now);
            if self.reverts.len() >= REVERT_LIMIT {
                let rival = node
                    .label_managers
                    .get(key)
                    .cloned()
                    .unwrap_or_else(|| "an unnamed writer".to_owned());
                self.standing_down = Some(StandDown {
                    rival,
                    key: key.clone(),
                    until: now + STAND_DOWN,
                });
            }
        }
        self.standing_down.as_ref()
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
        node.label_managers
            .insert(ZONE.to_owned(), "kubectl-label".to_owned());
        node
    }

    fn zone(value: &str) -> BTreeMap<String, Option<String>> {
        BTreeMap::from([(ZONE.to_owned(), Some(value.to_owned()))])
    }

    fn minutes(count: u64) -> Duration {
        Duration::from_secs(count * 60)
    }

    #[test]
    fn three_reverts_in_ten_minutes_stop_us_and_name_the_rival() {
        let mut rivalry = Rivalry::default();
        for minute in 0..2 {
            rivalry.wrote(&zone("a"));
            assert_eq!(rivalry.judge(&node("b"), &zone("a"), minutes(minute)), None);
        }
        rivalry.wrote(&zone("a"));
        let stand = rivalry.judge(&node("b"), &zone("a"), minutes(2)).unwrap();
        assert_eq!(
            (stand.rival.as_str(), stand.key.as_str(), stand.until),
            ("kubectl-label", ZONE, minutes(62))
        );
    }

    #[test]
    fn after_an_hour_one_revert_stops_us_again() {
        let mut rivalry = Rivalry::default();
        for _ in 0..3 {
            rivalry.wrote(&zone("a"));
            rivalry.judge(&node("b"), &zone("a"), minutes(0));
        }
        assert_eq!(rivalry.judge(&node("b"), &zone("a"), minutes(60)), None);
        rivalry.wrote(&zone("a"));
        assert!(rivalry.judge(&node("b"), &zone("a"), minutes(60)).is_some());
    }

    #[test]
    fn one_revert_seen_twice_counts_once() {
        let mut rivalry = Rivalry::default();
        rivalry.wrote(&zone("a"));
        for _ in 0..10 {
            assert_eq!(rivalry.judge(&node("b"), &zone("a"), minutes(0)), None);
        }
    }

    #[test]
    fn slow_reverts_and_our_own_new_values_are_no_fight() {
        let mut rivalry = Rivalry::default();
        for round in 0..10 {
            rivalry.wrote(&zone("a"));
            assert_eq!(
                rivalry.judge(&node("b"), &zone("a"), minutes(round * 6)),
                None
            );
        }
        let mut rivalry = Rivalry::default();
        for (written, next) in [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")] {
            rivalry.wrote(&zone(written));
            assert_eq!(rivalry.judge(&node(written), &zone(next), minutes(0)), None);
        }
    }
}
