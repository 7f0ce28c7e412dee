// SPDX-License-Identifier: Apache-2.0
//! The body of an Event about our own Node.
//!
//! It is a core `v1` Event: the role of kubelets (`system:node`, in the bootstrap policy of Kubernetes) allows these but not those
//! of `events.k8s.io`. It has no `eventTime`, because with it the API requires Events about Nodes to be outside `default`, where
//! `kubectl describe node` does not search.

use serde_json::{Value, json};

use crate::decide::events::EventDraft;
use crate::decide::{Now, rfc3339};
use crate::facts::names::NodeName;

/// The path of Events about Nodes. Nodes have no namespace, so these Events are in `default`.
pub const PATH: &str = "/api/v1/namespaces/default/events";

/// Returns the body of the Event with this index among those of one time. The UID is the name of the Node, as in the kubelet's own
/// Events: `kubectl describe node` searches for it.
pub fn body(draft: &EventDraft, index: usize, node: &NodeName, now: Now) -> Value {
    let nanoseconds = now.wall.unix_timestamp_nanos();
    let time = rfc3339(now.wall);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": format!("{node}.{nanoseconds:x}{index}"), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": node.as_str() },
        "source": { "component": "harvester-node-agent", "host": node.as_str() },
        "reportingComponent": "harvester-node-agent",
        "reportingInstance": node.as_str(),
        "reason": draft.reason,
        "type": draft.kind,
        "message": draft.note,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::schedule::Random;
    use std::time::Duration;
    use time::UtcDateTime;

    #[test]
    fn an_event_has_what_the_api_insists_on() {
        let draft = EventDraft {
            kind: "Warning",
            reason: "IdentityMismatch",
            note: "note".to_owned(),
        };
        let wall = UtcDateTime::from_unix_timestamp_nanos(1_500_000_000_000_001_000).unwrap();
        let now = Now {
            uptime: Duration::ZERO,
            wall,
            random: Random::from_bits(0),
        };
        let body = body(&draft, 0, &NodeName::parse("n").unwrap(), now);
        assert_eq!(body["lastTimestamp"], "2017-07-14T02:40:00Z");
        assert_eq!(body["involvedObject"]["name"], "n");
        assert_eq!(body["metadata"]["name"], "n.14d1120d7b1603e80");
    }
}
