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
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::places::{DATA, PLACES, PROGRAMS};
use super::settings::{SECRET_FILE, code_of, has_login, preserves_hostname};
use super::unit;
use crate::access::search::{harvester_candidates, kubelet_candidates};
use crate::access::trust::changeable_except;
use crate::catalog::{Code, CommandPlace, Finding};
use crate::commands::options::config_option;
use crate::config::{self, Effective, FileLine};
use crate::facts::distribution::{Distribution, DistributionKind};
use crate::facts::guest_agent::Enablement;
use crate::facts::names::{effective_hostname, is_hostname_template};
use crate::observe::distribution::{Setting, read_with};
use crate::observe::guest_agent::{os_release, value};
use crate::report::text::first;
use crate::sys::document::yaml::{DocumentError, parse};
use crate::sys::escape::{chain, shell_path};
use crate::sys::root::{ReadError, Root};

/// The maximum size of a file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The maximum number of paths for one place, in all home directories together; the tree is untrusted. More are a finding of their own.
const PATHS_MAX: usize = 10_000;

/// The maximum number of home directories in which SSH keys are looked for. More are a finding of their own.
const HOMES_MAX: usize = 1_000;

/// The maximum number of paths or errors in the text of one finding; there may be thousands.
const NAMED_MAX: usize = 8;

/// The same for paths that no command removes, of which the text is all that is known.
const BY_HAND_MAX: usize = 100;

/// The files with a machine-id. On most systems, that of D-Bus is a link to that of systemd.
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// The content of a machine-id file that systemd treats as uninitialized (machine-id(5), "First Boot Semantics").
const NO_MACHINE_ID: [&str; 2] = ["", "uninitialized"];

/// Hostnames that are not unique to a machine, in addition to those of the distribution: of systemd and of installers.
const ANONYMOUS: [&str; 4] = ["", "localhost", "localhost.localdomain", "linux"];

/// The keys of our configuration that are valid for one machine only.
const OF_ONE_VM: [&str; 2] = ["guest_cluster.node_name", "harvester.vm"];

/// The ID that K3s and RKE2 append to the name of the Node, if configured (`with-node-id`).
const NODE_ID: &str = "/etc/rancher/node/id";

/// Directories that may belong to a service, such as rsyslog on Ubuntu, but to no user.
const OF_SERVICES: [&str; 2] = ["/var/log", "/var/lib/prometheus"];

/// The fix for a path that another user can change, so that a command of root could remove another file.
const BY_HAND: &str = "Check where the path leads: a user other than root can put a link into it, and `rm` of root would follow. \
A file of that user: remove it as that user, with any link to it. A file of the system: remove only the link. \
A file of root: let only root write to the directories above it, then check again.";

/// The fix for more than [`PATHS_MAX`] or [`HOMES_MAX`].
const MANY: &str = "Only the first ones were checked. Remove those that the image does not need, and run the check again.";

/// Returns all findings, in the order of the catalog. `only` is the single configuration file to read, as for every command, and
/// `is_live` whether the tree is the running system.
pub(super) fn check(root: &Root, only: Option<&Path>, is_live: bool) -> Vec<Finding> {
    let mut check = Check {
        root,
        is_live,
        homes: BTreeSet::from(["/root".into()]),
        judged: BTreeMap::new(),
        things: BTreeMap::new(),
        findings: Vec::new(),
    };
    check.homes();
    check.programs();
    check.configuration(only);
    let ids = MACHINE_IDS.iter();
    ids.for_each(|path| check.line(Code::ImageMachineId, path));
    check.line(Code::ImageHostname, "/etc/hostname");
    check.preserved_hostname();
    for (code, places) in PLACES {
        // Files that a running machine has in memory are not in its image.
        let is_in_image = |place: &&&str| !(is_live && place.starts_with("/run/"));
        for place in places.iter().filter(is_in_image) {
            check.below(*code, Path::new("/"), place);
            // Not those without a dot: `/usr/sbin` may be a home directory.
            if place.starts_with("/home/*/.") {
                check.below(*code, Path::new(""), &place.replace("/home/*", "~"));
            }
        }
    }
    check.settings();
    for ((code, is_by_hand), places) in std::mem::take(&mut check.things) {
        let shown = places.iter().map(|place| check.shown(place));
        let seen = |most| Finding::new(code, first(shown, most, ", "));
        let paths = places.iter().map(|place| shell_path(&root.join(place)));
        let command = format!("rm -rf {}", paths.collect::<Vec<_>>().join(" "));
        check.add(match is_by_hand {
            // Without its file, the system itself can no longer remove the registration from the server.
            _ if code == Code::ImageOsRegistration => seen(BY_HAND_MAX),
            true => seen(BY_HAND_MAX).with_remedy(BY_HAND),
            false => seen(NAMED_MAX).and_command(CommandPlace::Image, command),
        });
    }
    check.findings.sort_by_key(|finding| finding.code);
    check.findings
}

