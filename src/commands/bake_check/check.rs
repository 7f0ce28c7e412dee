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

/// The maximum number of paths for one place; the tree is untrusted. More are a finding of their own.
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

/// The fix for what is in a home directory, where a command of root could remove another file.
const BY_HAND: &str = "Check where the path leads: the user of the home directory can put a link into it, and `rm` of root would follow. \
A file of the user: remove it as that user, with any link to it. A file of the system: remove only the link.";

/// The fix for more paths than [`PATHS_MAX`].
const MANY: &str = "Only the first ones were checked. Remove those that the image does not need, and run the check again.";

/// Returns all findings, in the order of the catalog. `only` is the single configuration file to read, as for every command, and
/// `dir` the directory of the tree, for commands.
pub(super) fn check(root: &Root, only: Option<&Path>, dir: &Path) -> Vec<Finding> {
    let mut check = Check {
        root,
        dir,
        things: BTreeMap::new(),
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
    for ((code, is_by_hand), places) in std::mem::take(&mut check.things) {
        let finding = Finding::new(code, first(&places, NAMED_MAX, ", "));
        let finding = match is_by_hand {
            true => finding.with_remedy(BY_HAND),
            false => finding.and_command(CommandPlace::Image, check.remove(&places)),
        };
        check.add(finding);
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
    /// The files and directories that must not be there, and whether they are removed by hand.
    things: BTreeMap<(Code, bool), Vec<ImagePlace>>,
    /// Those that were looked at: there may be thousands for one code.
    known: BTreeSet<(Code, PathBuf)>,
    findings: Vec<Finding>,
}

impl Check<'_> {
    fn add(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn find(&mut self, code: Code, seen: String) {
        self.add(Finding::new(code, seen));
    }

    fn find_with(&mut self, code: Code, seen: String, command: String) {
        self.add(Finding::new(code, seen).and_command(CommandPlace::Image, command));
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
                self.add(setting(Code::ImageConfigurationOfOneVm, &value.key, &place));
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
            self.find(Code::ImageUnreadable, chain(problem));
        }
        self.credentials(&settings.distributions);
        for path in &settings.secret_files {
            self.file(Code::ImageClusterToken, path);
        }
        // With a node ID that is unique to each machine, the name can be the same on all of them.
        let is_of_one_vm = self.root.exists(NODE_ID);
        let has_id = |kind| {
            let mut distributions = settings.distributions.iter();
            !is_of_one_vm && distributions.any(|one| one.kind == kind && one.with_node_id)
        };
        for found in &settings.unshareable {
            let place = self.at(&found.path);
            // Our drop-in is already a finding as a whole.
            let is_known = (Code::ImageRegistrationDropIn, place.path.clone());
            if self.known.contains(&is_known)
                || found.code == Code::ImageNodeName && has_id(found.kind)
            {
                continue;
            }
            self.add(setting(found.code, &found.key, &place.to_string()));
        }
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
            let steps = self.root.steps(path);
            let is_passed = |other: &str| steps.iter().any(|step| step == Path::new(other));
            let mut others = others.iter().filter(|other| **other != path);
            if is_in_memory || others.any(|other| is_passed(other)) {
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
                Some((start, end)) => {
                    let found = paths.iter().flat_map(|dir| self.entries(dir, start, end));
                    let found: Vec<PathBuf> = found.take(PATHS_MAX + 1).collect();
                    if found.len() > PATHS_MAX {
                        let all = dir.join(pattern);
                        let seen = format!("more than {PATHS_MAX} paths match {}", all.display());
                        self.add(Finding::new(Code::ImageUnreadable, seen).with_remedy(MANY));
                    }
                    found
                }
            };
        }
        for path in &paths {
            // A copy is a file: kubelet.conf.d is a directory of settings.
            let is_copy = pattern.ends_with(".*") || pattern.ends_with("/*kubeconfig");
            let is_dir = || self.root.metadata(path).is_ok_and(|found| found.is_dir());
            if !is_copy || !is_dir() {
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
        if !self.root.metadata(path).is_ok_and(|found| found.is_dir()) {
            self.thing(code, path);
        } else if !self.root.list(path).is_ok_and(|names| names.is_empty()) {
            let seen = format!(
                "a setting names {} as a file, but it is a directory",
                path.display()
            );
            let finding = Finding::new(Code::ImageUnreadable, seen);
            self.add(finding.with_remedy("Correct the setting that names this path."));
        }
    }

    /// Adds a file or directory, if it is present and not empty.
    fn thing(&mut self, code: Code, path: &Path) {
        let mut place = self.at(path);
        if !self.known.insert((code, place.path.clone())) {
            return;
        }
        // This file has an effect even if it is empty or a broken link.
        let is_mark = code == Code::ImageCloudInitDisabled;
        let is_there = is_mark && (place.leads_to.is_some() || self.root.exists(path));
        if !is_there && !self.counts(path) {
            return;
        }
        // On a running system, a user can replace a directory by a link before the command is run. In a tree, there is no user.
        let homes = self.root.resolve("/home");
        let mut steps = self.root.steps(path).into_iter();
        let is_open = self.dir == Path::new("/") && steps.any(|step| step.starts_with(&homes));
        // The user may have linked a directory of the system, whose files no command may remove.
        let home = self.home(path);
        let is_linked = home.is_some_and(|home| !place.path.starts_with(home));
        if is_linked {
            let (path, leads_to) = (path.to_owned(), Some(place.path));
            place = ImagePlace { path, leads_to };
        }
        let things = self.things.entry((code, is_open || is_linked));
        things.or_default().push(place);
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
            self.find(Code::ImageUnreadable, chain(error));
        }
    }

    /// Returns the home directory that has this path, with the links that only root can make resolved.
    fn home(&self, path: &Path) -> Option<PathBuf> {
        if path.starts_with("/root") {
            return Some(self.root.resolve("/root"));
        }
        let user = path.strip_prefix("/home").ok()?.components().next()?;
        Some(self.root.resolve("/home").join(user))
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
            _ => self.remove(std::slice::from_ref(place)),
        };
        self.find_with(code, seen, command);
    }

    /// Returns the command that removes files, and directories with all their content.
    fn remove(&self, places: &[ImagePlace]) -> String {
        let paths = places.iter().map(|place| self.path(&place.path));
        format!("rm -rf {}", paths.collect::<Vec<_>>().join(" "))
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
