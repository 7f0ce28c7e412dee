// SPDX-License-Identifier: Apache-2.0

use super::super::testing::{DAY, Room, certificate};
use super::*;
use crate::access::token::{Claims, TokenKind};
use crate::commands::doctor::facts::servers::Shown;
use crate::facts::names::{Namespace, ServiceAccount};
use crate::facts::{Fact, Unavailable};

fn harvester(room: &mut Room) -> &mut Harvester {
    match &mut room.world.observation.harvester {
        Fact::Known(harvester) => harvester,
        other => panic!("{other:?}"),
    }
}

/// Creates a machine with such a token, whose server has this address and fails with this error.
fn with_token(kind: TokenKind, server: &str, failure: Option<UnavailableKind>) -> Room {
    let mut room = Room::new();
    room.examination.credentials.token = Fact::Known(kind);
    harvester(&mut room).server = server.to_owned();
    if let Some(kind) = failure {
        room.world.observation.candidates = Fact::failed(kind, "said so");
    }
    room
}

fn account(namespace: &str) -> TokenKind {
    TokenKind::Jwt(Claims {
        service_account: ServiceAccount::parse(&format!("{namespace}:gc8")).ok(),
        ..Claims::default()
    })
}

fn rancher() -> TokenKind {
    TokenKind::Rancher {
        name: "kubeconfig-u-abcde".to_owned(),
    }
}

const API: &str = "https://192.0.2.1:6443";

#[test]
fn each_wrong_pair_of_token_and_server_has_its_own_name() {
    let (tls, refused, unauthorized) = (
        UnavailableKind::Tls,
        UnavailableKind::Refused,
        UnavailableKind::Credential,
    );
    for (kind, server, failure, expected) in [
        (account("default"), API, None, None),
        (account("default"), API, Some(unauthorized), None),
        (account("default"), API, Some(tls), None),
        (TokenKind::Opaque, API, Some(unauthorized), None),
        (rancher(), API, None, Some(Code::RancherTokenInUse)),
        (
            rancher(),
            API,
            Some(unauthorized),
            Some(Code::RancherTokenRejected),
        ),
        (
            rancher(),
            "https://r.example/k8s/clusters/c-m-x",
            Some(unauthorized),
            Some(Code::RancherTokenRejected),
        ),
        (
            account("default"),
            "https://r.example/k8s/clusters/c-m-x",
            Some(unauthorized),
            Some(Code::ServerIsRancher),
        ),
        (
            account("default"),
            "https://r.example:8443/k8s/clusters/c-m-x/",
            Some(unauthorized),
            Some(Code::ServerIsRancher),
        ),
        (
            account("default"),
            "https://192.0.2.1/k8s/clusters/local",
            Some(unauthorized),
            None,
        ),
        (
            account("default"),
            "https://192.0.2.1/k8s/clusters/local",
            Some(tls),
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            account("default"),
            "https://192.0.2.1",
            Some(tls),
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            account("default"),
            "https://harvester.example",
            Some(refused),
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            account("default"),
            "https://[fd00::1]",
            Some(tls),
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            account("default"),
            "https://[fd00::1]:6443",
            Some(tls),
            None,
        ),
        (account("default"), "https://192.0.2.1", None, None),
    ] {
        let room = with_token(kind.clone(), server, failure);
        let expected: Vec<Code> = expected.into_iter().collect();
        assert_eq!(
            room.codes(findings),
            expected,
            "{kind:?} {server} {failure:?}"
        );
    }
}

#[test]
fn a_namespace_is_wrong_only_where_nothing_is_found_in_it() {
    let mut room = with_token(account("team-a"), API, None);
    assert_eq!(room.codes(findings), []);
    room.world.observation.candidates = Fact::failed(UnavailableKind::Forbidden, "403");
    let found = room.ask(findings);
    assert_eq!(found[0].code, Code::CredentialNamespaceDiffers);
    assert!(
        found[0].seen.contains("team-a") && found[0].seen.contains("/etc/kubernetes/cloud-config")
    );
    room.world.settings.harvester.namespace = Some(Namespace::parse("default").unwrap());
    assert!(room.ask(findings)[0].seen.contains("[harvester] namespace"));
    harvester(&mut room).namespace = Namespace::parse("team-a").unwrap();
    assert_eq!(room.codes(findings), []);
}

#[test]
fn what_stands_in_the_place_of_the_credential_is_named() {
    for (content, expected) in [
        (
            CredentialContent::Directory,
            Some(Code::CredentialIsDirectory),
        ),
        (CredentialContent::EmptyFile, Some(Code::CredentialIsEmpty)),
        (CredentialContent::File, None),
        (CredentialContent::Unknown, None),
    ] {
        let mut room = Room::new();
        room.world.observation.harvester =
            Fact::failed(UnavailableKind::Credential, "it cannot be used");
        let place = |path: &str, content| CredentialPlace {
            path: path.into(),
            named_in: None,
            content,
        };
        // The search uses the first path that exists.
        room.examination.credentials.places = Fact::Known(vec![
            place("/a", CredentialContent::Nothing),
            place("/b", content),
            place("/c", CredentialContent::Directory),
        ]);
        let found = room.ask(findings);
        let codes: Vec<Code> = found.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, Vec::from_iter(expected), "{content:?}");
        assert!(found.iter().all(|finding| finding.seen.contains("/b")));
    }
}

