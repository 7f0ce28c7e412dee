// SPDX-License-Identifier: Apache-2.0
//! Settings of RKE2, K3s and the kubelet that several machines must not share. The value of a secret is not kept.

use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::catalog::Code;
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::observe::distribution::{DistributionProblem, Setting, read_with};
use crate::sys::document::yaml::{DocumentError, YamlValue, parse};
use crate::sys::escape::chain;
use crate::sys::root::Root;

/// Keys whose values are secrets.
const SECRET: [&str; 5] = [
    "token",
    "agent-token",
    "vpn-auth",
    "etcd-s3-secret-key",
    "etcd-s3-session-token",
];

/// Keys that name a file with a secret.
const SECRET_FILE: [&str; 3] = ["token-file", "agent-token-file", "vpn-auth-file"];

/// The label that identifies the machine. All labels with a topology prefix are unshareable too.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Prefix of topology labels before Kubernetes 1.17.
const OLD_TOPOLOGY: &str = "failure-domain.beta.kubernetes.io/";

/// The registries file of each distribution (<https://docs.k3s.io/installation/private-registry>).
const REGISTRIES: [(DistributionKind, &str); 2] = [
    (DistributionKind::Rke2, "/etc/rancher/rke2/registries.yaml"),
    (DistributionKind::K3s, "/etc/rancher/k3s/registries.yaml"),
];

/// The maximum size of a registries file; typical ones are below 16 KiB.
const FILE_MAX: u64 = 1 << 20;

/// What the files of the distributions contain.
pub(super) struct Settings {
    pub(super) distributions: Vec<Distribution>,
    pub(super) problems: Vec<DistributionProblem>,
    pub(super) unshareable: Vec<Unshareable>,
    /// The files that the settings name as files with a secret.
    pub(super) secret_files: Vec<PathBuf>,
}

/// A setting that several machines must not share.
pub(super) struct Unshareable {
    pub(super) kind: DistributionKind,
    pub(super) code: Code,
    /// The key, variable or flag.
    pub(super) key: String,
    pub(super) path: PathBuf,
}

/// Reads the files of all distributions.
pub(super) fn read(root: &Root) -> Settings {
    let (mut unshareable, mut secret_files) = (Vec::new(), Vec::new());
    let mut each = |setting: &Setting<'_>| {
        if SECRET_FILE.contains(&setting.name) {
            let names = setting.values.iter().filter(|name| !name.is_empty());
            secret_files.extend(names.map(PathBuf::from));
        }
        let mut values = setting.values.iter();
        if let Some(code) = values.find_map(|value| code_of(setting.name, value)) {
            unshareable.push(Unshareable {
                kind: setting.kind,
                code,
                key: setting.key.to_owned(),
                path: setting.path.to_owned(),
            });
        }
    };
    let (distributions, problems) = read_with(root, Some(&mut each));
    let mut settings = Settings {
        distributions,
        problems,
        unshareable,
        secret_files,
    };
    settings.registries(root);
    settings
}

/// Returns the finding for a setting, if no machine may share it with others.
fn code_of(name: &str, value: &str) -> Option<Code> {
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
        name => SECRET.contains(&name).then_some(Code::ImageClusterToken),
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

impl Settings {
    /// Adds the registries files that contain a credential.
    fn registries(&mut self, root: &Root) {
        for (kind, path) in REGISTRIES {
            let text = match root.read(path, FILE_MAX) {
                Ok(text) => Zeroizing::new(text),
                Err(source) if source.is_absent() => continue,
                Err(error) => {
                    let error = chain(&error);
                    self.problem(format!(
                        "failed to read a configuration file of {kind}: {error}"
                    ));
                    continue;
                }
            };
            match parse(&text) {
                Ok(document) if has_login(&document) => self.unshareable.push(Unshareable {
                    kind,
                    code: Code::ImageClusterToken,
                    key: "auth".to_owned(),
                    path: path.into(),
                }),
                Ok(_) | Err(DocumentError::Empty) => {}
                Err(problem) => self.problem(format!("`{path}` {problem}")),
            }
        }
    }

    fn problem(&mut self, text: String) {
        let is_passing = false;
        self.problems.push(DistributionProblem { text, is_passing });
    }
}

/// Reports whether any `configs.<registry>.auth` has a value.
fn has_login(document: &YamlValue) -> bool {
    let Some(YamlValue::Map(registries)) = document.get("configs") else {
        return false;
    };
    let is_said = |value: &YamlValue| match value {
        YamlValue::Null => false,
        YamlValue::Map(entries) => !entries.is_empty(),
        _ => true,
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
