// SPDX-License-Identifier: Apache-2.0
//! The two API servers: for each the credential in use and the client made from it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::access::Credential;
use crate::access::kubeconfig::KUBECONFIG_MAX;
use crate::access::own_api;
use crate::access::search::{self, Candidate};
use crate::access::source::{CredentialSource, LoadOutcome};
use crate::access::trust::changeable;
use crate::catalog::{Api, Code, CommandPlace, Finding, Group};
use crate::config::Settings;
use crate::decide::schedule::Random;
use crate::facts::distribution::Distribution;
use crate::facts::requests::Requests;
use crate::facts::{Unavailable, UnavailableKind};
use crate::sys::escape::{chain, shell_path};
use crate::sys::root::{ReadError, Root};
use crate::wire::backoff::Backoff;
use crate::wire::kubeapi::{Client, Tally, Timeouts};

/// The access to both API servers.
#[derive(Debug, Default)]
pub struct Connections {
    /// Harvester's API.
    pub harvester: ApiAccess,
    /// The guest cluster's API, as the kubelet.
    pub guest: ApiAccess,
    /// The request timeouts for new clients.
    pub timeouts: Timeouts,
}

/// The access to one API server.
#[derive(Debug, Default)]
pub struct ApiAccess {
    source: CredentialSource,
    /// The link, or why there is none; `None` before the first search.
    link: Option<Result<ApiLink, Unavailable>>,
    /// Whether the kernel could not read a file, which may pass.
    is_unread: bool,
    /// The problems of a credential that works nevertheless, as of the last read.
    findings: Vec<Finding>,
    /// The files whose change requires a new read, as of the last read.
    files: BTreeSet<PathBuf>,
    generation: u64,
    /// Outlives the clients: a new credential does not reset the counts.
    tally: Tally,
    /// Outlives the clients too, and is shared by the reads, the writes and the watch.
    backoff: Backoff,
}

/// A credential and the client made from it. A clone shares both.
#[derive(Debug, Clone)]
pub struct ApiLink {
    /// The credential.
    pub credential: Arc<Credential>,
    /// The client.
    pub client: Client,
    /// The number of changes of the credential.
    pub generation: u64,
}

impl Connections {
    /// Reads the credentials again and creates new clients for those that changed.
    pub fn refresh(&mut self, root: &Root, settings: &Settings, distributions: &[Distribution]) {
        let timeouts = self.timeouts;
        let guest = search::kubelet_candidates(settings.guest.kubeconfig.as_deref(), distributions);
        self.guest.refresh(root, &guest, timeouts, Api::Guest);
        let harvester =
            search::harvester_candidates(settings.harvester.kubeconfig.as_deref(), distributions);
        self.harvester
            .refresh(root, &harvester, timeouts, Api::Harvester);
        self.harvester
            .note_missing(|| match settings.harvester.kubeconfig {
                Some(_) => elsewhere(root, &search::harvester_candidates(None, distributions)),
                None => search::unresolved(distributions),
            });
        self.guest.note_missing(|| {
            settings.guest.kubeconfig.as_ref()?;
            elsewhere(root, &search::kubelet_candidates(None, distributions))
        });
        if let (Ok(harvester), Ok(guest)) = (self.harvester.link(), self.guest.link())
            && let Some(evidence) =
                own_api::is_own_api(&harvester.credential.server, &guest.credential.server)
        {
            let file = harvester.credential.kubeconfig.display();
            let text = format!(
                "`{file}` points to {}, the API of this guest cluster: {evidence}",
                harvester.client.server()
            );
            self.harvester
                .refuse(Unavailable::new(UnavailableKind::OwnApi, text));
        }
    }

    /// Returns the access to one of them.
    pub fn of(&self, api: Api) -> &ApiAccess {
        match api {
            Api::Harvester => &self.harvester,
            Api::Guest => &self.guest,
        }
    }

    /// Returns the problems of credentials that work nevertheless.
    pub fn findings(&self) -> Vec<Finding> {
        let sides = Api::ALL.iter().map(|api| self.of(*api).findings.as_slice());
        let mut findings = sides.collect::<Vec<_>>().concat();
        if let Ok(link) = self.harvester.link()
            && own_api::is_loopback(&link.credential.server)
        {
            let server = link.client.server();
            findings.push(Finding::new(Code::HarvesterOnLoopback, server));
        }
        findings
    }

