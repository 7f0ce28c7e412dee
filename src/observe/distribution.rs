// SPDX-License-Identifier: Apache-2.0
//! Reads the configuration files of the Kubernetes distributions on this node.
//!
//! A distribution is present if one of its files is. A file that cannot be parsed is reported as a problem, and the other files
//! are still used; its text is never quoted, because the same files contain cluster tokens.

mod settings;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::slice;

use zeroize::Zeroizing;

use crate::access::search::{KUBEADM_KUBECONFIG, RKE1_KUBECONFIG};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::registration::{LabelFileKind, MARK};
use crate::sys::document::yaml::{DocumentError, YamlValue, parse};
use crate::sys::escape::chain;
use crate::sys::root::{ReadError, Root};

use crate::observe::environment_file::{flags, variables};
use settings::{KUBELET_ARGUMENT, ReadSettings, USED, configured, distribution, scalars};

/// The maximum size of a configuration file; usual files are smaller than 16 KiB.
const FILE_MAX: u64 = 1 << 20;

/// The maximum number of drop-in files per directory; neither administrators nor Rancher create that many.
const DROP_INS_MAX: usize = 100;

/// Environment files of the RKE2 units: of the packages, the tarball, the administrator. A later one takes precedence.
const RKE2_ENVIRONMENT: [&str; 8] = [
    "/usr/lib/systemd/system/rke2-server.env",
    "/usr/lib/systemd/system/rke2-agent.env",
    "/usr/local/lib/systemd/system/rke2-server.env",
    "/usr/local/lib/systemd/system/rke2-agent.env",
    "/etc/default/rke2-server",
    "/etc/default/rke2-agent",
    "/etc/sysconfig/rke2-server",
    "/etc/sysconfig/rke2-agent",
];

/// Environment files of the K3s units.
const K3S_ENVIRONMENT: [&str; 6] = [
    "/etc/default/k3s",
    "/etc/default/k3s-agent",
    "/etc/sysconfig/k3s",
    "/etc/sysconfig/k3s-agent",
    "/etc/systemd/system/k3s.service.env",
    "/etc/systemd/system/k3s-agent.service.env",
];

/// The file that kubeadm writes; its presence identifies kubeadm.
const KUBEADM_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";

/// Variables with kubelet flags, in the order in which the kubelet's unit passes them; a later one takes precedence.
const KUBELET_FLAGS: [(&str, &str); 3] = [
    (KUBEADM_FLAGS, "KUBELET_KUBEADM_ARGS"),
    ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS"),
    ("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS"),
];

/// The reason why a file of a distribution is ignored. Never quotes the file.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct DistributionProblem {
    /// A one-line message.
    pub text: String,
    /// Whether the kernel could not read the file, which may pass.
    pub is_passing: bool,
}

/// Returns the files and the directories of drop-ins whose change may change the result, as far as their names are known. Other files
/// are read at the poll, and so is what a link in such a directory leads to. A directory that another machine serves is compared by
/// its own name.
pub fn watched() -> impl Iterator<Item = PathBuf> {
    [
        "/etc/rancher/rke2/config.yaml",
        "/etc/rancher/rke2/config.yaml.d",
        "/etc/rancher/rke2/config.yaml.d/*",
        "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
        "/etc/rancher/k3s/config.yaml",
        "/etc/rancher/k3s/config.yaml.d",
        "/etc/rancher/k3s/config.yaml.d/*",
        "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
    ]
    .into_iter()
    .chain(KUBELET_FLAGS.map(|(path, _)| path))
    .map(PathBuf::from)
}

/// A setting as a file contains it, also one that the agent does not use. It may be a secret.
pub(crate) struct Setting<'a> {
    /// The distribution.
    pub(crate) kind: DistributionKind,
    /// The file.
    pub(crate) path: &'a Path,
    /// The key, variable or flag in the file.
    pub(crate) key: &'a str,
    /// The name of the key or flag, without `+` or dashes. For a variable, it is that of the key that it replaces.
    pub(crate) name: &'a str,
    /// The values.
    pub(crate) values: &'a [String],
}

/// Reads the files of all distributions.
pub fn read_distribution(root: &Root) -> (Vec<Distribution>, Vec<DistributionProblem>) {
    read_with(root, None)
}

