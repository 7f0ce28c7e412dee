// SPDX-License-Identifier: Apache-2.0

use std::os::unix::fs::{lchown, symlink};

use super::*;
use crate::access::testing::{tree, write};
use crate::commands::doctor::testing::Bench;
use crate::decide::fixtures::World;
use crate::facts::names::{Namespace, ServiceAccount};

/// The file has tokens of a service account, of Rancher or without a type; what is read with each; and paths of a tree: of a file that
/// says nothing of the credential, and those that a configuration names, with a link's target. Below are the findings with their commands,
/// and the path for a new kubeconfig.
#[test]
fn each_credential_has_its_findings() {
    let file = "src/commands/doctor/checks/credentials/cases.txt";
    harvester_lab::expected::cases_are_expected(file, |case| {
        let ((_dir, root), mut bench) = (tree(), Bench::new());
        let (mut token, mut places) = (None, Vec::new());
        let named_by = Some("`cloud-provider-config` in /a".to_owned());
        for word in case.split(' ') {
            let World {
                observation,
                settings,
                ..
            } = &mut bench.world;
            let mut failed = |kind| observation.candidates = Fact::failed(kind, "said so");
            match word.split_once('=').unwrap_or((word, "")) {
                ("account", namespace) => {
                    let service_account = ServiceAccount::parse(&format!("{namespace}:gc8")).ok();
                    token = Some(TokenKind::Jwt(Claims {
                        service_account,
                        ..Claims::default()
                    }));
                }
                ("rancher", _) => {
                    token = Some(TokenKind::Rancher {
                        name: "kubeconfig-u-x".to_owned(),
                    });
                }
                ("opaque", _) => token = Some(TokenKind::Opaque),
                ("tls", _) => failed(UnavailableKind::Tls),
                ("refused", _) => failed(UnavailableKind::Refused),
                ("unauthorized", _) => failed(UnavailableKind::Credential),
                ("forbidden", _) => failed(UnavailableKind::Forbidden),
                ("configured", namespace) => {
                    settings.harvester.namespace = Namespace::parse(namespace).ok();
                }
                ("unusable", _) => {
                    observation.harvester = Fact::failed(UnavailableKind::Credential, "no CA");
                }
                ("missing", _) => {
                    observation.harvester = Fact::failed(UnavailableKind::Missing, "none");
                }
                ("server", url) => known(&mut bench).server = url.to_owned(),
                ("namespace", name) => {
                    known(&mut bench).namespace = Namespace::parse(name).unwrap();
                }
                ("other", path) => places.push((path.to_owned(), None)),
                ("file", path) => {
                    write(&root, path, "");
                    places.push((path.to_owned(), None));
                }
                (path, target) => {
                    let path = path.replace("\\t", "\t");
                    if !target.is_empty() {
                        std::fs::create_dir(root.join(&path).parent().unwrap()).unwrap();
                        symlink(target, root.join(&path)).unwrap();
                    }
                    places.push((path, named_by.clone()));
                }
            }
        }
        let places = places.into_iter();
        let places = places.map(|(path, named_by)| {
            Place::read(
                &root,
                Candidate {
                    path: path.into(),
                    named_by,
                },
            )
        });
        let places: Vec<Place> = places.collect();
        let found = bench
            .ask(|case| judge(case, token.as_ref(), &places))
            .into_iter();
        let text = found.map(|found| {
            let command = found
                .commands()
                .first()
                .filter(|_| found.code == Code::CredentialNotAtNamedPath);
            let command =
                command.map_or_else(String::new, |command| format!("$ {}\n", command.text));
            format!("{}: {}\n{command}", found.code, found.seen)
        });
        let path = path_to_write(&root, &bench.world.observation, &places).unwrap();
        format!("{}{}", text.collect::<String>(), path.display())
    });
}

fn known(bench: &mut Bench) -> &mut Harvester {
    match &mut bench.world.observation.harvester {
        Fact::Known(harvester) => harvester,
        other => panic!("{other:?}"),
    }
}

#[test]
fn root_is_not_told_to_write_where_a_link_of_another_user_leads() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink("nothing", &link).unwrap();
    // On the running system, this user is another one already, unless it is root, who can give the link away.
    let _ = lchown(&link, Some(12345), None);
    let live = Root::new("/");
    let read = |path: &Path| {
        let named_by = Some("`cloud-provider-config` in /a".to_owned());
        let path = path.to_owned();
        Place::read(&live, Candidate { path, named_by })
    };
    let none = Observation {
        harvester: Fact::failed(UnavailableKind::Missing, "none"),
        ..Observation::default()
    };
    // A command replaces the link, and follows none.
    for (path, start) in [
        (link.clone(), "install -D -T "),
        (link.join("a/b"), "grep "),
    ] {
        let place = [read(&path)];
        assert_eq!(path_to_write(&live, &none, &place), None);
        let found = Bench::new().ask(|case| judge(case, None, &place));
        let command = &found[0].commands()[0].text;
        assert!(command.starts_with(start), "{command}");
    }
}
