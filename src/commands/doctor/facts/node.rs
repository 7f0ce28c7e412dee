// SPDX-License-Identifier: Apache-2.0
//! The data of our Node that only `doctor` reads.

use core::net::IpAddr;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::facts::release::Release;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::{
    Leading, StringMap, address, address_type, addresses, capacity, creation_timestamp,
    kubelet_version, taint_effect, taint_key, taint_time, taints,
};

/// The taint of a Node that a cloud provider has not initialized, or must initialize again.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The maximum number of taints of a Node; typically some.
const TAINTS_MAX: usize = 256;

/// The maximum number of addresses of a Node; there are about three.
const ADDRESSES_MAX: usize = 256;

facts! {
    /// The data of the Node that only `doctor` reads.
    #[derive(Deserialize)]
    #[serde(from = "WireGuestNode")]
    NodeDetails {
        /// `status.nodeInfo.kubeletVersion`.
        kubelet: Release, Versions, "the version of the kubelet";
        /// The taint of a Node that no cloud provider has initialized. Absent if it has no such taint.
        uninitialized: Uninitialized, Node, "the taints of the Node";
        /// The addresses in `status.addresses` with type `InternalIP`; invalid ones are omitted.
        internal_ips: Vec<IpAddr>, Node, "the addresses of the Node";
        /// The CPUs in `status.capacity`.
        cpus: u64, Node, "the CPUs of the Node";
        /// The memory in `status.capacity`, in KiB.
        memory_kib: u64, Node, "the memory of the Node";
        /// The creation time, in seconds since 1970.
        created: i64, Node, "the creation time of the Node";
    }
}

/// The taint `node.cloudprovider.kubernetes.io/uninitialized`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uninitialized {
    /// The effect: `NoSchedule` from a kubelet that registers, `PreferNoSchedule` from Harvester's cloud provider if it must read
    /// region and zone again.
    pub effect: String,
    /// The time when it was added, in seconds since 1970; for the taint of a kubelet that registers, the creation time of the
    /// Node.
    pub since: Option<i64>,
}

