// SPDX-License-Identifier: Apache-2.0
use std::error::Error;

use base64::prelude::{BASE64_STANDARD, Engine};
use secrecy::ExposeSecret;

use super::*;
use crate::access::testing::{
    Authority, base64, harvester_kubeconfig, jwt, kubelet_kubeconfig, tree, write,
};

const PATH: &str = "/etc/kubernetes/cloud-config";

fn load_text(text: &str) -> Result<Arc<Credential>, CredentialError> {
    let (_dir, root) = tree();
    write(&root, PATH, text);
    load(&root, Path::new(PATH))
}

fn good() -> String {
    harvester_kubeconfig(&Authority::new("harvester-ca"), "CANARY")
}

/// Returns the error and all its causes, in every form that can be logged.
fn everything_said(error: &CredentialError) -> String {
    let mut said = format!("{error:?} {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        said += &format!(" {error:?} {error}");
        cause = error.source();
    }
    said
}

fn token(credential: &Credential) -> &str {
    credential.token.as_ref().unwrap().expose_secret()
}

#[test]
fn harvesters_own_kubeconfig_is_read() {
    let credential = load_text(&good()).unwrap();
    assert_eq!(credential.server.as_str(), "https://192.0.2.10:6443/");
    assert_eq!(credential.namespace.as_ref().unwrap().as_str(), "team-a");
    assert_eq!(token(&credential), "CANARY");
    assert_eq!(credential.certificate_authorities.len(), 1);
    assert_eq!(credential.files, [Path::new(PATH)]);
    assert!(credential.client_certificate.is_none());
    assert!(credential.tls_server_name.is_none() && credential.proxy.is_none());
}

#[test]
fn the_same_in_json_is_read() {
    let ca = base64(&Authority::new("harvester-ca").pem());
    let json = format!(
        r#"{{"apiVersion":"v1","clusters":[{{"name":"a\/b","cluster":{{"server":"https://[2001:db8::1]:6443/x","tls-server-name":"kubernetes","certificate-authority-data":"{ca}"}}}}],
        "contexts":[{{"name":"c","context":{{"cluster":"a/b","user":"u"}}}}],"current-context":"c","users":[{{"name":"u","user":{{"token":"CANARY","exec":null}}}}]}}"#
    );
    let credential = load_text(&json).unwrap();
    assert_eq!(credential.tls_server_name, "kubernetes".try_into().ok());
    assert_eq!(credential.server.path(), "/x");
    assert_eq!(credential.namespace, None);
}

#[test]
fn an_encoded_kubeconfig_is_named_with_how_to_decode_it() {
    let escaped = good().replace('\n', "\\n");
    for (text, said) in [
        (
            serde_json::to_string(&good()).unwrap(),
            "is a JSON string that contains a kubeconfig: decode it (`jq -r .`) into another file with mode 0600",
        ),
        (
            format!("{}\n", serde_json::to_string(&good()).unwrap()),
            "is a JSON string",
        ),
        (
            base64(&good()),
            "is the base64 of a kubeconfig: decode it (`base64 -di`) into another file with mode 0600",
        ),
        (
            base64(&good()).replace("Y2", "Y2\n"),
            "is the base64 of a kubeconfig",
        ),
        (
            escaped.clone(),
            r"with `\n` in place of line breaks: write a line break for each",
        ),
        (format!("'{escaped}'"), r"with `\n` in place of line breaks"),
        (
            "secret://fleet-default:harvesterconfigx".to_owned(),
            "that only Rancher resolves",
        ),
    ] {
        let error = load_text(&text).unwrap_err();
        let all = everything_said(&error);
        assert!(error.to_string().contains(said), "{error}");
        assert!(!all.contains("CANARY"), "{all}");
        // Doctor wraps this text, so a command that is pasted from it would end at any word.
        assert!(!all.contains([';', '>', '&']), "{all}");
    }
    for other in ["text", "\"text\"", "aGVsbG8=", "- a\n- b\n", "\\n"] {
        let error = load_text(other).unwrap_err();
        let error = error.to_string();
        assert!(!error.contains("decode it"), "{other}: {error}");
    }
}

