// SPDX-License-Identifier: Apache-2.0
//! Topology: label keys, label values, and the region and zone of a host.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names::{NotAName, object_names};

/// The zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The region of a Node.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The deprecated beta key of [`ZONE`]; cloud controllers treat it as the source of the newer key whenever it exists
/// (`k8s.io/cloud-provider/controllers/node`, `reconcileNodeLabels`).
pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
/// The deprecated beta key of [`REGION`].
pub const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
/// The hostname of a Node. On a VMI, it is the annotation with the host for which region and zone were written.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Each topology key with its deprecated beta key.
pub const TWINS: [(&str, &str); 2] = [(REGION, REGION_BETA), (ZONE, ZONE_BETA)];

/// Reports whether this is the key of a region or zone, also a deprecated one.
pub fn is_topology_key(key: &str) -> bool {
    TWINS
        .iter()
        .any(|(key_now, beta)| [*key_now, *beta].contains(&key))
}

/// The maximum length of a label value in Kubernetes.
const LABEL_VALUE_MAX: usize = 63;

/// The rule of [`is_label_value`].
const LABEL_VALUE: &str =
    "1 to 63 letters, digits, `-`, `_`, `.`, beginning and ending with a letter or digit";

object_names! {
    /// A non-empty label value that is valid in Kubernetes.
    LabelValue = "label value", is_label_value, LABEL_VALUE;
}

/// Reports whether the text is valid by the rules of `k8s.io/apimachinery/pkg/util/validation.IsValidLabelValue`, and not empty.
fn is_label_value(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_VALUE_MAX
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(is_inner)
}

/// A value that is not a valid label value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IllegalValue {
    /// The key.
    pub key: String,
    /// The value as read, not escaped.
    pub value: String,
    /// The violated rule.
    pub source: NotAName,
}

/// The region and zone of a physical host according to one source, also as a table of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Topology {
    /// The region.
    pub region: Option<LabelValue>,
    /// The zone.
    pub zone: Option<LabelValue>,
}

impl Topology {
    /// Reports whether both are missing.
    pub fn is_empty(&self) -> bool {
        self.region.is_none() && self.zone.is_none()
    }

    /// Returns the value for [`REGION`] or [`ZONE`].
    pub fn value(&self, key: &str) -> Option<&LabelValue> {
        match key {
            REGION => self.region.as_ref(),
            ZONE => self.zone.as_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |value: &Option<LabelValue>| value.as_ref().map_or("-", LabelValue::as_str).to_owned();
        write!(formatter, "{}/{}", text(&self.region), text(&self.zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_what_kubernetes_accepts() {
        let longest = "a".repeat(63);
        for good in ["a", "rack-a", "EU_1.b", "9", longest.as_str()] {
            assert!(LabelValue::parse(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in [
            "",
            "-a",
            "a-",
            "rack a",
            "räck",
            "a/b",
            "a\n",
            "\u{1b}[31m",
            too_long.as_str(),
        ] {
            assert!(LabelValue::parse(bad).is_err(), "{bad:?}");
        }
    }
}