    /// Reports whether the kernel could not read a file of a credential, which may pass.
    pub fn is_unread(&self) -> bool {
        self.harvester.is_unread || self.guest.is_unread
    }

    /// Enables backoff after failures, for each API separately.
    pub fn back_off(&mut self, random: fn() -> Random) {
        self.harvester.backoff = Backoff::new(random);
        self.guest.backoff = Backoff::new(random);
    }

    /// Skips the backoff of both APIs after earlier failures.
    pub fn skip_backoff(&self) {
        self.harvester.backoff.skip_backoff();
        self.guest.backoff.skip_backoff();
    }

    /// Returns the number of requests to each API.
    pub fn requests(&self) -> Vec<Requests> {
        let of = |api: Api| {
            let counts = self.of(api).tally.counts().into_iter();
            counts.map(move |(result, count)| Requests { api, result, count })
        };
        Api::ALL.iter().copied().flat_map(of).collect()
    }

    /// Returns every file whose change may change a credential: the paths that are searched for one, and all files of the last
    /// read, missing files included.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let mut files = self.harvester.files.clone();
        files.extend(self.guest.files.iter().cloned());
        files
    }
}

impl ApiAccess {
    /// Returns the link, or the reason why there is none.
    pub fn link(&self) -> Result<&ApiLink, Unavailable> {
        match &self.link {
            Some(link) => link.as_ref().map_err(Clone::clone),
            None => Err(Unavailable::new(
                UnavailableKind::NotAsked,
                "not searched yet",
            )),
        }
    }

    /// Returns the rest of the backoff.
    pub fn deferred(&self) -> Option<Duration> {
        self.backoff.left()
    }

    /// Drops the link for a reason that reading the files again does not remove.
    pub fn refuse(&mut self, why: Unavailable) {
        self.link = Some(Err(why));
    }

    /// Adds a note to the problem if the kubeconfig does not exist.
    fn note_missing(&mut self, note: impl FnOnce() -> Option<String>) {
        if let Some(Err(why)) = &mut self.link
            && why.kind == UnavailableKind::Missing
            && let Some(note) = note()
        {
            why.text = format!("{}; {note}", why.text);
        }
    }

    /// Reads the credential again, and notes its files and who else can read or change them.
    fn refresh(&mut self, root: &Root, candidates: &[Candidate], timeouts: Timeouts, api: Api) {
        self.is_unread = false;
        let kept = self.load(root, candidates, timeouts, api);
        let kept = kept.map(|problem| {
            let text = format!("{}: {problem}", api.credential());
            about_credential(api, Code::CredentialReloadFailed, text)
        });
        let exposed = exposed(root, &self.source, api);
        self.findings = kept.into_iter().chain(exposed).collect();
        self.files.clear();
        let places = candidates.iter().map(|place| place.path.clone());
        self.files.extend(places.chain(self.source.watched(root)));
    }

    /// Reads the credential again. Returns why the one before stays in use.
    fn load(
        &mut self,
        root: &Root,
        candidates: &[Candidate],
        timeouts: Timeouts,
        api: Api,
    ) -> Option<String> {
        let what = api.credential();
        let Some((candidate, outcome)) = self.source.search(root, candidates) else {
            // A missing file means that the credential was removed.
            self.source = CredentialSource::default();
            let tried = candidates.iter();
            let tried = tried.map(|candidate| match root.dangling(&candidate.path) {
                Some(target) => format!(
                    "{candidate}, which is a symbolic link to {}, which does not exist",
                    target.display()
                ),
                None => candidate.to_string(),
            });
            let tried: Vec<String> = tried.collect();
            let text = format!("no {what} at {}", tried.join(", "));
            self.refuse(Unavailable::new(UnavailableKind::Missing, text));
            return None;
        };
        match outcome {
            LoadOutcome::Unreadable(error) => {
                self.is_unread = error.is_passing();
                let text = match &candidate.named_by {
                    Some(setting) => format!("{} ({setting})", chain(&error)),
                    None => chain(&error),
                };
                if self.link().is_ok() {
                    return Some(text);
                }
                let text = format!("{what}: {text}");
                self.refuse(unusable(root, &candidate.path, error.is_denied(), text));
            }
            LoadOutcome::Unchanged if self.link().is_ok() => {}
            LoadOutcome::Unchanged | LoadOutcome::Changed => {
                let credential = self.source.credential().cloned()?;
                let (tally, backoff) = (self.tally.clone(), self.backoff.clone());
                match Client::counting(&credential, timeouts, tally, backoff) {
                    Ok(client) => {
                        // A request that failed with the old credential may succeed with the new one.
                        self.backoff.succeeded();
                        self.generation += 1;
                        self.link = Some(Ok(ApiLink {
                            credential,
                            client,
                            generation: self.generation,
                        }));
                    }
                    Err(error) => {
                        self.refuse(Unavailable::new(UnavailableKind::Credential, chain(&error)));
                    }
                }
            }
            LoadOutcome::Failed(error) => {
                self.is_unread = error.is_passing();
                let text = chain(&error);
                if self.source.credential().is_some() {
                    return Some(text);
                }
                self.refuse(unusable(root, &candidate.path, error.is_denied(), text));
            }
        }
        None
    }
}

