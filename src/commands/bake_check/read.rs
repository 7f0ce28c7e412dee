// SPDX-License-Identifier: Apache-2.0
//! Reads the tree of an image that is being built.
//!
//! For possible secrets, only their presence is checked, not their content. The exception is the configuration of RKE2, K3s and
//! their registries: it must be parsed to detect a secret, and only the key is kept.

mod registries;
mod unit;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::access::search::{harvester_candidates, kubelet_candidates};
use crate::commands::bake_check::facts::{
    Image, ImagePlace, ImageTextFile, Pinned, Service, Trace, UnitFile, Unreadable,
};
use crate::commands::bake_check::rules::FaultCode;
use crate::config::{self, Effective, Origin};
use crate::facts::distribution::{Distribution, DistributionKind, Matter, Unshareable};
use crate::facts::guest_agent::{Family, UNITS};
use crate::observe::distribution::{DistributionProblem, read_distribution};
use crate::observe::guest_agent::{PROGRAMS, os_release, value};
use crate::sys::escape::chain;
use crate::sys::root::{ReadError, Root};

/// The maximum size of a file with one short line; the rest of a longer one does not matter.
const LINE_MAX: u64 = 4 << 10;

/// The maximum number of paths for one place; the tree is untrusted.
const PATHS_MAX: usize = 10_000;

/// The path of the program in the packages.
const PROGRAM: &str = "/usr/bin/harvester-node-agent";

/// Our unit.
const UNIT: &str = "harvester-node-agent.service";

/// The keys of our configuration that are valid for one machine only.
const ONE_VM: [&str; 2] = ["harvester.vm", "guest_cluster.node_name"];

/// The files with a machine-id. On most systems, that of D-Bus is a link to that of systemd.
const MACHINE_IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

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

/// Reads the image. `only` is the single configuration file to read, as for every command.
pub fn read(root: &Root, only: Option<&Path>) -> Image {
    let mut reader = ImageReader {
        root,
        traces: Vec::new(),
        unreadable: Vec::new(),
    };
    let (distributions, problems) = read_distribution(root);
    problems.iter().for_each(|problem| reader.problem(problem));
    let (pinned, configuration_faults) = reader.configuration(only);
    for code in FaultCode::ALL {
        for place in code.entry().places {
            reader.place(*code, place);
        }
    }
    reader.credentials(&distributions);
    let release = os_release(root);
    let defaults = ["DEFAULT_HOSTNAME", "ID"].map(|key| value(&release, key).to_owned());
    let guest_agent = Service {
        has_program: PROGRAMS.iter().any(|path| root.exists(path)),
        unit: unit::find(root, &UNITS),
    };
    let agent = Service {
        has_program: root.exists(PROGRAM),
        unit: own_unit(root),
    };
    Image {
        machine_ids: MACHINE_IDS
            .iter()
            .filter_map(|path| reader.line(path, &MACHINE_IDS))
            .collect(),
        hostname: reader.line("/etc/hostname", &[]),
        default_hostnames: defaults.into(),
        unshareable: reader.unshareable(&distributions),
        guest_agent,
        agent,
        pinned,
        configuration_faults,
        family: Family::of(value(&release, "ID"), value(&release, "ID_LIKE")),
        traces: reader.traces,
        unreadable: reader.unreadable,
    }
}

/// Reads our unit from the files below the root.
pub(crate) fn own_unit(root: &Root) -> Option<UnitFile> {
    unit::find(root, &[UNIT])
}

struct ImageReader<'a> {
    root: &'a Root,
    traces: Vec<Trace>,
    unreadable: Vec<Unreadable>,
}

