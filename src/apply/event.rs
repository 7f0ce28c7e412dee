// SPDX-License-Identifier: Apache-2.0
//! The body of an Event about our own Node (`events.k8s.io/v1`).

use serde_json::{Value, json};

use crate::decide::Now;
use crate::decide::events::EventDraft;
use crate::facts::names::NodeName;

/// Where Events about Nodes, which have no namespace, are kept.
pub const PATH: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// The body. The Node's name stands for its uid, as in the kubelet's own Events: `kubectl describe node` looks for that.
pub fn body(draft: &EventDraft, node: &NodeName, now: Now) -> Value {
    let nanoseconds = now.wall.unix_timestamp_nanos();
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": format!("{node}.{nanoseconds:x}"), "namespace": "default" },
        "eventTime": micro_time(now),
        "reportingController": "harvesterhci.io/node-agent",
        "reportingInstance": node.as_str(),
        "action": draft.action,
        "reason": draft.reason,
        "type": draft.kind,
        "note": draft.note,
        "regarding": { "apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": node.as_str() },
    })
}

/// RFC 3339 with six digits of a second, which `MicroTime` insists on.
fn micro_time(now: Now) -> String {
    let seconds = crate::decide::rfc3339(now.wall);
    format!(
        "{}.{:06}Z",
        seconds.trim_end_matches('Z'),
        now.wall.microsecond()
    )
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
            reason: "Mismatch".to_owned(),
            action: "Verify",
            note: "note".to_owned(),
        };
        let wall = UtcDateTime::from_unix_timestamp_nanos(1_500_000_000_000_001_000).unwrap();
        let now = Now {
            uptime: Duration::ZERO,
            wall,
            random: Random::from_bits(0),
        };
        let body = body(&draft, &NodeName::parse("n").unwrap(), now);
        assert_eq!(body["eventTime"], "2017-07-14T02:40:00.000001Z");
        assert_eq!(body["regarding"]["name"], "n");
        assert_eq!(body["metadata"]["name"], "n.14d1120d7b1603e8");
    }
}
