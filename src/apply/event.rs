// SPDX-License-Identifier: Apache-2.0
//! Events about our own Node.
//!
//! They are sent to `events.k8s.io/v1` where the API server lets a kubelet create them there (the role `system:node` of newer
//! releases), and otherwise to core `v1`. A core Event has no `eventTime`, because with it the API requires Events about Nodes to be
//! outside `default`, where `kubectl describe node` does not search.
//!
//! Both APIs store the same objects: an Event has the same name in both, so that it cannot be created twice.

use serde_json::{Value, json};

use crate::decide::Now;
use crate::decide::action::EventDraft;
use crate::facts::clock::{rfc3339, rfc3339_micros};
use crate::facts::names::NodeName;
use crate::sys::escape::chain;
use crate::wire::kubeapi::{Client, Error, Kind, ObjectPath};

/// The name of the agent in Events.
const REPORTER: &str = "harvester-node-agent";

/// An API for Events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventApi {
    /// `events.k8s.io/v1`, until the API server rejects it.
    #[default]
    Newer,
    /// Core `v1`, which every API server accepts from a kubelet.
    Core,
}

impl EventApi {
    /// Returns the path of Events about Nodes. Nodes have no namespace, so these Events are in `default`.
    fn path(self) -> ObjectPath {
        let api = match self {
            Self::Newer => "/apis/events.k8s.io/v1",
            Self::Core => "/api/v1",
        };
        ObjectPath::all(api, "events", None).within("default")
    }
}

/// Sends Events about our own Node. Their numbers distinguish those of one time. A failure to send one is ignored: Events are
/// best effort, and the finding stays in the journal and in the status.
pub async fn send(
    client: &Client,
    api: &mut EventApi,
    drafts: &[EventDraft],
    node: &NodeName,
    now: Now,
) {
    for (index, draft) in drafts.iter().enumerate() {
        if let Err(error) = create(client, api, draft, index, node, now).await {
            let what = match error.is_deferred {
                true => "did not send an Event after a request that failed",
                false => "failed to send an Event",
            };
            tracing::debug!(reason = draft.reason, error = %chain(&error), "{what}");
        }
    }
}

/// Creates the Event with this index among those of one time. If the API server does not accept the newer API, the result is
/// recorded in `api` and the Event is created with core `v1`.
async fn create(
    client: &Client,
    api: &mut EventApi,
    draft: &EventDraft,
    index: usize,
    node: &NodeName,
    now: Now,
) -> Result<(), Error> {
    let event = body(*api, draft, index, node, now);
    let created = client.create(&api.path(), &event).await;
    match created.as_ref().err().map(|error| error.kind) {
        // It exists: an agent that was killed created it.
        Some(Kind::Conflict) if draft.name.is_some() => Ok(()),
        Some(Kind::Forbidden | Kind::Absent | Kind::NotFound | Kind::Invalid)
            if *api == EventApi::Newer =>
        {
            *api = EventApi::Core;
            let event = body(*api, draft, index, node, now);
            client.create(&api.path(), &event).await
        }
        _ => created,
    }
}

/// Returns the body. The UID is the name of the Node, as in the kubelet's own Events: `kubectl describe node` searches for it.
fn body(api: EventApi, draft: &EventDraft, index: usize, node: &NodeName, now: Now) -> Value {
    let nanoseconds = now.wall.unix_timestamp_nanos();
    let name = match &draft.name {
        Some(name) => format!("{node}.{name}"),
        // Two patches of one round number their Events each from zero.
        None => {
            let reason = draft.reason.to_ascii_lowercase();
            format!("{node}.{nanoseconds:x}{index}.{reason}")
        }
    };
    let metadata = json!({"name": name, "namespace": "default"});
    let about =
        json!({"apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": node.as_str()});
    match api {
        EventApi::Newer => json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "regarding": about,
            "eventTime": rfc3339_micros(now.wall),
            "reportingController": REPORTER,
            "reportingInstance": node.as_str(),
            "action": "UpdateNode",
            "reason": draft.reason,
            "type": draft.kind,
            "note": draft.note,
        }),
        EventApi::Core => {
            let time = rfc3339(now.wall);
            json!({
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": metadata,
                "involvedObject": about,
                "source": { "component": REPORTER, "host": node.as_str() },
                "reportingComponent": REPORTER,
                "reportingInstance": node.as_str(),
                "reason": draft.reason,
                "type": draft.kind,
                "message": draft.note,
                "firstTimestamp": time,
                "lastTimestamp": time,
                "count": 1,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::schedule::Random;
    use std::time::Duration;
    use time::UtcDateTime;

    fn body_in(api: EventApi) -> Value {
        let draft = EventDraft {
            kind: "Warning",
            reason: "HostnameDiffers",
            note: "note".to_owned(),
            name: None,
        };
        let wall = UtcDateTime::from_unix_timestamp_nanos(1_500_000_000_000_001_000).unwrap();
        let now = Now {
            uptime: Duration::ZERO,
            wall,
            random: Random::from_bits(0),
        };
        body(api, &draft, 0, &NodeName::parse("n").unwrap(), now)
    }

    #[test]
    fn an_event_has_what_its_api_requires_and_the_same_name_in_both() {
        let core = body_in(EventApi::Core);
        assert_eq!(core["lastTimestamp"], "2017-07-14T02:40:00Z");
        assert_eq!(core["involvedObject"]["name"], "n");
        assert_eq!(
            core["metadata"]["name"],
            "n.14d1120d7b1603e80.hostnamediffers"
        );
        let newer = body_in(EventApi::Newer);
        assert_eq!(newer["eventTime"], "2017-07-14T02:40:00.000001Z");
        assert_eq!(newer["regarding"], core["involvedObject"]);
        assert_eq!(newer["metadata"], core["metadata"]);
    }
}
