// SPDX-License-Identifier: Apache-2.0
//! Reads the tree of an image that is being built.
//!
//! Of what may be a secret only its presence is looked at, never its content; the exception is the configuration of RKE2 and
//! K3s, which must be read to know whether it holds a token, and of which only the key is kept.

mod unit;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::distribution::read_distribution;
use super::guest_agent::{PROGRAMS, os_release, value};
use crate::bake::Code;
use crate::config::{self, Effective, Origin};
use crate::credentials::search::{harvester_candidates, kubelet_candidates};
use crate::escape::chain;
use crate::facts::distribution::{Distribution, DistributionKind, Secret, SecretForm};
use crate::facts::guest_agent::{Family, UNITS};
use crate::facts::image::{Image, Pinned, Service, TextFile, Trace};
use crate::root::{ReadError, Root};

/// A file of one short line; of a longer one nothing more needs to be known.
const LINE_MAX: u64 = 4 << 10;

/// Paths that one place may stand for; the tree is not ours.
const PATHS_MAX: usize = 10_000;

/// Our program, as packages install it.
const PROGRAM: &str = "/usr/bin/harvester-node-agent";

/// Our unit.
const UNIT: &str = "harvester-node-agent.service";

/// Keys of our own configuration that fit one machine only.
const ONE_VM: [&str; 2] = ["harvester.vm", "guest.node_name"];

/// Files that RKE2's and K3s' kubelet makes below the data directory. Images for installation without a network lie beside
/// them, and may stay.
const AGENT_FILES: [&str; 3] = ["agent/*.kubeconfig", "agent/*.key", "agent/*.crt"];

/// What a server of RKE2 or K3s makes below the data directory. Manifests may lie beside it, and may stay.
const SERVER_FILES: [&str; 6] = [
    "server/tls",
    "server/cred",
    "server/db",
    "server/token",
    "server/node-token",
    "server/agent-token",
];

/// Reads all of it. `only` is the one configuration file to read, as for every command.
pub fn read(root: &Root, only: Option<&Path>) -> Image {
    let mut reader = Reader {
        root,
        traces: Vec::new(),
        unreadable: Vec::new(),
    };
    let (distributions, problems) = read_distribution(root);
    reader
        .unreadable
        .extend(problems.iter().map(|problem| chain(problem)));
    let (pinned, configuration_faults) = reader.configuration(only);
    for code in Code::ALL {
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
        unit: unit::find(root, &[UNIT]),
    };
    Image {
        machine_ids: ["/etc/machine-id", "/var/lib/dbus/machine-id"]
            .iter()
            .filter_map(|path| reader.line(path))
            .collect(),
        hostname: reader.line("/etc/hostname"),
        default_hostnames: defaults.into(),
        secrets: reader.secrets(&distributions),
        guest_agent,
        agent,
        pinned,
        configuration_faults,
        family: Family::of(value(&release, "ID"), value(&release, "ID_LIKE")),
        traces: reader.traces,
        unreadable: reader.unreadable,
    }
}

struct Reader<'a> {
    root: &'a Root,
    traces: Vec<Trace>,
    unreadable: Vec<String>,
}

impl Reader<'_> {
    /// Our own configuration: the lines that fit one machine only, and its faults. A kubeconfig that it names is a trace.
    fn configuration(&mut self, only: Option<&Path>) -> (Vec<Pinned>, Vec<String>) {
        let loaded = match config::load(self.root, only) {
            Ok(loaded) => loaded,
            Err(errors) => {
                let lines = errors.to_string().lines().map(str::to_owned).collect();
                return (Vec::new(), lines);
            }
        };
        let settings = &loaded.settings;
        for (code, path) in [
            (Code::HarvesterCredential, &settings.harvester.kubeconfig),
            (Code::KubeletCredential, &settings.guest.kubeconfig),
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

    /// Credentials at every place where the agent would look for them, and beside those.
    fn credentials(&mut self, distributions: &[Distribution]) {
        for candidate in harvester_candidates(None, distributions) {
            self.thing(Code::HarvesterCredential, &candidate.path);
        }
        // One for the distributions as they are configured, one for the usual places.
        for distributions in [distributions, &[]] {
            for candidate in kubelet_candidates(None, distributions) {
                self.thing(Code::KubeletCredential, &candidate.path);
            }
        }
        let configured = distributions.iter().map(|one| one.data_dir.as_path());
        let usual =
            [DistributionKind::Rke2, DistributionKind::K3s].map(DistributionKind::default_data_dir);
        for dir in configured.chain(usual) {
            let agent = AGENT_FILES.map(|file| (Code::KubeletCredential, file));
            let server = SERVER_FILES.map(|file| (Code::ClusterKeys, file));
            for (code, file) in agent.into_iter().chain(server) {
                self.below(code, dir.to_owned(), file);
            }
        }
    }

    /// The secrets that are there: of those in files of their own, the ones that exist.
    fn secrets(&mut self, distributions: &[Distribution]) -> Vec<Secret> {
        let mut found: Vec<Secret> = Vec::new();
        for secret in distributions.iter().flat_map(|one| &one.secrets) {
            let mut secret = secret.clone();
            secret.origin = self.root.resolve(&secret.origin);
            if let SecretForm::File(path) = &mut secret.form {
                *path = self.root.resolve(&*path);
                if !self.counts(path) {
                    continue;
                }
            }
            if !found.contains(&secret) {
                found.push(secret);
            }
        }
        found
    }

    /// A file of one line, unless it is absent or a link to another one.
    fn line(&mut self, path: &str) -> Option<TextFile> {
        // The file of D-Bus is a link to systemd's on most systems.
        if self.root.link_target(path).is_some() {
            return None;
        }
        let text = match self.root.read(path, LINE_MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
            Err(error) => {
                self.failed(&error);
                return None;
            }
        };
        Some(TextFile {
            path: self.root.resolve(path),
            text,
        })
    }

    /// Notes every thing that a place of the catalogue stands for.
    fn place(&mut self, code: Code, place: &str) {
        // What a running machine has in memory does not get into its image.
        if !(self.root.is_live() && place.starts_with("/run/")) {
            self.below(code, PathBuf::from("/"), place);
        }
    }

    /// Notes every thing that a pattern below `dir` stands for.
    fn below(&mut self, code: Code, dir: PathBuf, pattern: &str) {
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

    /// The entries of a directory whose names begin and end like this.
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

    /// Notes a thing that is there and counts.
    fn thing(&mut self, code: Code, path: &Path) {
        let trace = Trace {
            code,
            path: self.root.resolve(path),
        };
        if !self.traces.contains(&trace) && self.counts(path) {
            self.traces.push(trace);
        }
    }

    /// Whether something is there: no empty file, and no directory without entries.
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
        let line = chain(error);
        if !error.is_absent() && !self.unreadable.contains(&line) {
            self.unreadable.push(line);
        }
    }
}
