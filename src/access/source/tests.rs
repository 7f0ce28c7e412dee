// SPDX-License-Identifier: Apache-2.0
use std::os::unix::fs::{PermissionsExt, symlink};

use secrecy::ExposeSecret;

use super::*;
use crate::access::search::harvester_candidates;
use crate::access::testing::{
    Authority, Client, harvester_kubeconfig, kubelet_kubeconfig, tree, write,
};

const PATH: &str = "/etc/kubernetes/cloud-config";

impl CredentialSource {
    fn new(path: &str) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::default()
        }
    }

    fn refresh(&mut self, root: &Root) -> Option<LoadOutcome> {
        let path = self.path.clone().unwrap();
        self.refresh_from(root, &path)
    }
}

fn source() -> CredentialSource {
    CredentialSource::new(PATH)
}

fn token(source: &CredentialSource) -> String {
    let credential = source.credential().unwrap();
    credential
        .token
        .as_ref()
        .unwrap()
        .expose_secret()
        .to_owned()
}

#[test]
fn a_file_that_is_not_there_yet_is_waited_for() {
    let (_dir, root) = tree();
    let mut source = source();
    assert!(source.refresh(&root).is_none());
    assert_eq!(source.watched(&root), [Path::new(PATH)]);
    write(&root, PATH, "");
    assert!(matches!(
        source.refresh(&root),
        Some(LoadOutcome::Failed(_))
    ));
    write(
        &root,
        PATH,
        &harvester_kubeconfig(&Authority::new("ca"), "one"),
    );
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    assert!(matches!(
        source.refresh(&root),
        Some(LoadOutcome::Unchanged)
    ));
}

#[test]
fn a_write_in_place_a_rename_and_a_flipped_link_are_changes() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let kubeconfig = |token: &str| harvester_kubeconfig(&authority, token);
    let mut source = source();
    write(&root, PATH, &kubeconfig("one"));
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));

    // The same length, and possibly within one tick of the clock.
    write(&root, PATH, &kubeconfig("two"));
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    assert_eq!(token(&source), "two");

    write(&root, "/etc/kubernetes/new", &kubeconfig("three"));
    std::fs::rename(root.join("/etc/kubernetes/new"), root.join(PATH)).unwrap();
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    assert_eq!(token(&source), "three");

    // As the kubelet and projected Secrets do.
    write(&root, "/data/1/config", &kubeconfig("four"));
    write(&root, "/data/2/config", &kubeconfig("five"));
    symlink("1", root.join("/data/current")).unwrap();
    std::fs::remove_file(root.join(PATH)).unwrap();
    symlink("/data/current/config", root.join(PATH)).unwrap();
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    let watched: Vec<PathBuf> = ["/data/1/config", "/data/current", PATH]
        .map(PathBuf::from)
        .into();
    assert_eq!(source.watched(&root), watched);
    symlink("2", root.join("/data/next")).unwrap();
    std::fs::rename(root.join("/data/next"), root.join("/data/current")).unwrap();
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    assert_eq!(token(&source), "five");
    assert!(matches!(
        source.refresh(&root),
        Some(LoadOutcome::Unchanged)
    ));
}

#[test]
fn the_old_credential_stays_while_the_new_one_is_unusable_or_gone() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let text = harvester_kubeconfig(&authority, "one");
    let mut source = source();
    write(&root, PATH, &text);
    source.refresh(&root);
    let first = Arc::clone(source.credential().unwrap());
    let new = harvester_kubeconfig(&authority, "CANARY");
    for broken in [
        "",
        &new[..new.len() / 2],
        "exec",
        &new.replace("token:", "exec:"),
    ] {
        write(&root, PATH, broken);
        match source.refresh(&root) {
            Some(LoadOutcome::Failed(error)) => {
                assert!(!format!("{error} {error:?}").contains("CANARY"));
            }
            other => panic!("{other:?}"),
        }
    }
    std::fs::remove_file(root.join(PATH)).unwrap();
    assert!(source.refresh(&root).is_none());
    assert!(Arc::ptr_eq(&first, source.credential().unwrap()));
    write(&root, PATH, &text);
    assert!(matches!(
        source.refresh(&root),
        Some(LoadOutcome::Unchanged)
    ));
}

#[test]
fn a_certificate_without_its_new_key_keeps_the_old_pair() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let (old, new) = (node(&authority), node(&authority));
    let mut source = CredentialSource::new("/agent/kubelet.kubeconfig");
    write(&root, "/agent/kubelet.kubeconfig", &kubelet_kubeconfig());
    write(&root, "/agent/server-ca.crt", &authority.pem());
    assert!(matches!(
        source.refresh(&root),
        Some(LoadOutcome::Failed(_))
    ));
    // The missing file is watched, otherwise its creation would not be noticed.
    let missing = PathBuf::from("/agent/client-kubelet.crt");
    assert!(source.watched(&root).contains(&missing));
    write(&root, &missing, &old.certificate);
    write(&root, "/agent/client-kubelet.key", &old.key);
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    write(&root, &missing, &new.certificate);
    let Some(LoadOutcome::Failed(error)) = source.refresh(&root) else {
        panic!("half of a rotation is used");
    };
    let error = error.to_string();
    assert!(error.contains("does not match"), "{error}");
    let leaf = |source: &CredentialSource| {
        let pair = source.credential().unwrap().client_certificate.as_ref();
        pair.unwrap().chain[0].clone()
    };
    assert_eq!(leaf(&source), old.der);
    write(&root, "/agent/client-kubelet.key", &new.key);
    assert!(matches!(source.refresh(&root), Some(LoadOutcome::Changed)));
    assert_eq!(leaf(&source), new.der);
}