impl ImageReader<'_> {
    /// Reads our configuration: the lines that are valid for one machine only, and its errors. A kubeconfig in it is a trace.
    fn configuration(&mut self, only: Option<&Path>) -> (Vec<Pinned>, Vec<String>) {
        let loaded = match config::load(self.root, only) {
            Ok(loaded) => loaded,
            Err(errors) => return (Vec::new(), errors.lines().collect()),
        };
        let settings = &loaded.settings;
        for (code, path) in [
            (
                FaultCode::HarvesterCredential,
                &settings.harvester.kubeconfig,
            ),
            (FaultCode::KubeletCredential, &settings.guest.kubeconfig),
        ] {
            path.iter().for_each(|path| self.thing(code, path));
        }
        let is_set = [
            settings.harvester.vm.is_some(),
            settings.guest.node_name.is_some(),
        ];
        let mut pinned = Vec::new();
        for (key, _) in ONE_VM.into_iter().zip(is_set).filter(|(_, set)| *set) {
            let mut values = loaded.values.iter();
            if let Some(Effective { origin, .. }) = values.find(|value| value.key == key)
                && let Origin::File { path, line } = origin
            {
                pinned.push(Pinned {
                    key: key.to_owned(),
                    path: self.root.resolve(path),
                    line: *line,
                });
            }
        }
        (pinned, Vec::new())
    }

    /// Reads the credentials at all paths where the agent searches for them, and next to those.
    fn credentials(&mut self, distributions: &[Distribution]) {
        for candidate in harvester_candidates(None, distributions) {
            self.thing(FaultCode::HarvesterCredential, &candidate.path);
        }
        // The first iteration is for the configured distributions, the second one for the default paths.
        for distributions in [distributions, &[]] {
            for candidate in kubelet_candidates(None, distributions) {
                self.thing(FaultCode::KubeletCredential, &candidate.path);
            }
        }
        let configured = distributions.iter().map(|one| one.data_dir.as_path());
        let usual =
            [DistributionKind::Rke2, DistributionKind::K3s].map(DistributionKind::default_data_dir);
        for dir in configured.chain(usual) {
            let agent = AGENT_FILES.map(|file| (FaultCode::KubeletCredential, file));
            let server = SERVER_FILES.map(|file| (FaultCode::ClusterKeys, file));
            for (code, file) in agent.into_iter().chain(server) {
                self.below(code, dir.to_owned(), file);
            }
        }
    }

    /// Reads the settings that must be unique to one machine. A secret in its own file is a trace, if the file exists.
    fn unshareable(&mut self, distributions: &[Distribution]) -> Vec<(ImagePlace, Unshareable)> {
        let (logins, problems) = registries::read(self.root);
        problems.iter().for_each(|problem| self.problem(problem));
        let mut found = Vec::new();
        for distribution in distributions {
            // With a node ID that is unique to each machine, the name can be the same on all of them.
            let has_node_id = distribution.with_node_id && !self.root.exists(NODE_ID);
            for setting in &distribution.unshareable {
                match &setting.matter {
                    Matter::SecretFile(path) => self.thing(FaultCode::ClusterToken, path),
                    Matter::NodeName if has_node_id => {}
                    _ => found.push(setting.clone()),
                }
            }
        }
        found.extend(logins);
        let mut placed: Vec<(ImagePlace, Unshareable)> = Vec::new();
        for setting in found {
            let place = self.at(&setting.origin);
            // Our drop-in is already a fault as a whole.
            let is_trace =
                |trace: &Trace| trace.code == FaultCode::RegistrationDropIn && trace.place == place;
            let is_known = self.traces.iter().any(is_trace);
            let setting = (place, setting);
            if !is_known && !placed.contains(&setting) {
                placed.push(setting);
            }
        }
        placed
    }

    /// Reads a file with one line. Returns `None` if it is absent or a link through one of `others`, which are checked anyway.
    fn line(&mut self, path: &str, others: &[&str]) -> Option<ImageTextFile> {
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
        let text = match self.root.read(path, LINE_MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) => {
                self.failed(&error);
                return None;
            }
        };
        Some(ImageTextFile { place, text })
    }

    /// Adds everything that matches a place in the catalog.
    fn place(&mut self, code: FaultCode, place: &str) {
        // Files that a running machine has in memory are not in its image.
        if !(self.root.is_live() && place.starts_with("/run/")) {
            self.below(code, PathBuf::from("/"), place);
        }
    }

    /// Adds everything that matches a pattern below `dir`.
    fn below(&mut self, code: FaultCode, dir: PathBuf, pattern: &str) {
        let mut paths = vec![dir];
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
        paths.iter().for_each(|path| self.thing(code, path));
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

    /// Adds a file or directory, if it is present and not empty.
    fn thing(&mut self, code: FaultCode, path: &Path) {
        let place = self.at(path);
        // This file has an effect even if it is empty or a broken link.
        let is_mark = code == FaultCode::CloudInitDisabled;
        let is_there = is_mark && (place.leads_to.is_some() || self.root.exists(path));
        let trace = Trace { code, place };
        if !self.traces.contains(&trace) && (is_there || self.counts(path)) {
            self.traces.push(trace);
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
            let is_denied = matches!(error, ReadError::Denied(_));
            self.unreadable(chain(error), error.path(), is_denied);
        }
    }

    /// Adds an error in a file of a distribution.
    fn problem(&mut self, problem: &DistributionProblem) {
        let line = chain(problem);
        match problem {
            DistributionProblem::Unreadable { source, .. } => {
                let is_denied = matches!(source, ReadError::Denied(_));
                self.unreadable(line, source.path(), is_denied);
            }
            DistributionProblem::Document { path, .. }
            | DistributionProblem::WrongKind { path, .. } => self.unreadable(line, path, false),
        }
    }

    fn unreadable(&mut self, line: String, path: &Path, is_denied: bool) {
        let path = self.at(path).path;
        let unreadable = Unreadable {
            line,
            path,
            is_denied,
        };
        if !self.unreadable.contains(&unreadable) {
            self.unreadable.push(unreadable);
        }
    }

    /// Resolves all links in a path. If the path itself is a link, its target is returned separately.
    fn at(&self, path: &Path) -> ImagePlace {
        let resolved = self.root.resolve(path);
        let name = path.parent().zip(path.file_name());
        let link = name
            .filter(|_| self.root.link_target(path).is_some())
            .map(|(folder, name)| self.root.resolve(folder).join(name));
        match link {
            Some(path) => ImagePlace {
                path,
                leads_to: Some(resolved),
            },
            None => ImagePlace {
                path: resolved,
                leads_to: None,
            },
        }
    }
}