/// Returns the first kubeconfig at a path that is not searched because a setting names another one.
fn elsewhere(root: &Root, standard: &[Candidate]) -> Option<String> {
    let mut standard = standard.iter();
    let is_file = |one: &&Candidate| {
        let found = root.metadata(&one.path);
        found.is_ok_and(|found| found.is_file() && found.len() > 0)
    };
    let found = standard.find(is_file)?;
    Some(format!(
        "there is a file at {found}, which is not searched because of the setting"
    ))
}

/// Returns what users other than root can read or change of a credential.
fn exposed(root: &Root, source: &CredentialSource, api: Api) -> Vec<Finding> {
    let readable = source.exposures(root).into_iter();
    let readable = readable.map(|exposure| {
        let (path, mode) = (exposure.path.display(), exposure.mode);
        let text = format!("{path} has mode {mode:04o}");
        let file = shell_path(&exposure.path);
        // A user who can change the path can make the command follow a link.
        let is_safe = changeable(root, &exposure.path).is_none();
        let command = is_safe.then(|| format!("chmod 0600 {file}"));
        about_credential(api, Code::CredentialExposed, text)
            .with_commands(command.into_iter().collect())
    });
    let changeable = source.changeable(root).into_iter();
    let changeable = changeable.map(|found| {
        let place = shell_path(&found.place);
        let finding = about_credential(api, Code::CredentialWritableByOthers, found.to_string());
        let is_directory = |metadata: std::fs::Metadata| metadata.is_dir();
        // Others may have changed the file, so its content comes first. A directory may rightly be another user's.
        let checks = finding.commands().iter().take(1).cloned().collect();
        let finding = finding.with_all_commands(checks);
        match root.metadata(&found.place).is_ok_and(is_directory) {
            true => finding.and_command(CommandPlace::Vm, format!("ls -ld {place}")),
            false => finding
                .and_command(CommandPlace::Vm, format!("chown -h root:root {place}"))
                .and_command(CommandPlace::Vm, format!("chmod go-w {place}")),
        }
    });
    readable.chain(changeable).collect()
}

/// Returns a finding about the credential of an API.
fn about_credential(api: Api, code: Code, text: String) -> Finding {
    Finding::new(code, text).about(Group::of_credential(api))
}

/// Returns why a kubeconfig cannot be used.
fn unusable(root: &Root, path: &Path, is_denied: bool, text: String) -> Unavailable {
    let kind = match root.metadata(path) {
        _ if is_denied => UnavailableKind::Forbidden,
        Ok(found) if found.is_dir() => UnavailableKind::Directory,
        Ok(found) if found.is_file() && found.len() == 0 => UnavailableKind::EmptyFile,
        // No command may open it: that may wait forever, and `kubeconfig --replace` reads no larger file.
        Ok(found) if !found.is_file() || found.len() > KUBECONFIG_MAX => UnavailableKind::Malformed,
        Err(ReadError::Loop(_)) => UnavailableKind::Malformed,
        Ok(_) | Err(_) => UnavailableKind::Credential,
    };
    Unavailable::new(kind, text)
}

#[cfg(test)]
mod tests {
    use inotify::{Inotify, WatchMask};

    use super::*;
    use crate::access::testing::{Authority, harvester_kubeconfig, tree, write};