#[test]
fn the_kubelets_kubeconfig_is_read_with_the_files_beside_it() {
    let (_dir, root) = tree();
    let authority = Authority::new("rke2-client-ca@1");
    let client = authority.client("system:node:pool1-abcde", "system:nodes");
    let folder = "/var/lib/rancher/rke2/agent";
    let path = Path::new(folder).join("kubelet.kubeconfig");
    write(&root, &path, &kubelet_kubeconfig());
    write(
        &root,
        Path::new(folder).join("server-ca.crt"),
        &authority.pem(),
    );
    let chain = client.certificate.clone() + &authority.pem();
    write(&root, Path::new(folder).join("client-kubelet.crt"), &chain);
    write(
        &root,
        Path::new(folder).join("client-kubelet.key"),
        &client.key,
    );
    let mut touched = Vec::new();
    let loaded = read(&root, &path, &mut touched).unwrap();
    let names = |files: &[PathBuf]| -> Vec<String> {
        files
            .iter()
            .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&loaded.credential.files),
        [
            "kubelet.kubeconfig",
            "server-ca.crt",
            "client-kubelet.crt",
            "client-kubelet.key"
        ]
    );
    assert_eq!(names(&loaded.secret_files), ["client-kubelet.key"]);
    let pair = loaded.credential.client_certificate.as_ref().unwrap();
    assert_eq!(pair.chain.len(), 2);
    assert_eq!(pair.chain[0], client.der);
}

#[test]
fn certificate_and_key_in_one_file_are_read_named_twice_or_once() {
    let (_dir, root) = tree();
    let authority = Authority::new("kubernetes");
    let client = authority.client("system:node:a", "system:nodes");
    let current = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    write(
        &root,
        "/var/lib/kubelet/pki/kubelet-client-1.pem",
        &(client.certificate + &client.key),
    );
    std::os::unix::fs::symlink("kubelet-client-1.pem", root.join(current)).unwrap();
    let ca = base64(&authority.pem());
    for key in [format!("    client-key: {current}\n"), String::new()] {
        let text = kubelet_kubeconfig()
            .replace(
                "certificate-authority: server-ca.crt",
                &format!("certificate-authority-data: {ca}"),
            )
            .replace(
                "client-certificate: client-kubelet.crt",
                &format!("client-certificate: {current}"),
            )
            .replace("    client-key: client-kubelet.key\n", &key);
        write(&root, "/etc/kubernetes/kubelet.conf", &text);
        let path = Path::new("/etc/kubernetes/kubelet.conf");
        let credential = load(&root, path).unwrap();
        assert!(credential.client_certificate.is_some());
        // The link as it is named, not its current target.
        assert_eq!(credential.files, [path, Path::new(current)]);
    }
}

#[test]
fn data_counts_more_than_a_file_and_a_token_file_more_than_a_token() {
    let (_dir, root) = tree();
    let text = good()
        .replace(
            "    certificate-authority-data",
            "    certificate-authority: nowhere.crt\n    certificate-authority-data",
        )
        .replace("    token:", "    tokenFile: token\n    token:");
    write(&root, PATH, &text);
    let load = || load(&root, Path::new(PATH));
    let first = load().unwrap();
    assert_eq!(token(&first), "CANARY");
    let named = Path::new("/etc/kubernetes/token");
    assert_eq!(first.files, [Path::new(PATH)], "it does not exist yet");
    write(&root, named, " other\n");
    assert_eq!(token(&load().unwrap()), "other");
    write(&root, named, "a\nb");
    assert_eq!(
        load().unwrap_err().to_string(),
        "the token of `users[0].user.tokenFile` in `/etc/kubernetes/token` contains a control character or a line break"
    );
    // What is no file is in no message about files.
    write(
        &root,
        PATH,
        &text.replace(
            "tokenFile: token",
            "tokenFile: kubeconfig-u-abcdefgh:secret",
        ),
    );
    assert_eq!(load().unwrap().files, [Path::new(PATH)]);
}

fn chmod(root: &Root, path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(root.join(path), mode).unwrap();
}

