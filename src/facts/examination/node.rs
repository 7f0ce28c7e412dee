// SPDX-License-Identifier: Apache-2.0
//! What does our Node say beyond what the running agent reads of it?

use core::net::IpAddr;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Gap;
use crate::facts::release::Release;
use crate::facts::{Seen, Why, WhyKind};
use crate::findings::Group;

/// The taint of a Node that a cloud provider has not taken on, or is to take on again.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// What only `doctor` reads of the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDetails {
    /// `status.nodeInfo.kubeletVersion`.
    pub kubelet: Seen<Release>,
    /// The taint of a Node that no cloud provider has taken on. Absent where it has none.
    pub uninitialized: Seen<Uninitialized>,
    /// `status.addresses` with type `InternalIP`; those that are no address are left out.
    pub internal_ips: Seen<Vec<IpAddr>>,
}

/// `node.cloudprovider.kubernetes.io/uninitialized`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninitialized {
    /// What it keeps away: `NoSchedule` from a kubelet that registers, `PreferNoSchedule` from Harvester's cloud provider when
    /// it is to read region and zone again.
    pub effect: String,
    /// Since when, in seconds since 1970: when it was added; or when the Node was made, for the taint of a kubelet that
    /// registers.
    pub since: Option<i64>,
}

impl NodeDetails {
    /// From a Node, as the API delivers it.
    pub fn of(node: &Value) -> Self {
        let kubelet = node.pointer("/status/nodeInfo/kubeletVersion");
        Self {
            kubelet: release(kubelet),
            uninitialized: uninitialized(node),
            internal_ips: Seen::Known(internal_ips(node)),
        }
    }

    /// None of it, for one reason.
    pub fn unseen(why: &Why) -> Self {
        Self {
            kubelet: Seen::Failed(why.clone()),
            uninitialized: Seen::Failed(why.clone()),
            internal_ips: Seen::Failed(why.clone()),
        }
    }

    /// What could not be looked at.
    pub fn gaps(&self) -> Vec<Gap> {
        let node = Group::Node;
        let gaps = [
            Gap::of(Group::Versions, "the version of the kubelet", &self.kubelet),
            Gap::of(node, "the taints of the Node", &self.uninitialized),
            Gap::of(node, "the addresses of the Node", &self.internal_ips),
        ];
        gaps.into_iter().flatten().collect()
    }
}

/// A release in an object of an API. Absent where it holds no text.
pub fn release(value: Option<&Value>) -> Seen<Release> {
    match value
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
    {
        None => Seen::Absent,
        Some(text) => match Release::parse(text) {
            Ok(release) => Seen::Known(release),
            Err(error) => Seen::failed(WhyKind::Malformed, error.to_string()),
        },
    }
}

/// The elements of a list somewhere in an object; none where there is no list.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// The text of a field; empty where it has none.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    let value = object.get(field).and_then(Value::as_str);
    value.unwrap_or_default()
}

fn uninitialized(node: &Value) -> Seen<Uninitialized> {
    let mut taints = list(node, "/spec/taints");
    let Some(taint) = taints.find(|taint| text(taint, "key") == UNINITIALIZED) else {
        return Seen::Absent;
    };
    let effect = text(taint, "effect").to_owned();
    let created = node.pointer("/metadata/creationTimestamp");
    let added = taint.get("timeAdded");
    let since = added.or(created.filter(|_| effect == "NoSchedule"));
    let since = since.and_then(Value::as_str).and_then(seconds);
    Seen::Known(Uninitialized { effect, since })
}

/// The time of a text of an API, in seconds since 1970.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}

fn internal_ips(node: &Value) -> Vec<IpAddr> {
    list(node, "/status/addresses")
        .filter(|address| text(address, "type") == "InternalIP")
        .filter_map(|address| text(address, "address").parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_taint_of_a_kubelet_is_as_old_as_the_node_and_that_of_the_cloud_provider_is_not() {
        let node = |taint: Value| {
            NodeDetails::of(&json!({
                "metadata": {"creationTimestamp": "2026-11-21T10:00:00Z"},
                "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}, taint]},
            }))
            .uninitialized
        };
        for (effect, added, since) in [
            ("NoSchedule", None, Some(1_795_255_200)),
            ("PreferNoSchedule", None, None),
            (
                "PreferNoSchedule",
                Some("2026-11-21T10:00:01Z"),
                Some(1_795_255_201),
            ),
            ("NoSchedule", Some("soon"), None),
        ] {
            let mut taint = json!({"key": UNINITIALIZED, "effect": effect});
            if let Some(added) = added {
                taint["timeAdded"] = json!(added);
            }
            let effect = effect.to_owned();
            assert_eq!(node(taint), Seen::Known(Uninitialized { effect, since }));
        }
        assert_eq!(node(json!({"key": "another"})), Seen::Absent);
    }

    #[test]
    fn of_the_addresses_only_those_inside_the_cluster_count() {
        let details = NodeDetails::of(&json!({"status": {
            "addresses": [
                {"type": "Hostname", "address": "n"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "172.19.106.159"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "none"},
            ],
            "nodeInfo": {"kubeletVersion": "master-head"},
        }}));
        let expected: Vec<IpAddr> = vec![
            "172.19.106.159".parse().unwrap(),
            "fd00::1".parse().unwrap(),
        ];
        assert_eq!(details.internal_ips, Seen::Known(expected));
        assert_eq!(details.gaps().len(), 1);
    }

    #[test]
    fn a_node_of_the_wrong_shape_tells_nothing_and_breaks_nothing() {
        for node in [
            json!(null),
            json!([]),
            json!({"spec": {"taints": "x"}, "status": {"addresses": {"a": 1}, "nodeInfo": []}}),
        ] {
            let details = NodeDetails::of(&node);
            assert_eq!(details.kubelet, Seen::Absent);
            assert_eq!(details.uninitialized, Seen::Absent);
            assert_eq!(details.internal_ips, Seen::Known(vec![]));
        }
    }
}