#[derive(Deserialize)]
struct WireGuestNode {
    #[serde(default)]
    metadata: WireGuestNodeMetadata,
    #[serde(default)]
    spec: WireGuestNodeSpec,
    #[serde(default)]
    status: WireGuestNodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireGuestNodeMetadata {
    #[serde(default, deserialize_with = "creation_timestamp")]
    creation_timestamp: Option<String>,
}

#[derive(Deserialize, Default)]
struct WireGuestNodeSpec {
    #[serde(default, deserialize_with = "taints")]
    taints: Leading<WireGuestNodeTaint, TAINTS_MAX>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireGuestNodeTaint {
    #[serde(default, deserialize_with = "taint_key")]
    key: Option<String>,
    #[serde(default, deserialize_with = "taint_effect")]
    effect: Option<String>,
    #[serde(default, deserialize_with = "taint_time")]
    time_added: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireGuestNodeStatus {
    #[serde(default, deserialize_with = "addresses")]
    addresses: Leading<WireGuestNodeAddress, ADDRESSES_MAX>,
    #[serde(default, deserialize_with = "capacity")]
    capacity: StringMap,
    #[serde(default)]
    node_info: WireGuestNodeInfo,
}

#[derive(Deserialize)]
struct WireGuestNodeAddress {
    #[serde(rename = "type", default, deserialize_with = "address_type")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "address")]
    address: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireGuestNodeInfo {
    #[serde(default, deserialize_with = "kubelet_version")]
    kubelet_version: Option<String>,
}

impl From<WireGuestNode> for NodeDetails {
    fn from(wire: WireGuestNode) -> Self {
        let WireGuestNode {
            metadata,
            spec,
            status,
        } = wire;
        let mut taints = spec.taints.0.into_iter();
        let taint = taints.find(|taint| taint.key.as_deref() == Some(UNINITIALIZED));
        let created = metadata.creation_timestamp;
        let registered = created.as_deref().and_then(seconds);
        let counted = |resource: &str, unit: &str| {
            let text = status.capacity.get(resource);
            let number = text.and_then(|text| text.strip_suffix(unit)?.parse().ok());
            number.map_or(Fact::Absent, Fact::Known)
        };
        // The kubelet writes both without another unit.
        let (cpus, memory_kib) = (counted("cpu", ""), counted("memory", "Ki"));
        let addresses = status.addresses.0.into_iter();
        let internal = addresses.filter(|address| address.kind.as_deref() == Some("InternalIP"));
        let internal = internal.filter_map(|address| address.address?.parse().ok());
        Self {
            kubelet: release(status.node_info.kubelet_version.as_deref()),
            uninitialized: taint.map_or(Fact::Absent, |taint| {
                Fact::Known(uninitialized(taint, created))
            }),
            internal_ips: Fact::Known(internal.collect()),
            cpus,
            memory_kib,
            created: registered.map_or(Fact::Absent, Fact::Known),
        }
    }
}

/// Parses the release in a field of an API object. Absent if the field is missing or empty.
pub fn release(text: Option<&str>) -> Fact<Release> {
    match text.filter(|text| !text.is_empty()) {
        None => Fact::Absent,
        Some(text) => match Release::parse(text) {
            Ok(release) => Fact::Known(release),
            Err(error) => Fact::failed(UnavailableKind::Malformed, error.to_string()),
        },
    }
}

fn uninitialized(taint: WireGuestNodeTaint, created: Option<String>) -> Uninitialized {
    let effect = taint.effect.unwrap_or_default();
    let added = taint.time_added;
    let since = added.or(created.filter(|_| effect == "NoSchedule"));
    let since = since.as_deref().and_then(seconds);
    Uninitialized { effect, since }
}

/// Parses the time in a field of an API object, in seconds since 1970.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(time.unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn details(node: Value) -> NodeDetails {
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn the_taint_of_a_kubelet_is_as_old_as_the_node_and_that_of_the_cloud_provider_is_not() {
        let node = |taint: Value| {
            details(json!({
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
            assert_eq!(node(taint), Fact::Known(Uninitialized { effect, since }));
        }
        assert_eq!(node(json!({"key": "another"})), Fact::Absent);
    }

    #[test]
    fn of_the_addresses_only_those_inside_the_cluster_count() {
        let details = details(json!({"status": {
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
        assert_eq!(details.internal_ips, Fact::Known(expected));
        assert_eq!(details.gaps().len(), 1);
    }

    #[test]
    fn a_node_without_these_fields_reports_nothing() {
        for node in [
            json!({}),
            json!({"spec": {"taints": null}, "status": {"addresses": null, "nodeInfo": {}}}),
        ] {
            let details = details(node);
            assert_eq!(details.kubelet, Fact::Absent);
            assert_eq!(details.uninitialized, Fact::Absent);
            assert_eq!(details.internal_ips, Fact::Known(vec![]));
        }
    }

    #[test]
    fn a_long_text_or_list_makes_no_node_unreadable() {
        let mut taints = vec![
            json!({"key": UNINITIALIZED, "effect": "NoSchedule", "timeAdded": "x".repeat(300)}),
            json!({"key": "k".repeat(318), "effect": "x".repeat(300)}),
        ];
        taints.resize(300, json!({}));
        let details = details(json!({
            "spec": {"taints": taints},
            "status": {
                "addresses": vec![json!({"type": "InternalIP", "address": "192.0.2.1"}); 300],
                "nodeInfo": {"kubeletVersion": format!("v1.36.1{}", "x".repeat(300))},
            },
        }));
        let taint = details.uninitialized.known().unwrap();
        assert_eq!((taint.effect.as_str(), taint.since), ("NoSchedule", None));
        assert_eq!(details.internal_ips.known().unwrap().len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_node_of_the_wrong_shape_is_refused_with_its_field() {
        for (node, said) in [
            (json!({"spec": {"taints": "x"}}), "`spec.taints`: "),
            (
                json!({"status": {"addresses": {"a": 1}}}),
                "`status.addresses`: ",
            ),
        ] {
            let error = serde_json::from_value::<NodeDetails>(node)
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
