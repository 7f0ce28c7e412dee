// SPDX-License-Identifier: Apache-2.0
//! Kubernetes names and label keys, validated once when the configuration is read.

use std::borrow::Cow;
use std::fmt;

/// The maximum length of a DNS-1123 subdomain: object names and the prefix of a label key.
const MAX_SUBDOMAIN: usize = 253;
/// The maximum length of a DNS-1123 label, and of the name part or the value of a label.
const MAX_LABEL: usize = 63;

/// The topology keys. The agent writes them itself, so they are not allowed as extra labels.
const TOPOLOGY_KEYS: [&str; 4] = [
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];
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

/// A label key: a Kubernetes qualified name, with or without a prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(Cow<'static, str>);

/// The reason why a text is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text has more than one `/`.
    #[error("has more than one `/`")]
    ManySlashes,
    /// The part before the `/` is not valid.
    #[error(
        "has a prefix that is not a DNS subdomain (lower-case letters, digits, `-` and `.`, at most 253)"
    )]
    Prefix,
    /// The part of a label key after the `/`, or a label value, is not valid.
    #[error(
        "is not 1 to 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit"
    )]
    Qualified,
    /// The name of an object is not valid.
    #[error("is not a DNS subdomain (lower-case letters, digits, `-` and `.`, at most 253)")]
    Subdomain,
    /// The name of a namespace is not valid.
    #[error("is not a DNS label (lower-case letters, digits and `-`, at most 63)")]
    DnsLabel,
    /// The name of a ConfigMap has no namespace.
    #[error("is not `namespace/name`")]
    Unqualified,
}

/// The reason why the agent cannot write a label key to its Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GuestKeyError {
    /// The agent writes the key from the region and zone of the host.
    #[error("is a topology key, which the agent writes itself")]
    Topology,
    /// The kubelet writes the key.
    #[error("describes the guest OS and is set by its kubelet")]
    Kubelet,
    /// NodeRestriction forbids the domain to every kubelet.
    #[error("is in a domain that NodeRestriction reserves for administrators")]
    Restricted,
    /// NodeRestriction allows a kubelet to set only some keys in these domains.
    #[error(
        "is in a Kubernetes domain in which NodeRestriction does not let a kubelet set this key"
    )]
    KubernetesDomain,
}

impl LabelKey {
    /// The default key of the label with the Harvester host.
    pub const HOST: Self = Self(Cow::Borrowed("topology.harvesterhci.io/host"));

    /// Parses a text by the rules of Kubernetes.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let name = match text.split_once('/') {
            Some((_, name)) if name.contains('/') => return Err(NameError::ManySlashes),
            Some((prefix, _)) if !is_subdomain(prefix) => return Err(NameError::Prefix),
            Some((_, name)) => name,
            None if text.is_empty() => return Err(NameError::Empty),
            None => text,
        };
        if is_qualified(name) {
            Ok(Self(Cow::Owned(text.to_owned())))
        } else {
            Err(NameError::Qualified)
        }
    }

    /// Returns the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part before the `/`, or `None` if there is none.
    pub fn prefix(&self) -> Option<&str> {
        self.0.split_once('/').map(|(prefix, _)| prefix)
    }

    /// Checks that the agent can write this key to its Node with the credential of the kubelet.
    pub fn check_writable(&self) -> Result<(), GuestKeyError> {
        let key = self.as_str();
        let Some(prefix) = self.prefix() else {
            return Ok(());
        };
        if TOPOLOGY_KEYS.contains(&key) {
            Err(GuestKeyError::Topology)
        } else if KUBELET_KEYS.contains(&key) {
            Err(GuestKeyError::Kubelet)
        } else if is_within(prefix, RESTRICTED_DOMAIN) {
            Err(GuestKeyError::Restricted)
        } else if self.is_instance_type()
            || KUBELET_DOMAINS
                .iter()
                .any(|domain| is_within(prefix, domain))
            || !KUBERNETES_DOMAINS
                .iter()
                .any(|domain| is_within(prefix, domain))
        {
            Ok(())
        } else {
            Err(GuestKeyError::KubernetesDomain)
        }
    }

    /// Reports whether this is an instance type key, which cloud controllers write too.
    pub fn is_instance_type(&self) -> bool {
        INSTANCE_TYPE_KEYS.contains(&self.as_str())
    }
}

/// The name of a Kubernetes object: a DNS subdomain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Cow<'static, str>);

