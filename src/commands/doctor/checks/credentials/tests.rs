// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::commands::doctor::testing::Bench;
use crate::facts::names::{Namespace, ServiceAccount};

fn harvester(bench: &mut Bench) -> &mut Harvester {
    match &mut bench.world.observation.harvester {
        Fact::Known(harvester) => harvester,
        other => panic!("{other:?}"),
    }
}

fn codes(bench: &Bench, token: Option<&TokenKind>, places: &[Place]) -> Vec<Code> {
    bench.codes(|case| judge(case, token, places))
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

fn place(path: &str, content: Content) -> Place {
    let candidate = Candidate {
        path: path.into(),
        named_by: None,
    };
    Place {
        candidate,
        content,
        dangling: None,
        is_steered: false,
    }
}

const API: &str = "https://192.0.2.1:6443";
const RANCHER: &str = "https://r.example/k8s/clusters/c-m-x";

#[test]
fn each_wrong_pair_of_token_and_server_has_its_own_name() {
    let tls = Some(UnavailableKind::Tls);
    let refused = Some(UnavailableKind::Refused);
    let unauthorized = Some(UnavailableKind::Credential);
    let (account, rancher, opaque) = (account("default"), rancher(), TokenKind::Opaque);
    let local = "https://192.0.2.1/k8s/clusters/local";
    let on_port = "https://r.example:8443/k8s/clusters/c-m-x/";
    for (token, server, failure, expected) in [
        (&account, API, None, None),
        (&account, API, unauthorized, None),
        (&account, API, tls, None),
        (&opaque, API, unauthorized, None),
        (&rancher, API, None, Some(Code::RancherTokenInUse)),
        (
            &rancher,
            API,
            unauthorized,
            Some(Code::RancherTokenRejected),
        ),
        (
            &rancher,
            RANCHER,
            unauthorized,
            Some(Code::RancherTokenRejected),
        ),
        (&account, RANCHER, unauthorized, Some(Code::ServerIsRancher)),
        (&account, on_port, unauthorized, Some(Code::ServerIsRancher)),
        (&account, local, unauthorized, None),
        (&account, local, tls, Some(Code::ServerIsHarvesterUi)),
        (
            &account,
            "https://192.0.2.1",
            tls,
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            &account,
            "https://harvester.example",
            refused,
            Some(Code::ServerIsHarvesterUi),
        ),
        (
            &account,
            "https://[fd00::1]",
            tls,
            Some(Code::ServerIsHarvesterUi),
        ),
        (&account, "https://[fd00::1]:6443", tls, None),
        (&account, "https://192.0.2.1", None, None),
    ] {
        let mut bench = Bench::new();
        harvester(&mut bench).server = server.to_owned();
        if let Some(kind) = failure {
            bench.world.observation.candidates = Fact::failed(kind, "said so");
        }
        let expected: Vec<Code> = expected.into_iter().collect();
        let found = codes(&bench, Some(token), &[]);
        assert_eq!(found, expected, "{token:?} {server} {failure:?}");
    }
}

#[test]
fn a_namespace_is_wrong_only_where_nothing_is_found_in_it() {
    let mut bench = Bench::new();
    let token = account("team-a");
    let texts = |bench: &Bench| bench.texts(|case| judge(case, Some(&token), &[]));
    assert_eq!(texts(&bench), [""; 0]);
    bench.world.observation.candidates = Fact::failed(UnavailableKind::Forbidden, "403");
    let found = texts(&bench);
    assert!(
        found[0].starts_with("credential-namespace-differs: "),
        "{found:?}"
    );
    assert!(found[0].contains("team-a") && found[0].contains("/etc/kubernetes/cloud-config"));
    bench.world.settings.harvester.namespace = Some(Namespace::parse("default").unwrap());
    assert!(texts(&bench)[0].contains("[harvester] namespace"));
    harvester(&mut bench).namespace = Namespace::parse("team-a").unwrap();
    assert_eq!(texts(&bench), [""; 0]);
}

#[test]
fn a_token_of_rancher_is_named_in_a_file_that_cannot_be_used() {
    let mut bench = Bench::new();
    bench.world.observation.harvester =
        Fact::failed(UnavailableKind::Credential, "it has no CA certificate");
    let places = [place("/b", Content::File)];
    for (token, expected) in [
        (account("default"), vec![]),
        (rancher(), vec![Code::RancherTokenInUse]),
    ] {
        assert_eq!(codes(&bench, Some(&token), &places), expected);
    }
}

#[test]
fn a_path_that_is_named_in_vain_is_reported_while_another_one_serves() {
    let mut bench = Bench::new();
    let mut places = [
        place("/other", Content::Nothing),
        place("/data/cloud-provider-config", Content::Nothing),
    ];
    let dir = tempfile::tempdir().unwrap();
    let root = Root::new(dir.path());
    let written = |bench: &Bench, places: &[Place]| {
        path_to_write(&root, &bench.world.observation, places).unwrap()
    };
    let mut none = Bench::new();
    none.world.observation.harvester = Fact::failed(UnavailableKind::Missing, "none");
    let standard = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
    assert_eq!(written(&none, &places), Path::new(standard));
    let setting = "`cloud-provider-config` in /etc/rancher/rke2/config.yaml";
    places[1].candidate.named_by = Some(setting.to_owned());
    let named = "/data/cloud-provider-config";
    assert_eq!(written(&none, &places), Path::new(named));
    std::fs::create_dir(root.join("/data")).unwrap();
    std::os::unix::fs::symlink("../etc/nothing", root.join(named)).unwrap();
    let used = "/etc/kubernetes/cloud-config";
    assert_eq!(written(&bench, &places), Path::new(used));
    assert_eq!(written(&none, &places), Path::new("/etc/nothing"));
    assert_eq!(
        codes(&bench, None, &places),
        [Code::CredentialNotAtNamedPath]
    );
    places[1].candidate.path = "/data/a\tb".into();
    let found = bench.ask(|case| judge(case, None, &places));
    let command = &found[0].commands()[0].text;
    assert!(command.ends_with(r" $'/data/a\011b'"), "{command}");
    // A command that writes to the link would take it away.
    places[1].dangling = Some("/mnt/gone".into());
    let found = bench.ask(|case| judge(case, None, &places));
    assert!(
        found[0]
            .seen
            .contains(", which is a symbolic link to /mnt/gone, which does not exist;"),
        "{found:?}"
    );
    let command = &found[0].commands()[0].text;
    assert!(command.ends_with(" /mnt/gone"), "{command}");
    bench.world.observation.harvester =
        Fact::failed(UnavailableKind::Missing, "no credential at all");
    assert_eq!(codes(&bench, None, &places), []);
}

#[test]
fn root_is_not_told_to_write_where_a_link_of_another_user_leads() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    // On the running system, a user other than root is another one.
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
    }
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
    let [itself, below] = [read(&link), read(&link.join("a/b"))];
    for place in [&itself, &below] {
        let places = std::slice::from_ref(place);
        assert_eq!(path_to_write(&live, &none, places), None);
    }
    let commands = |place| {
        let bench = Bench::new();
        let found = bench.ask(|case| judge(case, None, &[place]));
        found[0].commands()[0].text.clone()
    };
    // It replaces the link, and follows none.
    assert!(commands(itself).starts_with("install -D -T "));
    assert!(commands(below).starts_with("grep "));
}