#[test]
fn no_file_is_read_for_a_kubeconfig_that_others_can_change() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let client = authority.client("system:node:a", "system:nodes");
    let path = Path::new("/etc/kubernetes/kubelet.conf");
    let folder = path.parent().unwrap();
    for (file, text) in [
        ("server-ca.crt", &authority.pem()),
        ("client-kubelet.crt", &client.certificate),
        ("client-kubelet.key", &client.key),
        ("secret", &"CANARY".to_owned()),
    ] {
        write(&root, folder.join(file), text);
    }
    let inline = harvester_kubeconfig(&authority, "OWN");
    let token_file = inline.replace(
        "    token:",
        "    tokenFile: /etc/kubernetes/secret\n    token:",
    );
    let authority_file = kubelet_kubeconfig();
    let certificate = authority_file.replace(
        "certificate-authority: server-ca.crt",
        &format!("certificate-authority-data: {}", base64(&authority.pem())),
    );
    let key = certificate.replace(
        "client-certificate: client-kubelet.crt",
        &format!("client-certificate-data: {}", base64(&client.certificate)),
    );
    for (text, named) in [
        (&token_file, "`users[0].user.tokenFile`"),
        (
            &authority_file,
            "`clusters[0].cluster.certificate-authority`",
        ),
        (&certificate, "`users[0].user.client-certificate`"),
        (&key, "`users[0].user.client-key`"),
    ] {
        write(&root, path, text);
        for (place, mode, is_trusted) in [
            // As created by kubeadm, RKE2 and K3s.
            (path, 0o600, true),
            (path, 0o644, true),
            (path, 0o660, false),
            (path, 0o606, false),
            (folder, 0o777, false),
        ] {
            chmod(&root, place, mode);
            match load(&root, path) {
                Ok(_) => assert!(is_trusted, "{named} {mode:o}"),
                Err(error) => {
                    assert!(!is_trusted, "{named} {mode:o}: {error}");
                    let said = everything_said(&error);
                    let what = format!("{} has mode {mode:04o}", place.display());
                    let rule = "only read if the kubeconfig is writable by root alone";
                    for part in [named, path.to_str().unwrap(), rule, &what] {
                        assert!(said.contains(part), "{said}");
                    }
                    assert!(!said.contains("CANARY"), "{said}");
                }
            }
            chmod(&root, path, 0o600);
            chmod(&root, folder, 0o755);
        }
    }
    write(&root, path, &inline);
    chmod(&root, path, 0o666);
    let credential = load(&root, path).unwrap();
    assert_eq!(token(&credential), "OWN", "it names no file");
}

#[test]
fn one_context_needs_no_choice_and_two_do() {
    let without = good().replace("current-context: default\n", "");
    load_text(&without).unwrap();
    let two = without.replace(
        "contexts:\n",
        "contexts:\n- name: other\n  context: {cluster: default, user: default}\n",
    );
    let error = load_text(&two).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("`current-context` is missing"), "{error}");
}

