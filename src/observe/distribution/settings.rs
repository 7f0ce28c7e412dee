// SPDX-License-Identifier: Apache-2.0
//! Interprets the merged settings of RKE2 and K3s.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::facts::distribution::{Configured, Distribution, DistributionKind, StaticLabel};
use crate::sys::document::yaml::YamlValue;

/// The values that RKE2 and K3s read as true: they use YAML 1.1.
const TRUE: [&str; 7] = ["true", "yes", "Yes", "YES", "on", "On", "ON"];

/// The key for flags that RKE2 and K3s pass to the kubelet unchanged.
pub(super) const KUBELET_ARGUMENT: &str = "kubelet-arg";

/// The kubelet flag for the labels that it sets at registration.
const NODE_LABELS: &str = "node-labels";

/// The kubelet flag for the name of its Node.
const HOSTNAME_OVERRIDE: &str = "hostname-override";

/// The keys that are read; all others, such as the cluster token, are ignored.
pub(super) const USED: [&str; 7] = [
    "data-dir",
    "node-name",
    "with-node-id",
    "node-label",
    KUBELET_ARGUMENT,
    "cloud-provider-name",
    "cloud-provider-config",
];

/// The settings in effect by key, each value with its file.
pub(super) type ReadSettings = BTreeMap<String, Vec<Configured<String>>>;

/// Converts the merged settings of all files.
pub(super) fn distribution(kind: DistributionKind, settings: &ReadSettings) -> Distribution {
    let last = |key: &str| {
        settings
            .get(key)
            .and_then(|values| values.last())
            .filter(|configured| !configured.value.is_empty())
    };
    let mut distribution = Distribution::new(kind);
    // RKE2 and K3s resolve a relative path against their working directory, which is unknown.
    if let Some(data_dir) = last("data-dir").filter(|one| Path::new(&one.value).is_absolute()) {
        distribution.data_dir = PathBuf::from(&data_dir.value);
    }
    distribution.node_name = last("node-name").cloned();
    distribution.with_node_id = last("with-node-id").is_some_and(|one| TRUE.contains(&&*one.value));
    distribution.cloud_provider_name = last("cloud-provider-name").map(|one| one.value.clone());
    distribution.cloud_provider_config = last("cloud-provider-config").map(|one| Configured {
        value: PathBuf::from(&one.value),
        origin: one.origin.clone(),
    });
    for labels in settings.get("node-label").into_iter().flatten() {
        add_labels(&mut distribution.node_labels, &labels.value, &labels.origin);
    }
    // Flags that are passed to the kubelet unchanged take precedence over those that the distribution generates.
    for argument in settings.get(KUBELET_ARGUMENT).into_iter().flatten() {
        match kubelet_argument(&argument.value) {
            Some((NODE_LABELS, labels)) => {
                add_labels(&mut distribution.node_labels, labels, &argument.origin);
            }
            Some((HOSTNAME_OVERRIDE, name)) => {
                distribution.node_name = Some(configured(name.to_owned(), &argument.origin));
            }
            _ => {}
        }
    }
    distribution
}

/// Parses a kubelet flag and its value from `kubelet-arg`: `node-labels=a=b`, with or without leading dashes.
fn kubelet_argument(text: &str) -> Option<(&str, &str)> {
    let (flag, value) = text.split_once('=')?;
    Some((flag.trim_start_matches('-'), value))
}

/// Adds `key=value,key=value`; an existing key gets the new value. A file may hold tens of thousands of labels.
fn add_labels(labels: &mut Vec<StaticLabel>, text: &str, origin: &Path) {
    let pairs = text
        .split(',')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .filter(|(key, _)| !key.is_empty());
    let mut new = BTreeMap::new();
    new.extend(pairs);
    labels.retain(|label| !new.contains_key(label.key.as_str()));
    labels.extend(new.into_iter().map(|(key, value)| StaticLabel {
        key: key.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    }));
}

/// Converts one value or a list of values to text. The error is the value of another kind.
pub(super) fn scalars(value: &YamlValue) -> Result<Vec<String>, &YamlValue> {
    let scalar = |value: &YamlValue| match value {
        YamlValue::Text(text) => Some(text.to_string()),
        YamlValue::Number(number) => Some(number.clone()),
        YamlValue::Bool(value) => Some(value.to_string()),
        YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
    };
    match value {
        YamlValue::Null => Ok(Vec::new()),
        YamlValue::List(list) => list.iter().map(|item| scalar(item).ok_or(item)).collect(),
        other => scalar(other).map(|text| vec![text]).ok_or(other),
    }
}

/// Creates a setting with its file.
pub(super) fn configured(value: String, origin: &Path) -> Configured<String> {
    Configured {
        value,
        origin: origin.to_owned(),
    }
}
