// SPDX-License-Identifier: Apache-2.0
//! Finds what is wrong with the tree of an image.
//!
//! For possible secrets, only their presence is checked, not their content. The exception is the configuration of RKE2, K3s and
//! their registries: it must be parsed to detect a secret, and only the key is kept.
//!
//! Every shown path is relative to the root of the image, with all symbolic links resolved there, so that commands can use it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::places::PLACES;
use super::{settings, unit};
use crate::access::search::{harvester_candidates, kubelet_candidates};
use crate::catalog::{Code, CommandPlace, Finding};
use crate::commands::options::config_option;
use crate::config::{self, Effective, FileLine};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::guest_agent::{Enablement, UNITS};
use crate::facts::names::{effective_hostname, is_hostname_template};
use crate::observe::guest_agent::{PROGRAMS, os_release, value};
use crate::report::text::first;
use crate::sys::escape::{chain, shell_path};
use crate::sys::root::{ReadError, Root};

/// The maximum size of a file with one short line; the rest of a longer one does not matter.
const LINE_MAX: u64 = 4 << 10;

/// The maximum number of paths for one place; the tree is untrusted.
const PATHS_MAX: usize = 10_000;

/// The maximum number of paths or errors in the text of one finding; there may be thousands.
const NAMED_MAX: usize = 8;

/// The files with a machine-id. On most systems, that of D-Bus is a link to that of systemd.
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// The content of a machine-id file that systemd treats as uninitialized (machine-id(5), "First Boot Semantics").
const NO_MACHINE_ID: [&str; 2] = ["", "uninitialized"];

const HOSTNAME: &str = "/etc/hostname";

/// Hostnames that are not unique to a machine, in addition to those of the distribution: of systemd and of installers.
const ANONYMOUS: [&str; 4] = ["", "localhost", "localhost.localdomain", "linux"];

/// The keys of our configuration that are valid for one machine only.
const OF_ONE_VM: [&str; 2] = ["guest_cluster.node_name", "harvester.vm"];

/// The ID that K3s and RKE2 append to the name of the Node, if configured (`with-node-id`).
const NODE_ID: &str = "/etc/rancher/node/id";

/// Files that the kubelet of RKE2 and K3s creates in the data directory. Images for air-gapped installation are in the same
/// directory, and are allowed.
const AGENT_FILES: [&str; 3] = ["agent/*.kubeconfig", "agent/*.key", "agent/*.crt"];

/// Files that a server of RKE2 or K3s creates in the data directory. Manifests in the same directory are allowed.
const SERVER_FILES: [&str; 6] = [
    "server/tls",
    "server/cred",
    "server/db",
    "server/token",
    "server/node-token",
    "server/agent-token",
];

/// Returns all findings, in the order of the catalog. `only` is the single configuration file to read, as for every command, and
/// `dir` the directory of the tree, for commands.
pub(super) fn check(root: &Root, only: Option<&Path>, dir: &Path) -> Vec<Finding> {
    let mut check = Check {
        root,
        dir,
        things: BTreeMap::new(),
        linked: BTreeMap::new(),
        known: BTreeSet::new(),
        findings: Vec::new(),
    };
    check.programs();
    check.configuration(only);
    for path in MACHINE_IDS {
        if let Some((place, text)) = check.line(path, &MACHINE_IDS)
            && !NO_MACHINE_ID.contains(&text.as_str())
        {
            let seen = format!("{place} contains an ID");
            check.blank(Code::ImageMachineId, &place, seen);
        }
    }
    check.hostname();
    for (code, places) in PLACES {
        // Files that a running machine has in memory are not in its image.
        let is_in_image = |place: &&&str| !(root.is_live() && place.starts_with("/run/"));
        for place in places.iter().filter(is_in_image) {
            check.below(*code, Path::new("/"), place);
        }
    }
    check.settings();
    for (code, places) in std::mem::take(&mut check.things) {
        let paths: Vec<&Path> = places.iter().map(|place| place.path.as_path()).collect();
        let remove = check.remove(&paths);
        check.find_with(code, first(&places, NAMED_MAX, ", "), remove);
    }
    for (code, places) in &check.linked {
        let finding = Finding::new(*code, first(places, NAMED_MAX, ", "));
        check.findings.push(finding.with_remedy(
            "Check where the link in the home directory leads. A file of the user: remove it there, then the link. A file of the system: \
             remove only the link.",
        ));
    }
    check.findings.sort_by_key(|finding| finding.code);
    check.findings
}