#[test]
fn the_first_file_is_taken_and_an_unreadable_one_ends_the_search() {
    let (_dir, root) = tree();
    let candidates = harvester_candidates(None, &[]);
    let mut source = CredentialSource::default();
    let mut found = || {
        let (candidate, outcome) = source.search(&root, &candidates)?;
        let is_unreadable = matches!(outcome, LoadOutcome::Unreadable(_));
        Some((candidate.path.to_str().unwrap(), is_unreadable))
    };
    assert_eq!(found(), None);
    write(&root, PATH, "x");
    assert_eq!(found(), Some((PATH, false)));
    // A container runtime creates a directory when a file to mount is missing.
    let folder = "/var/lib/rancher/k3s/etc/config-files/cloud-provider-config";
    std::fs::create_dir_all(root.join(folder)).unwrap();
    assert_eq!(found(), Some((folder, true)));
}

#[test]
fn another_file_has_another_credential_and_one_that_cannot_be_read_changes_nothing() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let candidates = harvester_candidates(None, &[]);
    let mut source = CredentialSource::default();
    write(&root, PATH, &harvester_kubeconfig(&authority, "one"));
    let (_, outcome) = source.search(&root, &candidates).unwrap();
    assert!(matches!(outcome, LoadOutcome::Changed), "{outcome:?}");
    let first = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config";
    std::fs::create_dir_all(root.join(first)).unwrap();
    source.search(&root, &candidates).unwrap();
    assert_eq!(token(&source), "one");
    std::fs::remove_dir(root.join(first)).unwrap();
    let (_, outcome) = source.search(&root, &candidates).unwrap();
    assert!(matches!(outcome, LoadOutcome::Unchanged), "{outcome:?}");
    write(&root, first, "text");
    let (_, outcome) = source.search(&root, &candidates).unwrap();
    assert!(matches!(outcome, LoadOutcome::Failed(_)), "{outcome:?}");
    assert!(source.credential().is_none(), "it is of another file");
}

fn node(authority: &Authority) -> Client {
    authority.client("system:node:a", "system:nodes")
}

#[test]
fn a_secret_that_everybody_can_read_is_reported_unless_a_folder_hides_it() {
    let (_dir, root) = tree();
    let chmod = |path: &str, mode: u32| {
        std::fs::set_permissions(root.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write(
        &root,
        PATH,
        &harvester_kubeconfig(&Authority::new("ca"), "one"),
    );
    chmod("/etc", 0o755);
    chmod("/etc/kubernetes", 0o755);
    let mut source = source();
    source.refresh(&root);
    let exposure = |mode| Exposure {
        path: PATH.into(),
        mode,
    };
    for (mode, expected) in [
        (0o644, vec![exposure(0o644)]),
        (0o602, vec![exposure(0o602)]),
        (0o600, vec![]),
        (0o640, vec![]),
    ] {
        chmod(PATH, mode);
        assert_eq!(source.exposures(&root), expected);
    }
    chmod(PATH, 0o644);
    chmod("/etc/kubernetes", 0o700);
    assert_eq!(source.exposures(&root), []);
}

#[test]
fn files_without_a_secret_may_be_read_by_everybody() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let client = node(&authority);
    for (name, text) in [
        ("kubelet.kubeconfig", &kubelet_kubeconfig()),
        ("server-ca.crt", &authority.pem()),
        ("client-kubelet.crt", &client.certificate),
        ("client-kubelet.key", &client.key),
    ] {
        let path = Path::new("/agent").join(name);
        write(&root, &path, text);
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(root.join(&path), open).unwrap();
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(root.join("/agent"), open).unwrap();
    let mut source = CredentialSource::new("/agent/kubelet.kubeconfig");
    source.refresh(&root);
    let exposed: Vec<PathBuf> = source
        .exposures(&root)
        .into_iter()
        .map(|exposure| exposure.path)
        .collect();
    assert_eq!(exposed, [Path::new("/agent/client-kubelet.key")]);
}

#[test]
fn a_source_prints_no_secret() {
    let (_dir, root) = tree();
    let mut source = source();
    write(
        &root,
        PATH,
        &harvester_kubeconfig(&Authority::new("ca"), "CANARY"),
    );
    let outcome = source.refresh(&root);
    let said = format!("{outcome:?} {source:?}");
    assert!(said.contains("192.0.2.10"));
    assert!(!said.contains("CANARY"));
}