    #[test]
    fn an_empty_file_and_a_directory_are_distinguished_from_an_invalid_file() {
        let (_dir, root) = tree();
        let file = search::CLOUD_CONFIG;
        let found = || {
            let mut connections = Connections::default();
            connections.refresh(&root, &Settings::default(), &[]);
            let why = connections.harvester.link().unwrap_err();
            (why.kind, why.text)
        };
        write(&root, file, "kind: Config");
        assert_eq!(found().0, UnavailableKind::Credential);
        // Such as a damaged one, or the configuration of another cloud.
        write(&root, file, "kind: Con");
        assert_eq!(found().0, UnavailableKind::Credential);
        write(&root, file, &" ".repeat(1 + KUBECONFIG_MAX as usize));
        assert_eq!(found().0, UnavailableKind::Malformed);
        write(&root, file, "");
        let text = format!("`{file}` is empty");
        assert_eq!(found(), (UnavailableKind::EmptyFile, text));
        std::fs::remove_file(root.join(file)).unwrap();
        std::fs::create_dir(root.join(file)).unwrap();
        let (kind, text) = found();
        assert_eq!(kind, UnavailableKind::Directory);
        println!("{text}");
        assert!(text.starts_with("Harvester kubeconfig: "), "{text}");
        std::fs::remove_dir(root.join(file)).unwrap();
        std::os::unix::fs::symlink("cloud-config", root.join(file)).unwrap();
        assert_eq!(found().0, UnavailableKind::Malformed);
        std::fs::remove_file(root.join(file)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.join(file)).unwrap();
        assert_eq!(found().0, UnavailableKind::Malformed);
    }

    #[test]
    fn a_missing_file_that_a_setting_names_and_a_link_to_nothing_are_named() {
        let (_dir, root) = tree();
        let mut settings = Settings::default();
        let found = |settings: &Settings| {
            let mut connections = Connections::default();
            connections.refresh(&root, settings, &[]);
            let sides = [&connections.harvester, &connections.guest];
            sides.map(|side| side.link().unwrap_err().text)
        };
        std::fs::create_dir_all(root.join("/etc/kubernetes")).unwrap();
        let link = root.join(search::CLOUD_CONFIG);
        std::os::unix::fs::symlink("../cloud/gone", &link).unwrap();
        let [harvester, _] = found(&settings);
        let end = ", /etc/kubernetes/cloud-config, which is a symbolic link to /etc/cloud/gone, which does not exist";
        assert!(harvester.ends_with(end), "{harvester}");
        std::fs::remove_file(link).unwrap();
        settings.harvester.kubeconfig = "/etc/mine".to_owned().try_into().ok();
        settings.guest.kubeconfig = "/etc/own".to_owned().try_into().ok();
        let missing = [
            "no Harvester kubeconfig at /etc/mine (`[harvester] kubeconfig`)",
            "no kubelet kubeconfig at /etc/own (`[guest_cluster] kubeconfig`)",
        ];
        assert_eq!(found(&settings), missing);
        let standard = [search::CLOUD_CONFIG, search::KUBEADM_KUBECONFIG];
        for path in standard {
            write(&root, path, "x");
        }
        let [first, second] = standard.map(|path| {
            format!("; there is a file at {path}, which is not searched because of the setting")
        });
        let [harvester, kubelet] = missing;
        let expected = [format!("{harvester}{first}"), format!("{kubelet}{second}")];
        assert_eq!(found(&settings), expected);
    }

    /// A file that is read twice may be replaced in between, so that another one is used than was found.
    #[test]
    fn each_kubeconfig_is_read_once() {
        let (_dir, root) = tree();
        let file = search::CLOUD_CONFIG;
        write(
            &root,
            file,
            &harvester_kubeconfig(&Authority::new("ca"), "one"),
        );
        let mut inotify = Inotify::init().unwrap();
        let mask = WatchMask::OPEN | WatchMask::CLOSE_NOWRITE;
        inotify.watches().add(root.join(file), mask).unwrap();
        let mut connections = Connections::default();
        connections.refresh(&root, &Settings::default(), &[]);
        connections.harvester.link().unwrap();
        let events = inotify.read_events(&mut [0; 1024]).unwrap().count();
        assert_eq!(events, 2, "it is opened and closed once");
    }
}