/// The path of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImagePlace {
    /// The path itself, which may be a symbolic link. Commands remove this path, never the target of a link.
    path: PathBuf,
    /// The target, if the path is a symbolic link.
    leads_to: Option<PathBuf>,
}

impl fmt::Display for ImagePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(formatter)?;
        match &self.leads_to {
            Some(target) => write!(formatter, " (a link to {})", target.display()),
            None => Ok(()),
        }
    }
}

/// A check that is in progress.
struct Check<'a> {
    root: &'a Root,
    dir: &'a Path,
    /// The files and directories that must not be there.
    things: BTreeMap<Code, Vec<ImagePlace>>,
    /// Those that are in a home directory only through a link.
    linked: BTreeMap<Code, Vec<ImagePlace>>,
    /// Those that were looked at: there may be thousands for one code.
    known: BTreeSet<(Code, PathBuf)>,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn find(&mut self, code: Code, seen: String) {
        self.findings.push(Finding::new(code, seen));
    }

    fn find_with(&mut self, code: Code, seen: String, command: String) {
        let finding = Finding::new(code, seen).and_command(CommandPlace::Image, command);
        self.findings.push(finding);
    }

    /// Checks the programs that each machine needs. Each has one finding at most: the first that prevents its start.
    fn programs(&mut self) {
        let agent = [
            Code::ImageAgentMissing,
            Code::ImageAgentMasked,
            Code::ImageAgentNotEnabled,
        ];
        let guest_agent = [
            Code::ImageGuestAgentMissing,
            Code::ImageGuestAgentMasked,
            Code::ImageGuestAgentNotEnabled,
        ];
        for ([missing, masked, disabled], programs, units) in [
            (agent, &[unit::PROGRAM][..], &[unit::OURS][..]),
            (guest_agent, &PROGRAMS, &UNITS),
        ] {
            if !programs.iter().any(|path| self.root.exists(path)) {
                self.find(missing, format!("{} is missing", programs.join(" or ")));
                continue;
            }
            let Some((name, enablement)) = unit::find(self.root, units) else {
                self.find(missing, format!("unit {} is missing", units.join(" or ")));
                continue;
            };
            let (code, state, verb) = match enablement {
                Enablement::Masked => (masked, "masked", "unmask"),
                Enablement::Disabled => (disabled, "disabled", "enable"),
                Enablement::Enabled | Enablement::Static => continue,
            };
            let command = format!("systemctl {}{verb} {name}", self.in_root());
            self.find_with(code, format!("{name} is {state}"), command);
        }
    }

    /// Checks our configuration: the settings that are valid for one machine only, and its errors. A kubeconfig in it is a thing.
    fn configuration(&mut self, only: Option<&Path>) {
        let loaded = match config::load(self.root, only) {
            Ok(loaded) => loaded,
            Err(errors) => {
                let (root, config) = (self.in_root(), config_option(only));
                let command = format!("harvester-node-agent {root}{config}config check");
                let seen = first(&errors.problems, NAMED_MAX, "; ");
                return self.find_with(Code::ImageConfigInvalid, seen, command);
            }
        };
        let settings = &loaded.settings;
        let harvester = settings.harvester.kubeconfig.iter();
        harvester.for_each(|path| self.file(Code::ImageHarvesterCredential, path));
        let guest = settings.guest.kubeconfig.iter();
        guest.for_each(|path| self.file(Code::ImageKubeletCredential, path));
        let is_of_one_vm = |value: &&Effective| OF_ONE_VM.contains(&value.key.as_str());
        let values = loaded.values.iter().filter(|value| !value.is_default);
        for value in values.filter(is_of_one_vm) {
            if let Some(FileLine { path, line }) = &value.origin {
                let place = format!("{} line {line}", self.root.resolve(path).display());
                let finding = setting(Code::ImageConfigurationOfOneVm, &value.key, &place);
                self.findings.push(finding);
            }
        }
    }

    fn hostname(&mut self) {
        let Some((place, text)) = self.line(HOSTNAME, &[]) else {
            return;
        };
        let release = os_release(self.root);
        let mut defaults = ["DEFAULT_HOSTNAME", "ID"].into_iter();
        if let Some(name) = effective_hostname(&text)
            && !ANONYMOUS.contains(&name)
            && !is_hostname_template(name)
            && !defaults.any(|key| value(&release, key) == name)
        {
            let seen = format!("{place} says {name}");
            self.blank(Code::ImageHostname, &place, seen);
        }
    }

    /// Checks the configuration of RKE2, K3s and the kubelet, and the places that follow from it.
    fn settings(&mut self) {
        let settings = settings::read(self.root);
        for problem in &settings.problems {
            self.unreadable(chain(problem));
        }
        self.credentials(&settings.distributions);
        for path in &settings.secret_files {
            self.file(Code::ImageClusterToken, path);
        }
        // With a node ID that is unique to each machine, the name can be the same on all of them.
        let has_id = |kind| {
            let mut distributions = settings.distributions.iter();
            distributions.any(|one| one.kind == kind && one.with_node_id)
                && !self.root.exists(NODE_ID)
        };
        // Our drop-in is already a finding as a whole.
        let ours = self.things.get(&Code::ImageRegistrationDropIn);
        let is_ours = |place: &ImagePlace| ours.is_some_and(|places| places.contains(place));
        let mut findings: Vec<Finding> = Vec::new();
        for found in &settings.unshareable {
            let place = self.at(&found.path);
            if is_ours(&place) || found.code == Code::ImageNodeName && has_id(found.kind) {
                continue;
            }
            let finding = setting(found.code, &found.key, &place.to_string());
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        self.findings.extend(findings);
    }

    /// Checks for credentials at all paths where the agent searches for them, and next to those.
    fn credentials(&mut self, distributions: &[Distribution]) {
        for candidate in harvester_candidates(None, distributions) {
            self.file(Code::ImageHarvesterCredential, &candidate.path);
        }
        // The first iteration is for the configured distributions, the second one for the default paths.
        for distributions in [distributions, &[]] {
            for candidate in kubelet_candidates(None, distributions) {
                self.file(Code::ImageKubeletCredential, &candidate.path);
            }
        }
        let configured = distributions.iter().map(|one| one.data_dir.as_path());
        let usual =
            [DistributionKind::Rke2, DistributionKind::K3s].map(DistributionKind::default_data_dir);
        for dir in configured.chain(usual) {
            for file in AGENT_FILES {
                self.below(Code::ImageKubeletCredential, dir, file);
            }
            for file in SERVER_FILES {
                self.below(Code::ImageClusterKeys, dir, file);
            }
        }
    }

    /// Reads a file with one line. Returns `None` if it is absent or a link through one of `others`, which are checked anyway.
    fn line(&mut self, path: &str, others: &[&str]) -> Option<(ImagePlace, String)> {
        let place = self.at(Path::new(path));
        if let Some(target) = &place.leads_to {
            let is_in_memory = self.root.is_live() && target.starts_with("/run");
            let mut steps = self.root.steps(path).into_iter();
            let is_other = |step: PathBuf| {
                let mut others = others.iter().filter(|other| **other != path);
                others.any(|other| step == Path::new(other))
            };
            if is_in_memory || steps.any(is_other) {
                return None;
            }
        }
        match self.root.read(path, LINE_MAX) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                Some((place, text))
            }
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// Adds everything that matches a pattern below `dir`.
    fn below(&mut self, code: Code, dir: &Path, pattern: &str) {
        let mut paths = vec![dir.to_owned()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            paths = match part.split_once('*') {
                None => paths.iter().map(|path| path.join(part)).collect(),
                Some((start, end)) => paths
                    .iter()
                    .flat_map(|dir| self.entries(dir, start, end))
                    .take(PATHS_MAX)
                    .collect(),
            };
        }
        for path in &paths {
            // A copy is a file: kubelet.conf.d is a directory of settings.
            let is_dir = || self.root.metadata(path).is_ok_and(|found| found.is_dir());
            if !pattern.ends_with(".*") || !is_dir() {
                self.thing(code, path);
            }
        }
    }

    /// Returns the entries of a directory whose names have this prefix and suffix.
    fn entries(&mut self, dir: &Path, start: &str, end: &str) -> Vec<PathBuf> {
        let names = match self.root.list(dir) {
            Ok(names) => names,
            Err(error) => {
                self.failed(&error);
                return Vec::new();
            }
        };
        let fits = |name: &OsStr| {
            let name = name.as_encoded_bytes();
            let rest = name.strip_prefix(start.as_bytes());
            rest.is_some_and(|rest| rest.ends_with(end.as_bytes()))
        };
        let names = names.iter().filter(|name| fits(name));
        names.map(|name| dir.join(name)).collect()
    }

    /// Adds the file that a setting names, if it is present and not empty. A directory is never added: the setting is wrong, and the
    /// directory may be one of the system.
    fn file(&mut self, code: Code, path: &Path) {
        let is_directory = |metadata: std::fs::Metadata| metadata.is_dir();
        if !self.root.metadata(path).is_ok_and(is_directory) {
            self.thing(code, path);
        } else if !self.root.list(path).is_ok_and(|names| names.is_empty()) {
            let seen = format!(
                "a setting names {} as a file, but it is a directory",
                path.display()
            );
            let finding = Finding::new(Code::ImageUnreadable, seen);
            let finding = finding.with_remedy("Correct the setting that names this path.");
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }

    /// Adds a file or directory, if it is present and not empty.
    fn thing(&mut self, code: Code, path: &Path) {
        let place = self.at(path);
        // The user may have linked a directory of the system, whose files no command may remove.
        let is_linked = self
            .home(path)
            .is_some_and(|home| !place.path.starts_with(home));
        // This file has an effect even if it is empty or a broken link.
        let is_mark = code == Code::ImageCloudInitDisabled;
        let is_there = is_mark && (place.leads_to.is_some() || self.root.exists(path));
        if self.known.insert((code, place.path.clone())) && (is_there || self.counts(path)) {
            if is_linked {
                let (path, leads_to) = (path.to_owned(), Some(place.path));
                let place = ImagePlace { path, leads_to };
                self.linked.entry(code).or_default().push(place);
            } else {
                self.things.entry(code).or_default().push(place);
            }
        }
    }

    /// Reports whether a path exists, and is neither an empty file nor an empty directory.
    fn counts(&mut self, path: &Path) -> bool {
        let weighed = self.root.metadata(path).and_then(|metadata| {
            Ok(match () {
                () if metadata.is_dir() => !self.root.list(path)?.is_empty(),
                () if metadata.is_file() => metadata.len() > 0,
                () => true,
            })
        });
        weighed.unwrap_or_else(|error| {
            self.failed(&error);
            false
        })
    }

    fn failed(&mut self, error: &ReadError) {
        if !error.is_absent() {
            self.unreadable(chain(error));
        }
    }

    fn unreadable(&mut self, seen: String) {
        let mut findings = self.findings.iter();
        if !findings.any(|finding| finding.seen == seen) {
            self.find(Code::ImageUnreadable, seen);
        }
    }

    /// Returns the home directory that has this path, with the links that only root can make resolved.
    fn home(&self, path: &Path) -> Option<PathBuf> {
        if path.starts_with("/root") {
            return Some(self.root.resolve(Path::new("/root")));
        }
        let user = path.strip_prefix("/home").ok()?.components().next()?;
        Some(self.root.resolve(Path::new("/home")).join(user))
    }

    /// Resolves all links in a path. If the path itself is a link, its target is returned separately.
    fn at(&self, path: &Path) -> ImagePlace {
        let resolved = self.root.resolve(path);
        let name = path.parent().zip(path.file_name());
        let link = name
            .filter(|_| self.root.link_target(path).is_some())
            .map(|(folder, name)| self.root.resolve(folder).join(name));
        ImagePlace {
            leads_to: link.is_some().then(|| resolved.clone()),
            path: link.unwrap_or(resolved),
        }
    }

    /// Adds a finding for a file that is emptied. A link is removed, because the target may be used elsewhere.
    fn blank(&mut self, code: Code, place: &ImagePlace, seen: String) {
        // dbus-daemon rejects an empty ID, and dbus-uuidgen creates a missing one; systemd initializes an empty one.
        let is_of_dbus = place.path.ends_with("dbus/machine-id");
        let command = match place.leads_to {
            None if !is_of_dbus => format!("truncate -s 0 {}", self.path(&place.path)),
            _ => self.remove(&[&place.path]),
        };
        self.find_with(code, seen, command);
    }

    /// Returns the command that removes files, and directories with all their content.
    fn remove(&self, paths: &[&Path]) -> String {
        let paths: Vec<String> = paths.iter().map(|path| self.path(path)).collect();
        format!("rm -rf {}", paths.join(" "))
    }

    /// Returns the option of a program that works in the tree; nothing for the running system.
    fn in_root(&self) -> String {
        match self.dir == Path::new("/") {
            true => String::new(),
            false => format!("--root={} ", shell_path(self.dir)),
        }
    }

    fn path(&self, path: &Path) -> String {
        let path = path.strip_prefix("/").unwrap_or(path);
        shell_path(&self.dir.join(path))
    }
}

/// Returns the finding for a setting that is removed by hand.
fn setting(code: Code, key: &str, place: &str) -> Finding {
    let finding = Finding::new(code, format!("`{key}` in {place}"));
    finding.with_remedy(match code {
        Code::ImageTopologyLabel => format!("Remove the topology keys from `{key}` in {place}."),
        _ => format!("Remove `{key}` from {place}."),
    })
}