/// The replacements for a part of a valid kubeconfig, with words of the expected error.
const REFUSALS: [(&str, &str, &[&str]); 34] = [
    (
        "token: CANARY",
        "exec: {command: CANARY}",
        &["`users[0].user.exec`", "runs no credential plugins"],
    ),
    (
        "token: CANARY",
        "token: t\n    exec: {}",
        &["`users[0].user.exec`"],
    ),
    (
        "token: CANARY",
        "auth-provider: {name: CANARY}",
        &["`users[0].user.auth-provider`"],
    ),
    (
        "token: CANARY",
        "token: t\n    username: CANARY",
        &["`users[0].user.username`", "basic authentication"],
    ),
    (
        "token: CANARY",
        "password: CANARY",
        &["`users[0].user.password`"],
    ),
    (
        "token: CANARY",
        "token: t\n    as: CANARY",
        &["`users[0].user.as`", "impersonate"],
    ),
    ("token: CANARY", "token: t\n    as-uid: CANARY", &["as-uid"]),
    (
        "token: CANARY",
        "token: t\n    as-groups: [CANARY]",
        &["as-groups"],
    ),
    (
        "token: CANARY",
        "token: t\n    as-user-extra: {a: [CANARY]}",
        &["as-user-extra"],
    ),
    (
        "    token: CANARY",
        "    token: \"\"",
        &["has no credential"],
    ),
    (
        "token: CANARY",
        "token: 12345678",
        &["`users[0].user.token`", "a number", "expected text"],
    ),
    ("token: CANARY", "token: [CANARY]", &["a list"]),
    (
        "token: CANARY",
        "token: \"CANARY\\nx\"",
        &["control character"],
    ),
    ("token: CANARY", "token: CANARY x", &["a space"]),
    ("token: CANARY", "token: eyJDQU5BUlk", &["truncated"]),
    (
        "token: CANARY",
        "tokenFile: nowhere.txt",
        &["`users[0].user.tokenFile`", "does not exist"],
    ),
    (
        "token: CANARY",
        "tokenFile: kubeconfig-user:CANARY",
        &["`users[0].user.tokenFile`", "not the path of a file"],
    ),
    (
        "token: CANARY",
        "client-key: CANARY",
        &["`users[0].user.client-key`", "not the path of a file"],
    ),
    (
        "token: CANARY",
        "client-key-data: CANARY",
        &["client-key-data", "not base64"],
    ),
    (
        "token: CANARY",
        "client-certificate: pki/gone",
        &[
            "`users[0].user.client-certificate`",
            "`/etc/kubernetes/pki/gone` does not exist",
        ],
    ),
    (
        "https://192",
        "http://192",
        &[
            "`clusters[0].cluster.server`",
            "not supported",
            "without TLS; use `https://`",
        ],
    ),
    (
        "https://192",
        "ftp://CANARY:CANARY@192",
        &["not supported", "password"],
    ),
    ("https://192", "192", &["not a URL"]),
    (":6443", ":6443/?token=CANARY", &["`?`"]),
    (
        "https://192",
        "ftp://192",
        &["does not begin with `https://`"],
    ),
    (
        "    server:",
        "    proxy-url: socks5://u:CANARY@p.test\n    server:",
        &["`clusters[0].cluster.proxy-url`", "`http://` or `https://`"],
    ),
    (
        "    server:",
        "    insecure-skip-tls-verify: true\n    server:",
        &[
            "`clusters[0].cluster.insecure-skip-tls-verify`",
            "not supported",
            "set `certificate-authority-data` to the CA certificate that signed that of the server",
        ],
    ),
    (
        "    server:",
        "    insecure-skip-tls-verify: \"true\"\n    server:",
        &["is text, expected `true` or `false`"],
    ),
    (
        "    server:",
        "    tls-server-name: a b\n    server:",
        &["tls-server-name", "DNS name"],
    ),
    (
        "namespace: team-a",
        "namespace: ../kube-system",
        &["`contexts[0].context.namespace`", "namespace"],
    ),
    (
        "current-context: default",
        "current-context: other",
        &["`current-context`", "`other`", "`contexts`"],
    ),
    (
        "    cluster: default",
        "    cluster: gone",
        &["`contexts[0].context.cluster`", "`clusters`"],
    ),
    (
        "    user: default",
        "    user: \"\"",
        &["`contexts[0].context.user` is missing", "of `users`"],
    ),
    (
        "    user: default",
        "    user: gone",
        &["`contexts[0].context.user`", "`users`"],
    ),
];

