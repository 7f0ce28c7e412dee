// SPDX-License-Identifier: Apache-2.0
//! Names of machines and of service accounts, and the rules by which KubeVirt, Rancher and the kubelet derive one name from
//! another.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The namespace of the firmware UUID that KubeVirt before 1.6 derives from the name of a VM
/// (`pkg/virt-controller/watch/vm/firmware.go`, `CalculateLegacyUUID`).
const FIRMWARE_UUID_NAMESPACE: Uuid = Uuid::from_u128(0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895);

/// The maximum length of a DNS label, and so of a hostname that KubeVirt sets (RFC 1123).
const DNS_LABEL_MAX: usize = 63;

/// The maximum length of a DNS name, and so of an object name that must be one.
const DNS_NAME_MAX: usize = 253;

/// The limits that Rancher accepts for `hostnameLengthLimit`.
const RANCHER_LIMITS: std::ops::RangeInclusive<usize> = 10..=63;

/// The number of hexadecimal digits of the node ID of K3s (`--with-node-id`).
const NODE_ID_DIGITS: usize = 8;

/// The error for text that is not a name of the requested kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind}: {rule}")]
pub struct NotAName {
    pub(super) kind: &'static str,
    pub(super) rule: &'static str,
}

/// The rule of [`is_dns_name`].
const DNS_NAME: &str = "lower-case letters, digits, `-` and `.`, at most 253 characters";
/// The rule of [`is_dns_label`].
const DNS_LABEL: &str = "lower-case letters, digits and `-`, at most 63 characters";

/// Declares types of names and values, each with its description in errors and its rule.
macro_rules! object_names {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $is_name:path, $rule:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses a name by the rules of Kubernetes.
            pub fn parse(text: &str) -> Result<Self, NotAName> {
                let name = $is_name(text).then(|| Self(text.to_owned()));
                name.ok_or(NotAName { kind: $kind, rule: $rule })
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::parse(&text).map_err(|error| format!("is {error}"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    )*};
}

pub(super) use object_names;

object_names! {
    /// The name of a Harvester VM. Its VirtualMachineInstance has the same name.
    VmName = "VM name", is_dns_name, DNS_NAME;
    /// The name of a Node of the guest cluster.
    NodeName = "node name", is_dns_name, DNS_NAME;
    /// The name of a physical host: a Node of the Harvester cluster.
    HostName = "name of a Harvester host", is_dns_name, DNS_NAME;
    /// The name of a namespace of the Harvester cluster.
    Namespace = "namespace", is_dns_label, DNS_LABEL;
    /// The name of a service account, unique within its namespace.
    AccountName = "service account name", is_dns_name, DNS_NAME;
    /// The name of a Secret, unique within its namespace.
    SecretName = "name of a Secret", is_dns_name, DNS_NAME;
    /// A ConfigMap of the Harvester cluster.
    ConfigMapName = "ConfigMap", is_namespaced_name, "`namespace/name`, a DNS label and a DNS subdomain";
}

impl Namespace {
    /// Returns the namespace of a kubeconfig that names none, as in Harvester's cloud provider.
    pub fn of_kubeconfig() -> Self {
        Self("default".to_owned())
    }
}

impl ConfigMapName {
    /// Returns the default ConfigMap with the topology of the hosts. Everyone can read its namespace.
    pub fn topology() -> Self {
        Self("harvester-public/topology".to_owned())
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').unwrap_or_default().0
    }

    /// Returns the name in the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').unwrap_or_default().1
    }
}

/// The Secret of a service account's token without expiry. Kubernetes invalidates such a token by a label of its Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSecret {
    /// The namespace.
    pub namespace: Namespace,
    /// The name within the namespace.
    pub name: SecretName,
}

/// The prefix of the user name of every service account.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A service account of the Harvester cluster, formatted as `NAMESPACE:NAME`, as in `kubectl --serviceaccount`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The namespace.
    pub namespace: Namespace,
    /// The name within the namespace.
    pub name: AccountName,
}

impl ServiceAccount {
    /// Parses `NAMESPACE:NAME`.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let error = NotAName {
            kind: "service account",
            rule: "NAMESPACE:NAME",
        };
        let (namespace, name) = text.split_once(':').ok_or(error)?;
        Ok(Self {
            namespace: Namespace::parse(namespace)?,
            name: AccountName::parse(name)?,
        })
    }

    /// Parses the user name of a service account: `system:serviceaccount:NAMESPACE:NAME`.
    pub fn of_user(user: &str) -> Option<Self> {
        Self::parse(user.strip_prefix(SERVICE_ACCOUNT)?).ok()
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.namespace, self.name)
    }
}

