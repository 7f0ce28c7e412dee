// SPDX-License-Identifier: Apache-2.0
//! Reads the credentials of both APIs, and forgets what was read with the previous ones.

use super::due::Due;
use super::state::{Listing, Observer};
use crate::catalog::Api;
use crate::config::Settings;
use crate::facts::UnavailableKind;
use crate::facts::names::Namespace;
use crate::facts::trigger::Scope;
use crate::observe::credentials;
use crate::observe::distribution::read_distribution;

/// Reports whether the credential files of the two APIs must be read. `failures` are those of the facts that are read with them.
pub(super) fn reads_credentials(
    scope: Scope,
    failures: [Option<UnavailableKind>; 2],
    has_any: bool,
) -> bool {
    // If the server rejects the credential, the file may contain a newer one, even without an inotify event.
    let mut kinds = failures.into_iter().flatten();
    scope.contains(Scope::FILES)
        || !has_any
        || kinds.any(|kind| matches!(kind, UnavailableKind::Credential | UnavailableKind::Tls))
        || scope.contains(Scope::AFRESH) && may_need_credentials(failures)
}

/// Reports whether another credential may fix the failed reads. It is then read immediately.
pub(super) fn may_need_credentials(failures: [Option<UnavailableKind>; 2]) -> bool {
    let mut kinds = failures.into_iter().flatten();
    kinds.any(|kind| kind != UnavailableKind::Unreachable)
}

impl Observer {
    /// Returns why the facts are unknown that are read with the two credentials.
    pub(super) fn failures(&self) -> [Option<UnavailableKind>; 2] {
        [Api::Harvester, Api::Guest].map(|api| Some(self.facts.read_failure(api)?.kind))
    }

    /// Reads the credentials of both APIs. Returns what must be read again with a credential that changed.
    pub(super) fn read_credentials(&mut self, settings: &Settings) -> Due {
        let ([old_harvester, old_guest], namespace) = (self.generations(), self.namespace());
        (self.facts.distributions, self.distribution_problems) = read_distribution(&self.root);
        self.connections
            .refresh(&self.root, settings, &self.facts.distributions);
        let (guest, harvester) = (&self.connections.guest, &self.connections.harvester);
        let kubelet = |link| credentials::kubelet(link, settings);
        self.facts.kubelet = guest.link().and_then(kubelet).into();
        let of_harvester = |link| credentials::harvester(link, settings);
        self.facts.harvester = harvester.link().map(of_harvester).into();
        let [new_harvester, new_guest] = self.generations();
        let mut doubted = Due::empty();
        if old_harvester != new_harvester || namespace != self.namespace() {
            self.forget(Api::Harvester);
            doubted |= Due::VM;
        }
        if old_guest != new_guest {
            self.forget(Api::Guest);
            doubted |= Due::NODE;
        }
        doubted
    }

    /// Forgets what was read with the previous credential of an API, which may be for another cluster, with objects of the same names.
    /// The facts stay until they are read again, and with them the labels of hosts: a new name may interrupt the reads, and the round in
    /// its place must not ask about a host of the previous Harvester.
    pub(super) fn forget(&mut self, api: Api) {
        self.is_cleared = false;
        match api {
            Api::Guest => self.last_node = None,
            Api::Harvester => {
                self.own = None;
                self.listing = Listing::default();
                self.is_outdated = true;
            }
        }
    }

    /// Returns the generation of each credential in use: Harvester's, the guest cluster's.
    pub(super) fn generations(&self) -> [Option<u64>; 2] {
        [&self.connections.harvester, &self.connections.guest]
            .map(|side| side.link().ok().map(|link| link.generation))
    }