/// A check that is in progress.
struct Check<'a> {
    root: &'a Root,
    is_live: bool,
    /// The home directories, except those in `/home` without an account, as the accounts name them: a user may have linked one.
    homes: BTreeSet<PathBuf>,
    /// For each directory above a thing, its target, and whether it is open and away.
    judged: BTreeMap<PathBuf, (PathBuf, bool, bool)>,
    /// The files and directories that must not be there, by whether they are removed by hand. A path may be a symbolic link:
    /// commands remove that, never its target.
    things: BTreeMap<(Code, bool), BTreeSet<PathBuf>>,
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

    /// Returns what was read. That it could not be read is a finding, unless it is absent.
    fn read<T>(&mut self, read: Result<T, ReadError>) -> Option<T> {
        if let Some(error) = read.as_ref().err().filter(|error| !error.is_absent()) {
            self.find(Code::ImageUnreadable, chain(error));
        }
        read.ok()
    }

    /// Checks the programs that each machine needs. Each has one finding at most: the first that prevents its start.
    fn programs(&mut self) {
        for ([missing, masked, disabled], programs, units) in PROGRAMS {
            let unit = match programs.iter().any(|path| self.root.exists(path)) {
                true => unit::find(self.root, units)
                    .ok_or_else(|| format!("unit {}", units.join(" or "))),
                false => Err(programs.join(" or ")),
            };
            let (name, (code, state, verb)) = match unit {
                Err(names) => {
                    self.find(missing, format!("{names} is missing"));
                    continue;
                }
                Ok((name, Enablement::Masked)) => (name, (masked, "masked", "unmask")),
                Ok((name, Enablement::Disabled)) => (name, (disabled, "disabled", "enable")),
                Ok((_, Enablement::Enabled | Enablement::Static)) => continue,
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
                let seen = first(errors.problems.iter(), NAMED_MAX, "; ");
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

    /// Checks a file with one line. If it is unique to a machine, the file is emptied; a link is removed, because its target may be
    /// used elsewhere.
    fn line(&mut self, code: Code, path: &str) {
        let steps = self.root.steps(path);
        let is_in_memory = self.is_live && steps.last().is_some_and(|to| to.starts_with("/run"));
        // A link to another of the files, which is checked anyway.
        let mut others = MACHINE_IDS.iter().filter(|other| **other != path);
        if is_in_memory || others.any(|other| steps.iter().any(|step| step == Path::new(other))) {
            return;
        }
        let bytes = self.read(self.root.read(path, FILE_MAX));
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
        let seen = match code {
            Code::ImageHostname => self.hostname(&text).map(|name| format!("says {name}")),
            _ if NO_MACHINE_ID.contains(&text.trim()) => None,
            _ => Some("contains an ID".to_owned()),
        };
        let Some(seen) = seen else { return };
        let file = Path::new(path);
        if self.judge(file.parent().unwrap_or(file)).1 {
            return self.thing(code, file);
        }
        let place = self.at(file);
        // dbus-daemon rejects an empty ID, and dbus-uuidgen creates a missing one; systemd initializes an empty one.
        let is_kept = !path.contains("/dbus/") && self.root.link_target(path).is_none();
        let verb = if is_kept { "truncate -s 0" } else { "rm -rf" };
        let command = format!("{verb} {}", shell_path(&self.root.join(&place)));
        self.find_with(code, format!("{} {seen}", self.shown(&place)), command);
    }

    /// Returns the hostname that a file sets, if it is that of one machine.
    fn hostname<'t>(&self, text: &'t str) -> Option<&'t str> {
        let release = os_release(self.root);
        let name = effective_hostname(text)?;
        let mut defaults = ["DEFAULT_HOSTNAME", "ID"].into_iter();
        let is_default = defaults.any(|key| value(&release, key) == name);
        (!is_default && !ANONYMOUS.contains(&name) && !is_hostname_template(name)).then_some(name)
    }

    /// Checks whether cloud-init leaves the hostname alone. The last of its files with the setting counts.
    fn preserved_hostname(&mut self) {
        let mut paths = self.matching(Path::new("/etc/cloud"), "cloud.cfg.d/*.cfg");
        paths.insert(0, "/etc/cloud/cloud.cfg".into());
        let kept = paths.iter().rev().find_map(|path| {
            let text = self.read(self.root.read(path, FILE_MAX))?;
            Some((path, preserves_hostname(&String::from_utf8_lossy(&text))?))
        });
        if let Some((path, true)) = kept {
            let shown = self.shown(&self.at(path));
            self.add(setting(Code::ImageHostname, "preserve_hostname", &shown));
        }
    }

    /// Adds the home directories of all accounts: of one without a shell, a key may still be that of its service.
    fn homes(&mut self) {
        let path = "/etc/passwd";
        if let Some(target) = self.root.dangling(path) {
            let seen = format!("{path} leads to {}, which does not exist", target.display());
            self.find(Code::ImageUnreadable, seen);
        }
        let bytes = self.read(self.root.read(path, FILE_MAX));
        let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
        let home = |line: &str| Some(Path::new("/").join(line.split(':').nth(5)?));
        self.homes.extend(text.lines().filter_map(home));
        if self.homes.len() > HOMES_MAX {
            let seen = format!("/etc/passwd names more than {HOMES_MAX} home directories");
            self.add(Finding::new(Code::ImageUnreadable, seen).with_remedy(MANY));
        }
    }

    /// Checks the configuration of RKE2, K3s and the kubelet, and the places that follow from it.
    fn settings(&mut self) {
        let (mut found, mut secret_files) = (Vec::new(), Vec::new());
        let mut each = |setting: &Setting<'_>| {
            if SECRET_FILE.contains(&setting.name) {
                let names = setting.values.iter().filter(|name| !name.is_empty());
                secret_files.extend(names.map(PathBuf::from));
            }
            let mut values = setting.values.iter();
            if let Some(code) = values.find_map(|value| code_of(setting.name, value)) {
                let (key, path) = (setting.key.to_owned(), setting.path.to_owned());
                found.push((setting.kind, code, key, path));
            }
        };
        let (distributions, problems) = read_with(self.root, Some(&mut each));
        let problems = problems.iter().map(|problem| chain(problem));
        problems.for_each(|seen| self.find(Code::ImageUnreadable, seen));
        self.credentials(&distributions);
        let secret_files = secret_files.iter();
        secret_files.for_each(|path| self.file(Code::ImageClusterToken, path));
        // With a node ID that is unique to each machine, the name can be the same on all of them.
        let is_of_one_vm = self.root.exists(NODE_ID);
        let has_id = |kind| {
            let mut distributions = distributions.iter();
            !is_of_one_vm && distributions.any(|one| one.kind == kind && one.with_node_id)
        };
        for (kind, code, key, path) in found {
            let place = self.at(&path);
            // Our drop-in is already a finding as a whole.
            let is_known = self.things.iter().any(|((code, _), known)| {
                *code == Code::ImageRegistrationDropIn && known.contains(&place)
            });
            if !is_known && (code != Code::ImageNodeName || !has_id(kind)) {
                self.add(setting(code, &key, &self.shown(&place)));
            }
        }
        // <https://docs.k3s.io/installation/private-registry>
        for path in self.matching(Path::new("/etc/rancher"), "*/registries.yaml") {
            let text = self.root.read(&path, FILE_MAX).map(Zeroizing::new);
            match self.read(text).map(|text| parse(&text)) {
                Some(Ok(document)) if has_login(&document) => {
                    let shown = self.shown(&self.at(&path));
                    self.add(setting(Code::ImageClusterToken, "auth", &shown));
                }
                None | Some(Ok(_) | Err(DocumentError::Empty)) => {}
                Some(Err(problem)) => {
                    let seen = format!("`{}` {problem}", path.display());
                    self.find(Code::ImageUnreadable, seen);
                }
            }
        }
    }

    /// Checks for credentials at all paths where the agent searches for them, and next to those.
    fn credentials(&mut self, distributions: &[Distribution]) {
        let candidates = harvester_candidates(None, distributions).into_iter();
        candidates.for_each(|one| self.file(Code::ImageHarvesterCredential, &one.path));
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
            for (code, file) in DATA {
                self.below(code, dir, file);
            }
        }
    }

    /// Adds everything that matches a pattern below `dir`.
    fn below(&mut self, code: Code, dir: &Path, pattern: &str) {
        let mut paths = self.matching(dir, pattern);
        // A copy is a file: kubelet.conf.d is a directory of settings.
        let is_copy = pattern.ends_with(".*") || pattern.ends_with("/*kubeconfig");
        let is_dir = |path: &PathBuf| self.root.metadata(path).is_ok_and(|found| found.is_dir());
        paths.retain(|path| !is_copy || !is_dir(path));
        paths.iter().for_each(|path| self.thing(code, path));
    }

    /// Returns the paths below `dir` that match a pattern.
    fn matching(&mut self, dir: &Path, pattern: &str) -> Vec<PathBuf> {
        let mut paths = vec![dir.to_owned()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let found = paths.iter().flat_map(|dir| self.entries(dir, part));
            paths = found.take(PATHS_MAX + 1).collect();
            if paths.len() > PATHS_MAX {
                let all = dir.join(pattern);
                let seen = format!("more than {PATHS_MAX} paths match {}", all.display());
                self.add(Finding::new(Code::ImageUnreadable, seen).with_remedy(MANY));
            }
        }
        paths
    }

    /// Returns the paths in a directory that match one part of a pattern; for `~`, the home directories.
    fn entries(&mut self, dir: &Path, part: &str) -> Vec<PathBuf> {
        if part == "~" {
            return self.homes.iter().take(HOMES_MAX).cloned().collect();
        }
        let Some((start, end)) = part.split_once('*') else {
            return vec![dir.join(part)];
        };
        let fits = |name: &OsString| {
            let rest = name.as_encoded_bytes().strip_prefix(start.as_bytes());
            rest.is_some_and(|rest| rest.ends_with(end.as_bytes()))
        };
        let names = self.read(self.root.list(dir)).into_iter().flatten();
        names.filter(fits).map(|name| dir.join(name)).collect()
    }

    /// Adds the file that a setting names, if it is present and not empty. A directory is never added: the setting is wrong, and the
    /// directory may be one of the system.
    fn file(&mut self, code: Code, path: &Path) {
        if !self.root.metadata(path).is_ok_and(|found| found.is_dir()) {
            self.thing(code, path);
        } else if self.counts(path) {
            let path = path.display();
            let seen = format!("a setting names {path} as a file, but it is a directory");
            let finding = Finding::new(Code::ImageUnreadable, seen);
            self.add(finding.with_remedy("Correct the setting that names this path."));
        }
    }

    /// Adds a file or directory, if it is present and not empty.
    fn thing(&mut self, code: Code, path: &Path) {
        // This file has an effect even if it is empty or a broken link.
        let is_mark = code == Code::ImageCloudInitDisabled
            && (self.root.link_target(path).is_some() || self.root.exists(path));
        if !is_mark && !self.counts(path) {
            return;
        }
        let (real, is_open, is_away) = self.judge(path.parent().unwrap_or(path));
        let inside = path.file_name().filter(|_| !is_away);
        let place = inside.map_or_else(|| path.into(), |name| real.join(name));
        let things = self.things.entry((code, is_open || is_away));
        things.or_default().insert(place);
    }

    /// Returns the target of a directory, and whether it is open and away. Each one is resolved once: it takes long below hundreds
    /// of others.
    ///
    /// Open: a user can replace it by a link before a command is run. In a tree, there is no user.
    ///
    /// Away: a directory on its path, in a home directory, leads out of that, or the home directory is a link. The user may have linked
    /// one of the system, whose files no command may remove. Only root can link its own, as OSTree does.
    fn judge(&mut self, dir: &Path) -> (PathBuf, bool, bool) {
        if let Some(judged) = self.judged.get(dir) {
            return judged.clone();
        }
        let above = dir.parent().map(|above| self.judge(above));
        let (above, _, mut is_away) = above.unwrap_or_default();
        let own = dir.file_name().map(|name| above.join(name));
        let own = own.filter(|own| self.root.read_link(own).is_none());
        let real = own.clone().unwrap_or_else(|| self.root.resolve(dir));
        // Without a link, it leads out of nothing that the one above it does not.
        if own.is_none() {
            let is_home =
                |at: &&Path| at.parent() == Some("/home".as_ref()) || self.homes.contains(*at);
            let mut homes = dir.ancestors().filter(is_home);
            is_away |= homes.any(|home| match self.judged.get(home) {
                Some((above, ..)) => !real.starts_with(above),
                None => home.parent().is_some() && home != Path::new("/root"),
            });
        }
        let is_open = self.is_live && changeable_except(self.root, dir, &OF_SERVICES).is_some();
        let judged = (real, is_open, is_away);
        self.judged.insert(dir.to_owned(), judged.clone());
        judged
    }

    /// Reports whether a path exists, and is neither an empty file nor an empty directory.
    fn counts(&mut self, path: &Path) -> bool {
        let found = self.read(self.root.metadata(path));
        found.is_some_and(|found| match found.is_dir() {
            true => self.read(self.root.list(path)).unwrap_or_default() != Vec::<OsString>::new(),
            false => !found.is_file() || found.len() > 0,
        })
    }

    /// Resolves all links in a path, except that at its end.
    fn at(&self, path: &Path) -> PathBuf {
        let place = self.root.place(path);
        place.unwrap_or_else(|| self.root.resolve(path))
    }

    /// Returns a path as it is shown: a link with its target.
    fn shown(&self, path: &Path) -> String {
        match (path.display(), self.root.resolve(path)) {
            (shown, target) if target == path => shown.to_string(),
            (shown, target) => format!("{shown} (a link to {})", target.display()),
        }
    }

    /// Returns the option of a program that works in the tree; nothing for the running system.
    fn in_root(&self) -> String {
        let dir: PathBuf = self.root.join("/").components().collect();
        match self.is_live {
            true => String::new(),
            false => format!("--root={} ", shell_path(&dir)),
        }
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