/// Reports whether the text is a DNS-1123 subdomain. Kubernetes limits the length of the whole, not of each label.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= DNS_NAME_MAX && text.split('.').all(is_lower_case_label)
}

/// Reports whether the text is a DNS-1123 label.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= DNS_LABEL_MAX && is_lower_case_label(text)
}

fn is_namespaced_name(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(namespace, name)| is_dns_label(namespace) && is_dns_name(name))
}

fn is_lower_case_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}

/// Converts a hostname for comparison: without a trailing dot, in lower case, up to the first dot.
pub fn short(name: &str) -> String {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.split('.').next().unwrap_or(name).to_ascii_lowercase()
}

/// Returns the hostname that KubeVirt sets for a VM without `spec.hostname`: the name up to its first dot, truncated to 63
/// characters (`pkg/util/net/dns/sanitize.go`).
pub fn kubevirt_hostname(vm: &VmName) -> String {
    let first = vm.as_str().split('.').next().unwrap_or_default();
    first
        .chars()
        .take(DNS_LABEL_MAX)
        .collect::<String>()
        .trim_end_matches('-')
        .to_owned()
}

/// Returns the line of the text of `/etc/hostname` that has an effect (hostname(5)).
pub fn effective_hostname(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reports whether the text of `/etc/hostname` is a template that systemd replaces on each machine (hostname(5)): `?` by a
/// hexadecimal digit, `$` by a word.
pub fn is_hostname_template(text: &str) -> bool {
    text.contains(['?', '$'])
}

/// Reports whether systemd can have made a hostname from a template.
pub fn is_made_from(hostname: &str, template: &str) -> bool {
    // Whether the hostname up to each position fits the template so far.
    let mut fits = vec![true];
    fits.resize(hostname.len() + 1, false);
    for token in template.bytes() {
        let mut is_before = false;
        let mut next = vec![false];
        for (byte, was) in hostname.bytes().zip(&fits) {
            let is_open = *was || token == b'$' && is_before;
            is_before = is_open
                && match token {
                    b'?' => byte.is_ascii_hexdigit(),
                    b'$' => byte.is_ascii_alphanumeric() || byte == b'-',
                    _ => byte.eq_ignore_ascii_case(&token),
                };
            next.push(is_before);
        }
        fits = next;
    }
    is_hostname_template(template) && fits.last() == Some(&true)
}

/// Returns the firmware UUID that KubeVirt before 1.6 set for every VM with this name.
///
/// It proves a name only if it equals the UUID of this machine: newer VMs have a random one, and VMs with the same name in two
/// namespaces have the same UUID.
pub fn firmware_uuid(vm: &str) -> Uuid {
    Uuid::new_v5(&FIRMWARE_UUID_NAMESPACE, vm.as_bytes())
}

/// Truncates a name to `limit` characters like Rancher (`SafeConcatName`): the truncated name, `-`, and the start of its SHA-256.
pub fn rancher_truncation(name: &str, limit: usize) -> Option<String> {
    if name.len() <= limit || !name.is_ascii() {
        return None;
    }
    let hash: String = digest(&SHA256, name.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // The format is `<cut>-<5 digits>`. If the truncated name does not end in a letter or digit, one more digit replaces its last
    // character.
    let cut = limit.checked_sub(6)?;
    let last = name.as_bytes().get(cut.checked_sub(1)?)?;
    let (cut, digits) = if last.is_ascii_lowercase() || last.is_ascii_digit() {
        (cut, 5)
    } else {
        (cut.checked_sub(1)?, 6)
    };
    Some(format!("{}-{}", name.get(..cut)?, hash.get(..digits)?))
}

/// Returns the limit at which Rancher truncates `vm` to `hostname`, if there is one.
pub fn rancher_limit(vm: &VmName, hostname: &str) -> Option<usize> {
    RANCHER_LIMITS
        .into_iter()
        .find(|limit| rancher_truncation(vm.as_str(), *limit).as_deref() == Some(hostname))
}

/// Returns the name without the node ID of K3s, if `name` ends in one (`-` and eight hexadecimal digits).
pub fn without_node_id(name: &str) -> Option<&str> {
    let (base, id) = name.rsplit_once('-')?;
    let is_id = id.len() == NODE_ID_DIGITS
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_id && !base.is_empty()).then_some(base)
}

/// The kinds of names that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NameKind {
    /// The hostname of the kernel.
    #[serde(rename = "hostname")]
    KernelHostname,
    /// `/etc/hostname`, which sets the hostname of the kernel at the next boot.
    #[serde(rename = "static-hostname")]
    StaticHostname,
    /// The node name of the kubelet.
    #[serde(rename = "node-name")]
    NodeName,
}

