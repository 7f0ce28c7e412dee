// SPDX-License-Identifier: Apache-2.0
//! Settings of RKE2, K3s and the kubelet that several machines must not share. The value of a secret is not kept.

use crate::catalog::Code;
use crate::sys::document::yaml::YamlValue;

/// Keys that name a file with a secret.
pub(super) const SECRET_FILE: [&str; 3] = ["token-file", "agent-token-file", "vpn-auth-file"];

/// The label that identifies the machine. All labels with a topology prefix are unshareable too.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Prefix of topology labels before Kubernetes 1.17.
const OLD_TOPOLOGY: &str = "failure-domain.beta.kubernetes.io/";

/// Returns the finding for a setting, if no machine may share it with others.
pub(super) fn code_of(name: &str, value: &str) -> Option<Code> {
    match name {
        _ if value.is_empty() => None,
        "node-name" | "hostname-override" => Some(Code::ImageNodeName),
        "node-label" | "node-labels" => has_topology(value).then_some(Code::ImageTopologyLabel),
        // Flags that are passed to the kubelet unchanged, with or without leading dashes.
        "kubelet-arg" => {
            let (flag, value) = value.split_once('=')?;
            code_of(flag.trim_start_matches('-'), value)
        }
        "datastore-endpoint" => has_password(value).then_some(Code::ImageClusterToken),
        "token" | "agent-token" | "vpn-auth" | "etcd-s3-secret-key" | "etcd-s3-session-token" => {
            Some(Code::ImageClusterToken)
        }
        _ => None,
    }
}

/// Reports whether the URL of a database contains a password: `scheme://user:password@host`, the same without a scheme (MySQL), or
/// a parameter of PostgreSQL.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty()) || rest.contains("password=")
}

/// Reports whether one of the labels describes the topology or identity of a machine.
fn has_topology(labels: &str) -> bool {
    labels.split(',').any(|pair| {
        let key = pair.split_once('=').map_or(pair, |(key, _)| key).trim();
        (key.starts_with("topology.") && key.contains('/'))
            || key.starts_with(OLD_TOPOLOGY)
            || key == HOSTNAME_LABEL
    })
}

/// Reports whether a file of cloud-init says to keep the hostname. It is not parsed: those of distributions have aliases.
pub(super) fn preserves_hostname(text: &str) -> Option<bool> {
    let mut pairs = text.lines().rev().filter_map(|line| line.split_once(':'));
    let marks = ['{', '}', '"', '\''];
    let is_key = |key: &str| key.trim_end().trim_matches(marks) == "preserve_hostname";
    let (_, value) = pairs.find(|(key, _)| is_key(key))?;
    let value = value.split('#').next()?;
    let value = value.trim_matches(|end: char| end.is_whitespace() || marks.contains(&end));
    Some(["true", "yes", "on", "1"].contains(&value.to_ascii_lowercase().as_str()))
}

/// Reports whether any `configs.<registry>.auth` has a value.
pub(super) fn has_login(document: &YamlValue) -> bool {
    let Some(YamlValue::Map(registries)) = document.get("configs") else {
        return false;
    };
    let is_said = |value: &YamlValue| match value {
        YamlValue::Map(entries) => !entries.is_empty(),
        value => !matches!(value, YamlValue::Null),
    };
    registries
        .iter()
        .any(|(_, registry)| registry.get("auth").is_some_and(is_said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_with_a_password_is_a_secret() {
        for (url, has) in [
            ("mysql://user:pass@tcp(192.0.2.1:3306)/k3s", true),
            ("user:pass@tcp(192.0.2.1:3306)/k3s", true),
            ("postgres://user:p@ss@db:5432/k3s", true),
            ("postgres://db:5432/k3s?user=a&password=b", true),
            ("postgres://user@db:5432/k3s", false),
            ("https://192.0.2.1:2379,https://192.0.2.2:2379", false),
            ("sqlite", false),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }
}
