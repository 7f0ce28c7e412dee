// SPDX-License-Identifier: Apache-2.0
//! What the settings of RKE2 and K3s mean, once all files are laid over one another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::facts::distribution::{Configured, Distribution, DistributionKind, StaticLabel};
use crate::sys::document::yaml::YamlValue;

/// What RKE2 and K3s take for true: their YAML is that of YAML 1.1.
const TRUE: [&str; 7] = ["true", "yes", "Yes", "YES", "on", "On", "ON"];

/// What RKE2 and K3s hand to the kubelet as it is.
pub(super) const KUBELET_ARGUMENT: &str = "kubelet-arg";

/// The kubelet's flag for the labels that it sets when it registers.
pub(super) const NODE_LABELS: &str = "node-labels";

/// The kubelet's flag for the name of its Node.
pub(super) const HOSTNAME_OVERRIDE: &str = "hostname-override";

/// The keys that are checked; all others, the cluster's token among them, are passed over.
pub(super) const USED: [&str; 7] = [
    "data-dir",
    "node-name",
    "with-node-id",
    "node-label",
    KUBELET_ARGUMENT,
    "cloud-provider-name",
    "cloud-provider-config",
];

/// The settings of several files by key: those that count, each with its file.
pub(super) type ReadSettings = BTreeMap<String, Vec<Configured<String>>>;

/// What the settings of all files come to.
pub(super) fn distribution(kind: DistributionKind, settings: &ReadSettings) -> Distribution {
    let last = |key: &str| {
        settings
            .get(key)
            .and_then(|values| values.last())
            .filter(|configured| !configured.value.is_empty())
    };
    let mut distribution = Distribution::new(kind);
    // RKE2 and K3s take a relative one from the folder they are started in, which no one knows.
    if let Some(data_dir) = last("data-dir").filter(|one| Path::new(&one.value).is_absolute()) {
        distribution.data_dir = PathBuf::from(&data_dir.value);
    }
    distribution.node_name = last("node-name").cloned();
    distribution.with_node_id = last("with-node-id").is_some_and(|one| is_true(&one.value));
    distribution.cloud_provider_name = last("cloud-provider-name").map(|one| one.value.clone());
    distribution.cloud_provider_config = last("cloud-provider-config").map(|one| Configured {
        value: PathBuf::from(&one.value),
        origin: one.origin.clone(),
    });
    for labels in settings.get("node-label").into_iter().flatten() {
        add_labels(&mut distribution.node_labels, &labels.value, &labels.origin);
    }
    // What is handed to the kubelet as it is counts more than what the distribution would hand to it.
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

fn is_true(text: &str) -> bool {
    TRUE.contains(&text)
}

/// A flag of the kubelet and its value, as `kubelet-arg` has them: `node-labels=a=b`, with dashes in front or without.
pub(super) fn kubelet_argument(text: &str) -> Option<(&str, &str)> {
    let (flag, value) = text.split_once('=')?;
    Some((flag.trim_start_matches('-'), value))
}

/// Adds `key=value,key=value`; a key that is there already gets the new value. A file may hold ten thousands.
pub(super) fn add_labels(labels: &mut Vec<StaticLabel>, text: &str, origin: &Path) {
    let pairs = text
        .split(',')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.trim(), value.trim()))
        .filter(|(key, _)| !key.is_empty());
    let new: BTreeMap<&str, &str> = pairs.collect();
    labels.retain(|label| !new.contains_key(label.key.as_str()));
    labels.extend(new.into_iter().map(|(key, value)| StaticLabel {
        key: key.to_owned(),
        value: value.to_owned(),
        origin: origin.to_owned(),
    }));
}

/// One value or a list of them, as text. The error is what is neither.
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

/// A setting with its file.
pub(super) fn configured(value: String, origin: &Path) -> Configured<String> {
    Configured {
        value,
        origin: origin.to_owned(),
    }
}