impl NameKind {
    /// Returns the name used in texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KernelHostname => "hostname",
            Self::StaticHostname => "static hostname",
            Self::NodeName => "node name",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_uuid_of_a_name_is_what_kubevirt_gives() {
        for (name, uuid) in [
            ("pool1-abcde", "e933dfba-2423-5f1e-a6ec-2e465bb621cf"),
            ("vm-one", "5d94c83c-7ea7-505c-b992-330bfaaaeae0"),
            ("testvm", "5a9fc181-957e-5c32-9e5a-2de5e9673531"),
            ("pinned-to-host", "eb76ee29-5ae6-57ad-b9c8-b238feb1e709"),
        ] {
            assert_eq!(firmware_uuid(name).to_string(), uuid, "{name}");
        }
    }

    #[test]
    fn a_service_account_is_distinguished_from_any_other_user() {
        let account = ServiceAccount::of_user("system:serviceaccount:default:gc8").unwrap();
        assert_eq!(account.to_string(), "default:gc8");
        assert_eq!(ServiceAccount::parse("default:gc8"), Ok(account));
        for user in [
            "gc8",
            "system:node:a",
            "system:serviceaccount:default",
            "system:serviceaccount:default:",
            "system:serviceaccount:default:a\"b",
            "system:serviceaccount:default:a:b",
        ] {
            assert_eq!(ServiceAccount::of_user(user), None, "{user}");
        }
    }

    #[test]
    fn rancher_shortens_a_name_by_its_hash() {
        let name = "very-long-cluster-name-pool1-q99l7-6ndw9";
        assert_eq!(
            rancher_truncation(name, 15).as_deref(),
            Some("very-long-f864a")
        );
        assert_eq!(
            rancher_limit(&VmName::parse(name).unwrap(), "very-long-f864a"),
            Some(15)
        );
        assert_eq!(rancher_truncation("short", 15), None);
        // The ninth character is `-`: one character less, one digit more, the same length.
        let dashed = rancher_truncation("very-lon-cluster-name-pool1", 15).unwrap();
        assert!(
            dashed.starts_with("very-lon-") && dashed.len() == 15,
            "{dashed}"
        );
    }

    #[test]
    fn kubevirt_cuts_a_name_at_its_first_dot_and_at_63() {
        let long = "a".repeat(70);
        for (vm, hostname) in [
            ("web", "web"),
            ("web.prod", "web"),
            (long.as_str(), &long[..63]),
        ] {
            assert_eq!(kubevirt_hostname(&VmName::parse(vm).unwrap()), hostname);
        }
    }

    #[test]
    fn a_template_of_hostnames_is_what_hostname_5_describes() {
        for (template, hostname, fits) in [
            ("node-????-????", "node-92a9-061c", true),
            ("node-????", "NODE-92a9", true),
            ("node-????", "node-92ag", false),
            ("node-????", "node-92a", false),
            ("node-????", "node-92a99", false),
            ("$-$", "brave-otter", true),
            ("web-$.example.org", "web-a1.example.org", true),
            ("web-$.example.org", "web-.example.org", false),
            ("web", "web", false),
            ("?", "", false),
        ] {
            assert_eq!(
                is_made_from(hostname, template),
                fits,
                "{template} {hostname}"
            );
        }
        assert!(!is_made_from(
            &"g".repeat(4096),
            &"$".repeat(64).replace('$', "$?")
        ));
    }

    #[test]
    fn a_node_id_is_eight_hexadecimal_digits() {
        assert_eq!(without_node_id("vm-1-0a1b2c3d"), Some("vm-1"));
        for name in [
            "vm-1",
            "vm-1-0a1b2c3",
            "vm-1-0A1B2C3D",
            "vm-1-0a1b2c3g",
            "-0a1b2c3d",
        ] {
            assert_eq!(without_node_id(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_compared_without_case_domain_and_trailing_dot() {
        for name in ["Web-1", "web-1.", "web-1.example.org", "WEB-1.example.org."] {
            assert_eq!(short(name), "web-1");
        }
    }

    #[test]
    fn a_configmap_has_a_namespace() {
        let topology = ConfigMapName::topology();
        assert_eq!(ConfigMapName::parse(topology.as_str()), Ok(topology));
        ConfigMapName::parse("ns/zones.v1").unwrap();
        for bad in ["a", "/a", "a/", "a.b/c", "a/b/c", "A/b"] {
            assert!(ConfigMapName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_dns_names_become_object_names() {
        for good in ["a", "vm-1", "web.prod", "1a"] {
            assert!(VmName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            "-a",
            "a-",
            "A",
            "a..b",
            "a/b",
            "../etc",
            "a b",
            "ä",
            "a?x=1",
            long.as_str(),
        ] {
            assert!(VmName::parse(bad).is_err(), "{bad}");
        }
    }
}