#[test]
fn every_refused_form_names_the_file_and_the_key_and_no_value() {
    let text = good();
    for (part, instead, words) in REFUSALS {
        assert!(text.contains(part), "{part}");
        let changed = text.replacen(part, instead, 1);
        let error = match load_text(&changed) {
            Ok(_) => panic!("accepted: {instead}"),
            Err(error) => error,
        };
        let said = everything_said(&error);
        assert!(said.contains(PATH), "{said}");
        assert!(!said.contains("CANARY"), "{said}");
        assert!(!said.contains("12345678"), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

#[test]
fn no_server_is_used_without_verification() {
    let text = good();
    let authority_line = text
        .lines()
        .find(|line| line.contains("certificate-authority-data"))
        .unwrap();
    let skip = "    insecure-skip-tls-verify: true";
    for changed in [
        text.replace("https://", "http://"),
        text.replace(authority_line, skip),
        text.replace(authority_line, &format!("{skip}\n{authority_line}")),
    ] {
        let error = load_text(&changed).unwrap_err().to_string();
        assert!(error.contains("is not supported: "), "{error}");
    }
    let verified = text.replace(authority_line, &format!("{skip}\n{authority_line}"));
    load_text(&verified.replace("verify: true", "verify: false")).unwrap();
}

#[test]
fn the_proxy_of_the_kubeconfig_is_used() {
    let text = good().replace(
        "    server:",
        "    proxy-url: http://u:CANARY@p.test:3128\n    server:",
    );
    let proxy = load_text(&text).unwrap().proxy.clone().unwrap();
    assert_eq!(proxy.password(), Some("CANARY"));
    assert_eq!(proxy.host_str(), Some("p.test"));
}

#[test]
fn a_certificate_authority_that_was_taken_out_is_explained() {
    let text: String = good()
        .lines()
        .filter(|line| !line.contains("certificate-authority-data"))
        .map(|line| format!("{line}\n"))
        .collect();
    let error = load_text(&text).unwrap_err().to_string();
    let missing = "`clusters[0].cluster.certificate-authority-data` is missing";
    assert!(error.starts_with(missing), "{error}");
    assert!(error.contains("cannot be verified"), "{error}");
    let (_dir, root) = tree();
    write(&root, PATH, &text);
    let whole = load_text(&good()).unwrap().token.clone().unwrap();
    let found = super::token(&root, Path::new(PATH)).unwrap();
    assert_eq!(found.expose_secret(), whole.expose_secret());
}

#[test]
fn broken_files_each_have_their_own_error() {
    let (_dir, root) = tree();
    let authority = Authority::new("ca");
    let client = authority.client("system:node:a", "system:nodes");
    let other = authority.client("system:node:a", "system:nodes");
    let set = |ca: &str, certificate: &str, key: &str| {
        write(&root, "/a/server-ca.crt", ca);
        write(&root, "/a/client-kubelet.crt", certificate);
        write(&root, "/a/client-kubelet.key", key);
        write(&root, "/a/k", &kubelet_kubeconfig());
        load(&root, Path::new("/a/k"))
    };
    let (ca, certificate, key) = (&authority.pem(), &client.certificate, &client.key);
    set(ca, certificate, key).unwrap();
    let cut = |text: &str| text[..text.len() - 30].to_owned();
    let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let body = key.replace("\nM", "\n!");
    // A modulus of 1024 bytes.
    let rsa = [
        b"\x30\x82\x04\x08\x02\x01\x00\x02\x82\x04\x01\x00".as_slice(),
        &[0xC3; 1024],
    ]
    .concat();
    let body_of_rsa = BASE64_STANDARD.encode(rsa);
    let rsa =
        format!("-----BEGIN RSA PRIVATE KEY-----\n{body_of_rsa}\n-----END RSA PRIVATE KEY-----\n");
    for (result, file, expected) in [
        (
            set(ca, certificate, &rsa),
            "client-kubelet.key",
            "has a private key that the agent cannot use: its TLS library supports RSA with 2048 to 4096 bits, ECDSA with P-256 or P-384, and Ed25519",
        ),
        (set("", certificate, key), "server-ca.crt", "is empty"),
        (
            set("text", certificate, key),
            "server-ca.crt",
            "has no certificate in PEM format",
        ),
        (
            set(&cut(ca), certificate, key),
            "server-ca.crt",
            "is truncated: a PEM section has no END line",
        ),
        (set(ca, "\n", key), "client-kubelet.crt", "is empty"),
        (
            set(ca, &cut(certificate), key),
            "client-kubelet.crt",
            "is truncated: a PEM section has no END line",
        ),
        (
            set(ca, &key.replace("PRIVATE KEY", "CERTIFICATE"), key),
            "client-kubelet.crt",
            "has no certificate that can be parsed",
        ),
        (set(ca, certificate, ""), "client-kubelet.key", "is empty"),
        (
            set(ca, certificate, &cut(key)),
            "client-kubelet.key",
            "is truncated: a PEM section has no END line",
        ),
        (
            set(ca, certificate, &key[..20]),
            "client-kubelet.key",
            "has an invalid PEM header line, or is truncated",
        ),
        (
            set(ca, certificate, certificate),
            "client-kubelet.key",
            "has no private key in PEM format",
        ),
        (
            set(ca, certificate, &encrypted),
            "client-kubelet.key",
            "has an encrypted private key, which is not supported",
        ),
        (
            set(ca, certificate, &body),
            "client-kubelet.key",
            "has a PEM section that is not base64",
        ),
    ] {
        let error = result.unwrap_err().to_string();
        let end = format!("of `/a/{file}` {expected}");
        assert!(error.ends_with(&end), "{error}");
    }
    let mismatch = set(ca, certificate, &other.key).unwrap_err().to_string();
    let end = "in `/a/k` does not match the client certificate";
    assert!(mismatch.ends_with(end), "{mismatch}");
    let no_key = "-----BEGIN PRIVATE KEY-----\nQ0FOQVJZ\n-----END PRIVATE KEY-----\n";
    let unusable = set(ca, certificate, no_key).unwrap_err();
    let said = "`users[0].user.client-key` of `/a/client-kubelet.key` has a private key that the agent cannot use: its TLS library supports RSA with 2048 to 4096 bits, ECDSA with P-256 or P-384, and Ed25519";
    assert_eq!(unusable.to_string(), said);
    assert!(!everything_said(&unusable).contains("CANARY"));
    // The version is the first field: 2 is version 3, and 0 version 1.
    let mut old = client.der.to_vec();
    let version = old.windows(5).position(|part| part == [0xA0, 3, 2, 1, 2]);
    old[version.unwrap() + 4] = 0;
    let body = BASE64_STANDARD.encode(&old);
    let old = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    let said = "`users[0].user.client-certificate` of `/a/client-kubelet.crt` has a client certificate that the agent cannot use: its TLS library requires X.509 version 3, and supports no unknown critical extensions";
    assert_eq!(set(ca, &old, key).unwrap_err().to_string(), said);
}

#[test]
fn a_link_to_nothing_is_named_with_its_target_and_a_document_without_a_key() {
    let (_dir, root) = tree();
    let path = Path::new("/a/k");
    write(&root, path, &kubelet_kubeconfig());
    std::os::unix::fs::symlink("pki/ca-1.crt", root.join("/a/server-ca.crt")).unwrap();
    let said = everything_said(&load(&root, path).unwrap_err());
    let link = "`/a/server-ca.crt` is a symbolic link to `/a/pki/ca-1.crt`, which does not exist";
    assert!(said.contains(link), "{said}");
    write(&root, path, "- a");
    let error = load(&root, path).unwrap_err().to_string();
    assert_eq!(error, "`/a/k` is a list, expected a mapping");
}

#[test]
fn every_beginning_of_a_kubeconfig_is_refused() {
    let claims = r#"{"sub":"system:serviceaccount:default:gc8"}"#;
    let text = harvester_kubeconfig(&Authority::new("ca"), &jwt(claims));
    let (_dir, root) = tree();
    // A text that is cut at the length of a signature of a shorter key cannot be distinguished from a whole one.
    let ambiguous: Vec<usize> = [256, 192, 128]
        .iter()
        .map(|length: &usize| text.len() - 1 - 342 + (length * 8).div_ceil(6))
        .collect();
    for end in 0..text.len() - 1 {
        if ambiguous.contains(&end) {
            continue;
        }
        write(&root, PATH, &text[..end]);
        assert!(
            load(&root, Path::new(PATH)).is_err(),
            "{end} of {}",
            text.len()
        );
    }
}

#[test]
fn other_files_are_no_kubeconfigs() {
    for text in [
        "",
        "text",
        "- a",
        "{}",
        "[]",
        "a: b",
        "\u{0}",
        "clusters: 5",
        "\u{feff}",
    ] {
        let error = load_text(text).unwrap_err();
        assert!(everything_said(&error).contains(PATH), "{text:?}: {error}");
    }
    let large = "#".repeat((1 << 20) + 1);
    let error = load_text(&large).unwrap_err();
    assert!(everything_said(&error).contains("larger than"));
}

#[test]
fn no_form_of_a_credential_prints_a_secret() {
    let text = good().replace(
        "    server:",
        "    proxy-url: http://u:CANARY@p.test\n    server:",
    );
    let (_dir, root) = tree();
    write(&root, PATH, &text);
    let loaded = read(&root, Path::new(PATH), &mut Vec::new()).unwrap();
    let said = format!("{loaded:?} {loaded:#?}");
    assert!(said.contains("p.test") && said.contains("192.0.2.10"));
    assert!(!said.contains("CANARY"), "{said}");
}

#[test]
fn a_kubeconfig_is_known_by_its_keys_whatever_is_wrong_with_it() {
    let whole = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\n";
    let json = r#"{"kind":"Config","clusters":[],"users":[]}"#;
    for (text, expected) in [
        (whole.to_owned(), true),
        (whole.replace('\n', "\r\n"), true),
        (whole[..30].to_owned(), true),
        (json.to_owned(), true),
        (format!("{json:?}"), true),
        (base64(whole), true),
        (whole.replace('\n', "\\n"), true),
        ("secret://a:b".to_owned(), true),
        (json.replace(',', ",\n\t"), true),
        ("\n# Replace this line with a kubeconfig\n".to_owned(), true),
        ("\0\0".to_owned(), true),
        ("# /etc/crypttab\n".to_owned(), false),
        ("UUID=1 / ext4 noauto,users,rw 0 1\n".to_owned(), false),
        ("users:x:100:\n".to_owned(), false),
        ("users:\n  - default\n".to_owned(), false),
        ("users are named here, clusters too\n".to_owned(), false),
        ("kind: ConfigMap\ndata: {}\n".to_owned(), false),
        (String::new(), true),
    ] {
        assert_eq!(is_meant(text.as_bytes()), expected, "{text}");
    }
}