#[test]
fn a_token_of_rancher_is_named_in_a_file_that_cannot_be_used() {
    let mut room = Room::new();
    room.world.observation.harvester =
        Fact::failed(UnavailableKind::Credential, "it has no CA certificate");
    let file = CredentialPlace {
        path: "/b".into(),
        named_in: None,
        content: CredentialContent::File,
    };
    room.examination.credentials.places = Fact::Known(vec![file]);
    for (kind, expected) in [
        (account("default"), vec![]),
        (rancher(), vec![Code::RancherTokenInUse]),
    ] {
        room.examination.credentials.token = Fact::Known(kind);
        assert_eq!(room.codes(findings), expected);
    }
}

#[test]
fn a_path_that_is_named_in_vain_is_reported_while_another_one_serves() {
    let mut room = Room::new();
    room.examination.credentials.places = Fact::Known(vec![CredentialPlace {
        path: "/data/cloud-provider-config".into(),
        named_in: Some("/etc/rancher/rke2/config.yaml".into()),
        content: CredentialContent::Nothing,
    }]);
    assert_eq!(room.codes(findings), [Code::CredentialNotAtNamedPath]);
    room.world.observation.harvester =
        Fact::failed(UnavailableKind::Missing, "no credential at all");
    assert_eq!(room.codes(findings), []);
}

#[test]
fn authorities_and_servers_are_reported_at_thirty_fourteen_seven_and_one_days() {
    for (left, text) in [
        (31 * DAY, None),
        (30 * DAY - 1, Some("less than 30 days")),
        (14 * DAY - 1, Some("less than 14 days")),
        (7 * DAY - 1, Some("less than 7 days")),
        (DAY - 1, Some("less than a day")),
        (0, Some("expired at")),
        (-DAY, Some("expired at")),
    ] {
        for role in [
            CredentialRole::Client,
            CredentialRole::Authority,
            CredentialRole::Server,
        ] {
            let mut room = Room::new();
            let certificate = certificate(Api::Harvester, role, -DAY, left);
            room.examination.credentials.certificates = Fact::Known(vec![certificate]);
            let found = room.ask(findings);
            // The running agent reports the client certificate.
            let expected = text.filter(|_| role != CredentialRole::Client);
            assert_eq!(
                found.len(),
                usize::from(expected.is_some()),
                "{left} {role:?}"
            );
            for finding in found {
                assert_eq!(finding.code, Code::CredentialExpires);
                assert!(finding.seen.contains(expected.unwrap()), "{}", finding.seen);
            }
        }
    }
}

#[test]
fn a_server_under_another_name_is_reported_with_the_names_that_it_has() {
    let shown = |names: &[&str], origin: &str| {
        let mut room = Room::new();
        room.world.observation.candidates =
            Fact::Failed(Unavailable::new(UnavailableKind::Tls, "not trusted"));
        let mut certificate = certificate(Api::Harvester, CredentialRole::Server, -DAY, 300 * DAY);
        certificate.origin = origin.to_owned();
        certificate.names = names.iter().map(ToString::to_string).collect();
        room.examination.servers.harvester = Fact::Known(Shown {
            certificate: Some(certificate),
            ahead: None,
        });
        room
    };
    let room = shown(&["192.0.2.10", "rke2"], "https://harvester.example:6443");
    let found = room.ask(findings);
    assert_eq!(found[0].code, Code::ServerNotInCertificate);
    assert!(
        found[0].seen.ends_with("192.0.2.10, rke2"),
        "{}",
        found[0].seen
    );
    for (name, origin) in [
        ("192.0.2.10", "https://192.0.2.10:6443"),
        ("fd00::10", "https://[fd00::10]:6443/k8s/clusters/local"),
        ("Harvester.example", "https://harvester.example:6443"),
        ("*.example", "https://harvester.example:6443"),
    ] {
        assert_eq!(shown(&[name], origin).codes(findings), [], "{name}");
    }
    for (name, origin) in [
        ("*.example", "https://a.b.example:6443"),
        ("*.example", "https://example:6443"),
        ("192.0.2.1", "https://192.0.2.10:6443"),
    ] {
        assert_eq!(
            shown(&[name], origin).codes(findings),
            [Code::ServerNotInCertificate],
            "{name}"
        );
    }
    // A trusted server has a name that matches, such as `tls-server-name`.
    let mut trusted = shown(&["rke2"], "https://harvester.example:6443");
    trusted.world.observation = Room::new().world.observation;
    assert_eq!(trusted.codes(findings), []);
}
