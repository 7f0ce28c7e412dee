// SPDX-License-Identifier: Apache-2.0
//! Label keys, validated once when the configuration is read.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::names::is_dns_name;
use crate::facts::topology::{LabelValue, TWINS};

/// Label keys that describe the machine; the kubelet sets them.
const KUBELET_KEYS: [&str; 5] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Keys in a protected domain that NodeRestriction allows a kubelet to set.
const INSTANCE_TYPE_KEYS: [&str; 2] = [
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
];
/// Protected domains in which NodeRestriction allows a kubelet to set any key.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The domain that NodeRestriction forbids to every kubelet.
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";
/// The domains that Kubernetes reserves.
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

const PREFIX: &str = "has a prefix that is not a DNS subdomain (lower-case letters, digits, `-` and `.`, at most 253)";
const NAME: &str =
    "is not 1 to 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit";

/// A label key: a Kubernetes qualified name, with or without a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct LabelKey(Cow<'static, str>);

impl LabelKey {
    /// The default key of the label with the Harvester host.
    pub const HOST: Self = Self(Cow::Borrowed("topology.harvesterhci.io/host"));

    /// Parses a text by the rules of Kubernetes.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let name = match text.split_once('/') {
            Some((_, name)) if name.contains('/') => return Err("has more than one `/`"),
            Some((prefix, _)) if !is_dns_name(prefix) => return Err(PREFIX),
            Some((_, name)) => name,
            None => text,
        };
        // The same rule as that of a value.
        let checked = LabelValue::parse(name).map_err(|_| NAME);
        checked.map(|_| Self(Cow::Owned(text.to_owned())))
    }

    /// Returns the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that the agent can write this key to its Node with the credential of the kubelet.
    pub fn check_writable(&self) -> Result<(), &'static str> {
        let key = self.as_str();
        let Some((prefix, _)) = key.split_once('/') else {
            return Ok(());
        };
        let is_in = |domains: &[&str]| domains.iter().any(|domain| is_within(prefix, domain));
        if TWINS.iter().any(|(new, beta)| [*new, *beta].contains(&key)) {
            Err("is a topology key, which the agent writes itself")
        } else if KUBELET_KEYS.contains(&key) {
            Err("describes the guest OS and is set by its kubelet")
        } else if is_within(prefix, RESTRICTED_DOMAIN) {
            Err("is in a domain that NodeRestriction reserves for administrators")
        } else if is_in(&KUBERNETES_DOMAINS) && !is_in(&KUBELET_DOMAINS) && !self.is_instance_type()
        {
            Err(
                "is in a Kubernetes domain in which NodeRestriction does not let a kubelet set this key",
            )
        } else {
            Ok(())
        }
    }

    /// Reports whether this is an instance type key, which cloud controllers write too.
    pub fn is_instance_type(&self) -> bool {
        INSTANCE_TYPE_KEYS.contains(&self.as_str())
    }
}

impl TryFrom<String> for LabelKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::parse(&text)
    }
}

/// A label key that the agent can write to its Node, as a file states it.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct WritableKey(pub(super) LabelKey);

impl TryFrom<String> for WritableKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let key = LabelKey::parse(&text)?;
        key.check_writable().map(|()| Self(key))
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Reports whether `name` is `domain` or one of its subdomains.
fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_key_is_valid() {
        assert_eq!(LabelKey::parse(LabelKey::HOST.as_str()), Ok(LabelKey::HOST));
        assert_eq!(LabelKey::HOST.check_writable(), Ok(()));
    }
}