impl ObjectName {
    /// Parses a text by the rules of Kubernetes.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            "" => Err(NameError::Empty),
            _ if is_subdomain(text) => Ok(Self(Cow::Owned(text.to_owned()))),
            _ => Err(NameError::Subdomain),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a namespace: a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(Cow<'static, str>);

impl NamespaceName {
    /// Parses a text by the rules of Kubernetes.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            "" => Err(NameError::Empty),
            _ if is_dns_label(text) => Ok(Self(Cow::Owned(text.to_owned()))),
            _ => Err(NameError::DnsLabel),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A ConfigMap in Harvester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMapName {
    /// The namespace.
    pub namespace: NamespaceName,
    /// The name in the namespace.
    pub name: ObjectName,
}

impl ConfigMapName {
    /// The default ConfigMap; everyone can read its namespace.
    pub const TOPOLOGY: Self = Self {
        namespace: NamespaceName(Cow::Borrowed("harvester-public")),
        name: ObjectName(Cow::Borrowed("topology")),
    };

    /// Parses `namespace/name`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (namespace, name) = text.split_once('/').ok_or(NameError::Unqualified)?;
        Ok(Self {
            namespace: NamespaceName::parse(namespace)?,
            name: ObjectName::parse(name)?,
        })
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Reports whether `name` is `domain` or one of its subdomains.
fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Reports whether a text begins and ends with a letter or digit, and has only those and `inner` in between.
fn is_framed(text: &str, letter: fn(&u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(letter)
        && bytes.last().is_some_and(letter)
        && bytes
            .iter()
            .all(|byte| letter(byte) || inner.contains(byte))
}

fn is_lower(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_qualified(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_framed(text, u8::is_ascii_alphanumeric, b"-_.")
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_framed(text, is_lower, b"-")
}

/// Reports whether a text is a DNS subdomain. Kubernetes limits the length of the whole, not of each label.
fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN
        && text
            .split('.')
            .all(|label| is_framed(label, is_lower, b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_follow_the_rules_of_kubernetes() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        let wide = format!("{}/x", "a".repeat(253));
        let wider = format!("{}/x", "a".repeat(254));
        for good in ["rack", "A_b.c-9", "example.com/Rack", "a/b", &long, &wide] {
            assert_eq!(LabelKey::parse(good).unwrap().as_str(), good);
        }
        for (bad, why) in [
            ("", NameError::Empty),
            ("a/b/c", NameError::ManySlashes),
            ("/b", NameError::Prefix),
            ("Example.com/b", NameError::Prefix),
            ("a..b/c", NameError::Prefix),
            ("-a/c", NameError::Prefix),
            (wider.as_str(), NameError::Prefix),
            ("a/", NameError::Qualified),
            ("_rack", NameError::Qualified),
            ("rack.", NameError::Qualified),
            ("r\u{e4}ck", NameError::Qualified),
            ("rack\n", NameError::Qualified),
            (longer.as_str(), NameError::Qualified),
        ] {
            assert_eq!(LabelKey::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn only_keys_that_node_restriction_allows_are_writable() {
        for (key, expected) in [
            ("rack", Ok(())),
            ("topology.harvesterhci.io/host", Ok(())),
            ("notkubernetes.io/x", Ok(())),
            ("kubernetes.io.example.com/x", Ok(())),
            ("node.kubernetes.io/x", Ok(())),
            ("a.kubelet.kubernetes.io/x", Ok(())),
            ("beta.kubernetes.io/instance-type", Ok(())),
            ("topology.kubernetes.io/zone", Err(GuestKeyError::Topology)),
            (
                "failure-domain.beta.kubernetes.io/region",
                Err(GuestKeyError::Topology),
            ),
            ("kubernetes.io/hostname", Err(GuestKeyError::Kubelet)),
            ("beta.kubernetes.io/arch", Err(GuestKeyError::Kubelet)),
            (
                "node-restriction.kubernetes.io/x",
                Err(GuestKeyError::Restricted),
            ),
            (
                "a.node-restriction.kubernetes.io/x",
                Err(GuestKeyError::Restricted),
            ),
            ("kubernetes.io/x", Err(GuestKeyError::KubernetesDomain)),
            (
                "node-role.kubernetes.io/worker",
                Err(GuestKeyError::KubernetesDomain),
            ),
            (
                "xnode.kubernetes.io/x",
                Err(GuestKeyError::KubernetesDomain),
            ),
            ("k8s.io/x", Err(GuestKeyError::KubernetesDomain)),
            ("a.k8s.io/x", Err(GuestKeyError::KubernetesDomain)),
        ] {
            assert_eq!(
                LabelKey::parse(key).unwrap().check_writable(),
                expected,
                "{key}"
            );
        }
    }

    #[test]
    fn the_built_in_names_are_valid() {
        assert_eq!(LabelKey::parse(LabelKey::HOST.as_str()), Ok(LabelKey::HOST));
        assert_eq!(LabelKey::HOST.check_writable(), Ok(()));
        let written = ConfigMapName::TOPOLOGY.to_string();
        assert_eq!(ConfigMapName::parse(&written), Ok(ConfigMapName::TOPOLOGY));
    }
}
