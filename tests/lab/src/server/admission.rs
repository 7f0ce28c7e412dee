// SPDX-License-Identifier: Apache-2.0
//! The NodeRestriction admission plugin: what a kubelet may change on Nodes.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::resource::Kind;
use super::status::Failure;

/// Keys in the Kubernetes domains that a kubelet may set, change and remove.
const ALLOWED_KEYS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Domains whose every key, and every key of whose subdomains, a kubelet may write.
const ALLOWED_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what the plugin refuses; `old` is absent for a creation.
pub(crate) fn restrict_node(
    kind: &Kind,
    node: &str,
    name: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::not_admitted(kind, name, &why));
    if name != node {
        return refuse(format!(
            "node {node:?} is not allowed to modify node {name:?}"
        ));
    }
    let old_labels = old.and_then(|old| old["metadata"]["labels"].as_object());
    let forbidden = forbidden_changes(old_labels, new["metadata"]["labels"].as_object());
    let Some(old) = old else {
        if forbidden.is_empty() {
            return Ok(());
        }
        return refuse(format!(
            "is not allowed to set the following labels: {}",
            forbidden.join(", ")
        ));
    };
    if list(&old["spec"]["taints"]) != list(&new["spec"]["taints"]) {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if !forbidden.is_empty() {
        let keys = forbidden.join(", ");
        return refuse(format!("is not allowed to modify labels: {keys}"));
    }
    let owners = |node: &Value| list(&node["metadata"]["ownerReferences"]);
    if owners(old) != owners(new) {
        return refuse(format!(
            "node {node:?} is not allowed to modify ownerReferences"
        ));
    }
    Ok(())
}

/// A list, with absent, null and empty being the same.
fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn forbidden_changes(
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> Vec<String> {
    let empty = Map::new();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key) && !is_allowed(key))
        .cloned()
        .collect()
}

/// `node-restriction.kubernetes.io` needs no rule of its own: it is a Kubernetes domain that nothing allows.
fn is_allowed(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |root: &str| domain == root || domain.ends_with(&format!(".{root}"));
    !(within("kubernetes.io") || within("k8s.io"))
        || ALLOWED_KEYS.contains(&key)
        || ALLOWED_DOMAINS.iter().any(|root| within(root))
}