/// Reads the files of all distributions, and passes each setting to `each`.
pub(crate) fn read_with<'a>(
    root: &'a Root,
    each: Option<&'a mut dyn FnMut(&Setting<'_>)>,
) -> (Vec<Distribution>, Vec<DistributionProblem>) {
    let mut reader = DistributionReader {
        root,
        kind: DistributionKind::Unknown,
        each,
        problems: Vec::new(),
    };
    let distributions = [
        reader.rancher(
            DistributionKind::Rke2,
            "RKE2",
            "/etc/rancher/rke2/config.yaml",
            &RKE2_ENVIRONMENT,
        ),
        reader.rancher(
            DistributionKind::K3s,
            "K3S",
            "/etc/rancher/k3s/config.yaml",
            &K3S_ENVIRONMENT,
        ),
        reader.kubelet(),
        root.exists(RKE1_KUBECONFIG)
            .then(|| Distribution::new(DistributionKind::Rke1)),
    ];
    (
        distributions.into_iter().flatten().collect(),
        reader.problems,
    )
}

struct DistributionReader<'a> {
    root: &'a Root,
    kind: DistributionKind,
    each: Option<&'a mut dyn FnMut(&Setting<'_>)>,
    problems: Vec<DistributionProblem>,
}

impl DistributionReader<'_> {
    /// Passes a setting on, if anyone wants it.
    fn tell(&mut self, path: &Path, key: &str, name: &str, values: &[String]) {
        if let Some(each) = &mut self.each {
            each(&Setting {
                kind: self.kind,
                path,
                key,
                name,
                values,
            });
        }
    }

    /// Reads the files of RKE2 or K3s, which share a format. Their configuration files take precedence over their environment.
    fn rancher(
        &mut self,
        kind: DistributionKind,
        prefix: &str,
        config: &str,
        environment: &[&str],
    ) -> Option<Distribution> {
        self.kind = kind;
        let mut is_here = false;
        let mut settings = ReadSettings::new();
        let mut config = PathBuf::from(config);
        for path in environment {
            let Some(text) = self.read(Path::new(path)) else {
                continue;
            };
            is_here = true;
            let text = String::from_utf8_lossy(&text);
            for (name, value) in variables(&text) {
                let suffix = name.strip_prefix(prefix);
                if let Some(suffix) = suffix {
                    let plain = suffix.trim_start_matches('_').replace('_', "-");
                    let plain = plain.to_ascii_lowercase();
                    self.tell(Path::new(path), &name, &plain, slice::from_ref(&value));
                }
                let key = match suffix {
                    Some("_DATA_DIR") => "data-dir",
                    Some("_NODE_NAME") => "node-name",
                    Some("_CONFIG_FILE") => {
                        config = value.into();
                        continue;
                    }
                    _ => continue,
                };
                let value = configured(value, Path::new(path));
                settings.insert(key.to_owned(), vec![value]);
            }
        }
        let mut files = vec![config.clone()];
        files.extend(self.drop_ins(&config));
        for path in files {
            if let Some(text) = self.read(&path) {
                is_here = true;
                // Our own file has the labels that the Node had when the kubelet started.
                let ours = LabelFileKind::of(kind).map(LabelFileKind::path);
                if ours != Some(&*path) || !text.starts_with(MARK.as_bytes()) {
                    self.merge(&path, &text, &mut settings);
                }
            }
        }
        is_here.then(|| distribution(kind, &settings))
    }

    /// Reads the files of kubeadm, or of a kubelet that was set up manually.
    fn kubelet(&mut self) -> Option<Distribution> {
        let is_kubeadm = self.root.exists(KUBEADM_FLAGS) || self.root.exists(KUBEADM_KUBECONFIG);
        self.kind = match is_kubeadm {
            true => DistributionKind::Kubeadm,
            false => DistributionKind::Unknown,
        };
        let mut arguments = Vec::new();
        for (path, variable) in KUBELET_FLAGS {
            let path = Path::new(path);
            let Some(text) = self.read(path) else {
                continue;
            };
            let text = String::from_utf8_lossy(&text);
            let values = variables(&text).into_iter();
            for (_, value) in values.filter(|(name, _)| name == variable) {
                for (flag, value) in flags(&value) {
                    let key = format!("--{flag}");
                    self.tell(path, &key, &flag, slice::from_ref(&value));
                    arguments.push(configured(format!("{flag}={value}"), path));
                }
            }
        }
        let settings = ReadSettings::from([(KUBELET_ARGUMENT.to_owned(), arguments)]);
        let distribution = distribution(self.kind, &settings);
        // Packages of the kubelet always install an empty environment file.
        let says_something =
            distribution.node_name.is_some() || !distribution.node_labels.is_empty();
        (is_kubeadm || says_something).then_some(distribution)
    }

    /// Returns the files in `config.yaml.d` next to `config.yaml`.
    fn drop_ins(&mut self, config: &Path) -> Vec<PathBuf> {
        let mut folder = config.as_os_str().to_owned();
        folder.push(".d");
        let folder = PathBuf::from(folder);
        match self.root.list(&folder) {
            Ok(names) => names
                .iter()
                .map(|name| folder.join(name))
                .filter(|path| {
                    let extension = path.extension().and_then(OsStr::to_str);
                    extension.is_some_and(|extension| {
                        ["yaml", "yml"].contains(&extension.to_ascii_lowercase().as_str())
                    })
                })
                .take(DROP_INS_MAX)
                .collect(),
            Err(error) => {
                self.unreadable(&error);
                Vec::new()
            }
        }
    }

    /// Merges one file into the settings of the files before it: a key replaces them, `key+` appends.
    fn merge(&mut self, path: &Path, text: &[u8], settings: &mut ReadSettings) {
        let document = match parse(text) {
            Ok(document) => document,
            // Rancher and administrators leave empty files.
            Err(DocumentError::Empty) => return,
            Err(problem) => return self.problem(format!("`{}` {problem}", path.display())),
        };
        let entries = match document {
            YamlValue::Map(entries) => entries,
            YamlValue::Null => return,
            other => return self.wrong_kind(path, "", &other, "a mapping"),
        };
        for (key, value) in entries {
            let (name, is_added) = match key.strip_suffix('+') {
                Some(name) => (name, true),
                None => (key.as_str(), false),
            };
            if self.each.is_some()
                && let Ok(values) = scalars(&value).map(Zeroizing::new)
            {
                self.tell(path, &key, name, &values);
            }
            if !USED.contains(&name) {
                continue;
            }
            match scalars(&value) {
                Ok(values) => {
                    let slot = settings.entry(name.to_owned()).or_default();
                    if !is_added {
                        slot.clear();
                    }
                    slot.extend(values.into_iter().map(|value| configured(value, path)));
                }
                Err(found) => self.wrong_kind(
                    path,
                    &format!("`{key}` of "),
                    found,
                    "text or a list of text",
                ),
            }
        }
    }

    /// Returns the content, or `None` for a missing file. Records a problem if the file cannot be read.
    fn read(&mut self, path: &Path) -> Option<Zeroizing<Vec<u8>>> {
        match self.root.read(path, FILE_MAX) {
            Ok(text) => Some(Zeroizing::new(text)),
            Err(error) => {
                self.unreadable(&error);
                None
            }
        }
    }

    /// An error of the kernel is reported for one file only: without file descriptors, or with a broken disk, all of them fail.
    fn unreadable(&mut self, error: &ReadError) {
        let mut problems = self.problems.iter();
        let is_passing = error.is_passing();
        let is_repeated = is_passing && problems.any(|problem| problem.is_passing);
        if !error.is_absent() && !is_repeated {
            let (kind, error) = (self.kind, chain(error));
            let text = format!("failed to read a configuration file of {kind}: {error}");
            self.problems.push(DistributionProblem { text, is_passing });
        }
    }

    /// `key` has the first words of the message; it is empty for the document.
    fn wrong_kind(&mut self, path: &Path, key: &str, found: &YamlValue, expected: &str) {
        let (path, found) = (path.display(), found.kind());
        self.problem(format!("{key}`{path}` is {found}, expected {expected}"));
    }

    fn problem(&mut self, text: String) {
        let is_passing = false;
        self.problems.push(DistributionProblem { text, is_passing });
    }
}

#[cfg(test)]
mod tests;