    /// Returns the namespace in which our VM is searched for.
    fn namespace(&self) -> Option<Namespace> {
        let harvester = self.facts.harvester.known();
        harvester.map(|known| known.namespace.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{Authority, harvester_kubeconfig, tree, write};
    use crate::agent::source_board::SourceBoard;
    use crate::decide::fixtures::World;
    use crate::observe::harvester::{Names, OwnInstance};
    use crate::wire::dbus::Bus;

    #[test]
    fn credentials_are_read_where_they_may_be_the_remedy() {
        let none = [None; 2];
        let node = |kind| [None, Some(kind)];
        let rows = [
            (Scope::NONE, none, true, false),
            (Scope::NONE, none, false, true),
            (Scope::FILES, none, true, true),
            (Scope::REFUSED, none, true, true),
            (Scope::NONE, node(UnavailableKind::Credential), true, true),
            (Scope::NONE, node(UnavailableKind::Tls), true, true),
            (Scope::NONE, node(UnavailableKind::Forbidden), true, false),
            // A reload of the configuration.
            (Scope::RELOAD, none, true, false),
            (Scope::RELOAD, node(UnavailableKind::Forbidden), true, true),
            (
                Scope::RELOAD,
                node(UnavailableKind::Unreachable),
                true,
                false,
            ),
        ];
        for (scope, failures, has_any, expected) in rows {
            let reads = reads_credentials(scope, failures, has_any);
            assert_eq!(reads, expected, "{scope:?} {failures:?} {has_any}");
        }
    }

    #[test]
    fn what_was_read_from_a_harvester_is_forgotten_with_its_credential_and_namespace() {
        let (_dir, root) = tree();
        let path = "/etc/kubernetes/cloud-config";
        let authority = Authority::new("ca");
        let mut settings = Settings::default();
        let mut observer = Observer::new(
            root.clone(),
            Bus::new(&root, None),
            SourceBoard::default(),
            None,
        );
        let mut changes = |settings: &Settings| {
            let mut world = World::new();
            observer.is_cleared = true;
            observer.own = Some(OwnInstance {
                vmi: world.vmi().clone(),
                others: world.observation.candidates.known().unwrap().clone(),
                names: Names::default(),
            });
            observer.last_node = Some(world.node().clone());
            observer.listing.is_done = true;
            observer.is_outdated = false;
            let doubted = observer.read_credentials(settings);
            let kept = [
                observer.own.is_some(),
                observer.is_cleared,
                observer.listing.is_done,
                !observer.is_outdated,
            ];
            assert!(observer.last_node.is_some());
            assert_eq!(kept, [doubted.is_empty(); 4]);
            doubted
        };
        let vm = Due::VM;
        assert_eq!(changes(&settings), Due::empty(), "there is none");
        write(&root, path, &harvester_kubeconfig(&authority, "one"));
        assert_eq!(changes(&settings), vm, "the first one");
        assert_eq!(changes(&settings), Due::empty(), "the same one");
        write(&root, path, &harvester_kubeconfig(&authority, "two"));
        assert_eq!(changes(&settings), vm, "another one");
        settings.harvester.namespace = Some(Namespace::parse("team-b").unwrap());
        assert_eq!(changes(&settings), vm, "another namespace");
        std::fs::remove_file(root.join(path)).unwrap();
        assert_eq!(changes(&settings), vm, "it was removed");
    }

    #[test]
    fn our_node_is_forgotten_with_the_kubelets_credential_and_nothing_of_harvester_is() {
        let (_dir, root) = tree();
        let path = "/etc/kubernetes/kubelet.conf";
        let bus = Bus::new(&root, None);
        let mut observer = Observer::new(root.clone(), bus, SourceBoard::default(), None);
        let mut changes = || {
            observer.last_node = Some(World::new().node().clone());
            observer.listing.is_done = true;
            observer.is_cleared = true;
            let doubted = observer.read_credentials(&Settings::default());
            let kept = [observer.last_node.is_some(), observer.is_cleared];
            assert_eq!(kept, [doubted.is_empty(); 2]);
            assert!(observer.listing.is_done && !observer.is_outdated);
            doubted
        };
        assert_eq!(changes(), Due::empty(), "there is none");
        let text = harvester_kubeconfig(&Authority::new("ca"), "one");
        write(&root, path, &text);
        assert_eq!(changes(), Due::NODE, "the first one");
        assert_eq!(changes(), Due::empty(), "the same one");
        std::fs::remove_file(root.join(path)).unwrap();
        assert_eq!(changes(), Due::NODE, "it was removed");
    }
}
