// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::access::testing::{base64, jwt};
use serde_json::json;

/// The length of a part of a secret that must not remain.
const WINDOW: usize = 12;

/// The line lengths of base64 in openssl, MIME and others.
const WIDTHS: [usize; 4] = [24, 32, 64, 76];

fn secrets() -> Vec<String> {
    let hexadecimal = "9f2c4e7a1b8d3f60c5e4a7b2d19f8e3c6a5b4d7f".to_owned();
    let rancher =
        "kubeconfig-u-x7k2pqvwzr:8kz5v7n2rxq4m9wbt6d3hjc8f5gl2sp7kz5v7n2rxq4m9wbt6d3".to_owned();
    let node =
        "K10f3a1c8e97b2d4460a5c1e8f7d3b29046a8e5c7f1d2b3094::server:7c1e9f3a5b8d2046".to_owned();
    let password = "CANARY-pa5s/w0rd+x9Yz=Qq7-T8u".to_owned();
    vec![
        jwt(r#"{"sub":"system:serviceaccount:default:gc8"}"#),
        base64("canary: a secret that somebody encoded to hide it, with some more text behind"),
        base64(&jwt("{}")),
        hexadecimal,
        rancher,
        node,
        password,
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        "vT3qXU8nFEb0/K7mDzNG/bPxRfiC2Ya9Mp4LkQeY".to_owned(),
    ]
}

/// Returns all parts of a secret with this length. The name at the start of a Rancher token is not secret.
fn parts(secret: &str, length: usize) -> Vec<String> {
    let hidden = match secret.split_once(':') {
        Some((name, hidden)) if name.starts_with("kubeconfig-") => hidden,
        _ => secret,
    };
    let pieces = hidden.split(':').map(|piece| piece.chars().collect());
    let windows = pieces.flat_map(|piece: Vec<char>| {
        let windows = piece.windows(length).map(|window| window.iter().collect());
        windows.collect::<Vec<String>>()
    });
    windows.collect()
}

fn assert_gone(secret: &str, scrubbed: &str, context: &str) {
    for window in parts(secret, WINDOW) {
        assert!(
            !scrubbed.contains(&window),
            "{window} of {secret} in {context}: {scrubbed}"
        );
    }
}

#[test]
fn no_secret_stays_in_any_text_around_it() {
    for secret in secrets() {
        let json = json!({"message": format!("it is {secret}.")}).to_string();
        let slashes = json
            .replace('/', "\\/")
            .replace('+', "\\u002b")
            .replace('=', "\\u003d");
        let contexts = [
            secret.clone(),
            format!("token: {secret}\nnext: line"),
            format!("the value '{secret}' was refused"),
            format!("({secret}), and more"),
            format!("Environment=\"X={secret}\" \"Y=1\""),
            format!("Authorization: Bearer {secret}"),
            format!("https://example/?x={secret}&y=1"),
            format!("`{secret}`"),
            json!(json).to_string(),
            json,
            slashes,
        ];
        for context in contexts {
            let scrubbed = text(&context);
            assert_gone(&secret, &scrubbed, &context);
            assert_gone(&secret.replace('/', "\\/"), &scrubbed, &context);
            assert_eq!(text(&scrubbed), scrubbed, "a second pass of {context}");
        }
    }
}

#[test]
fn wherever_a_text_is_cut_no_long_part_of_a_secret_stays() {
    for secret in secrets() {
        let whole = format!("before {secret} after");
        for (at, _) in whole.char_indices() {
            for part in [&whole[..at], &whole[at..]] {
                let scrubbed = text(part);
                // A shorter part cannot be identified as a secret.
                for window in parts(&secret, random::MIXED_MIN) {
                    assert!(
                        !scrubbed.contains(&window),
                        "{window} in {part}: {scrubbed}"
                    );
                }
            }
        }
    }
}

#[test]
fn pem_of_every_kind_is_removed_whole_cut_or_on_one_line() {
    let body = "MIGHAgEAMBMGByqGSM49\naaaaaaaaaaaaaaaaaaaa\nshort\n";
    for kind in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "CERTIFICATE",
        "OPENSSH PRIVATE KEY",
    ] {
        let pem = format!("-----BEGIN {kind}-----\n{body}-----END {kind}-----");
        let around = format!("a\n{pem}\nb\n{pem}c");
        assert_eq!(text(&around), "a\n[removed]\nb\n[removed]c");
        assert_eq!(
            text(&around.replace('\n', "\\n")),
            "a\\n[removed]\\nb\\n[removed]c"
        );
        for end in pem.find('\n').unwrap()..pem.len() {
            let cut = text(&format!("a {}", &pem[..end]));
            assert!(!cut.contains("aaaa") && !cut.contains("short"), "{cut}");
        }
    }
}

#[test]
fn a_value_behind_the_name_of_a_secret_is_removed_however_plain_it_is() {
    for (context, expected) in [
        ("password: hunter2", "password: [removed]"),
        ("db_password=two words\nnext", "db_password=[removed]\nnext"),
        (
            "{\"clientKeyData\":\"abc\",\"a\":1}",
            "{\"clientKeyData\":\"[removed]\",\"a\":1}",
        ),
        ("'api-key' = 'it is, this', b", "'api-key' = '[removed]', b"),
        (
            "say \"{\\\"token\\\":\\\"x y\\\",\\\"a\\\":1}\"",
            "say \"{\\\"token\\\":\\\"[removed]\\\",\\\"a\\\":1}\"",
        ),
        (
            "\"secret\": \"a \\\" b\", c",
            "\"secret\": \"[removed]\", c",
        ),
        (
            "token: |\n  line one\n  line two\nnext: 1",
            "token: [removed]\nnext: 1",
        ),
        (
            "agent-token:\n  hidden\nnext: 1",
            "agent-token:[removed]\nnext: 1",
        ),
        ("token-abcde:plain", "token-abcde:[removed]"),
        ("sent Basic aGk6aGk= there", "sent Basic [removed] there"),
        ("bearer plain, then", "bearer [removed], then"),
        (
            "http://me:hunter2@proxy:3128/x",
            "http://[removed]@proxy:3128/x",
        ),
        (
            "http://me:hun/ter@2@proxy:3128/x",
            "http://[removed]@proxy:3128/x",
        ),
        (
            "HTTPS_PROXY=me:hunter2@proxy:3128 next",
            "HTTPS_PROXY=[removed]@proxy:3128 next",
        ),
        ("http://a@b|http://me:hunter2@c", "http://[removed]@c"),
        ("Environment=A=b", "Environment=[removed]"),
        (
            "Environment=\"A=b\" \"C=hunter2\" \\\n  \"D=hunter2\"\nNice=5",
            "Environment=[removed]\nNice=5",
        ),
        (
            "Environment=\\\nA=hunter2\nNice=5",
            "Environment=[removed]\nNice=5",
        ),
        ("SetCredential=a:hunter2", "SetCredential=[removed]"),
        (
            "run --password hunter2 --agent-token 'two words' --debug",
            "run --password [removed] --agent-token '[removed]' --debug",
        ),
        (
            "tokens:\n- hunter2\n- hunter3\nnext: 1",
            "tokens:[removed]\nnext: 1",
        ),
        (
            "  - password: one\n      hunter2\n    next: 1",
            "  - password: [removed]\n    next: 1",
        ),
        (
            "  \"tokens\": [\n    \"hunter2\"\n  ],\n  \"next\": 1",
            "  \"tokens\": [removed]\n  ],\n  \"next\": 1",
        ),
        ("Set-Cookie: id=hunter2; Secure", "Set-Cookie: [removed]"),
        ("{\"auth\": \"aHVudGVyMg==\"}", "{\"auth\": \"[removed]\"}"),
        (
            "key 0a:1b:2c:3d:4e:5f:60:71:82:93:a4:b5:c6 of",
            "key [removed] of",
        ),
        ("curl -u f:$6$:", "curl -u f:[removed]"),
        ("curl -u f:[removed]", "curl -u f:[removed]"),
        (
            "fetch u:hunter2@host/?part=1 now",
            "fetch [removed]@host/?part=1 now",
        ),
        ("fetch u:hun=ter2@host now", "fetch [removed]@host now"),
        (":@$6$=", "[removed]@[removed]"),
        ("-u [removed]@:4", "-u [removed]@:4"),
        (":@$6$://@", "[removed]@[removed]"),
        ("[removed]@[removed]", "[removed]@[removed]"),
        // Bytes after text that looks like a user are still removed.
        ("a:b@:0a:1b:2c:3d:4e:5f:60:71:82:93:a4:b5", "[removed]"),
    ] {
        assert_eq!(text(context), expected);
    }
}

#[test]
fn a_secret_of_a_fixed_form_is_removed_without_any_name() {
    for (context, expected) in [
        (
            "join with abcdef.0123456789abcdef now",
            "join with [removed] now",
        ),
        ("(07401b.f395accd246ae52d).", "([removed])."),
        ("root:$6$saltsalt$Qx.hash/hash:19000:0", "root:[removed]"),
        ("a $y$j9T$abc/def.ghi$hash b", "a [removed] b"),
        (
            "htpasswd u:$2b$10$abcdefghijklmnopqrstuv.",
            "htpasswd u:[removed]",
        ),
        (
            "x $2y$05$abc, $5$abc; $apr1$abc",
            "x [removed], [removed]; [removed]",
        ),
        (
            "agent -token hunter2 -debug",
            "agent -token [removed] -debug",
        ),
        (
            "agent --token hunter2 --debug",
            "agent --token [removed] --debug",
        ),
        (
            "curl -u me:hunter2 https://x",
            "curl -u [removed] https://x",
        ),
        (
            "curl --user 'me:hunter two' https://x",
            "curl --user '[removed]' https://x",
        ),
        (
            "wget --proxy-user=me:hunter2 x",
            "wget --proxy-user=[removed] x",
        ),
        (
            "https://x/y?a=1&sig=hunter2&b=2",
            "https://x/y?a=1&sig=[removed]&b=2",
        ),
        ("https://x/y?key=hunter2", "https://x/y?key=[removed]"),
        (
            "GET /y?X-Amz-Signature=hunter2 HTTP/1.1",
            "GET /y?X-Amz-Signature=[removed] HTTP/1.1",
        ),
        ("push glpat-abcdefghijkl.", "push [removed]."),
        (
            "xoxb-abcdefgh-ijkl and xoxp-abcdefgh-ijkl",
            "[removed] and [removed]",
        ),
        ("ghp_abcdefghijklmnop/x", "[removed]/x"),
        ("cred: hunter2", "cred: [removed]"),
        ("Passwort: hunter2", "Passwort: [removed]"),
        ("db_passwort=hunter2", "db_passwort=[removed]"),
        (
            "it is aGVsbG9Xb3JsZFBhc3N3b3JkT2YsTWluZQ",
            "it is [removed]",
        ),
        ("it is QWxhZGRpbkpvcGVuU2VzYW1lWW91c2U=", "it is [removed]"),
    ] {
        assert_eq!(text(context), expected);
        assert_eq!(text(expected), expected, "a second pass");
    }
}

#[test]
fn words_like_those_of_a_fixed_form_stay() {
    for kept in [
        "worker.somecompanyname, docker.containerhosting, v1.2.3, abcdef.0123456789abcde",
        "journalctl -u rke2-server.service and chown -u, systemctl --user status x",
        "it costs $6 or $y, echo $1 $2, ${HOME}",
        "https://x/y?limit=500&resourceVersion=0&watch=true",
        "is it key=value? No: keys stay",
        "rancher-token-in-use, credits: many, the cluster-token is old",
        "the ghp_ prefix, xoxb- and glpat- alone",
        "getElementsAndAttributes RestrictAddressFamilies InvolvedObjectReference",
        "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution",
        "-u system:node:worker-1 stays as a name",
    ] {
        assert_eq!(text(kept), kept);
    }
}

#[test]
fn what_people_need_stays() {
    for kept in [
        "VM default/gc8-pool1-q99l7-6ndw9 on host hv-a, region eu-1, zone rack-a",
        "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config has mode 0644",
        "system:serviceaccount:default:gc8, firmware 6a1a24a1-4061-4607-8bf4-a3963d0c5895",
        "failed to get `/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances` at https://192.0.2.1:6443",
        "HarvesterIdentityVerified=True, requiredDuringSchedulingIgnoredDuringExecution",
        "v1.33.5+rke2r1, 6.12.0-160000.5-default, 2026-11-21T19:04:10.123456Z",
        "the certificate is signed by `CN=rke2-server-ca@1700000000`, 52:54:00:12:34:56, fd00:1234:5678::10",
        "topology.kubernetes.io/zone=rack-a [rancher-token-in-use] harvester-node-agent explain rancher-token-rejected",
        "EnvironmentFile=-/etc/default/harvester-node-agent\nExecStart=/usr/bin/harvester-node-agent run",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "helm-install-harvester-cloud-provider-x7k2p in kube-system, image rancher/harvester-csi-driver:v0.2.9",
        "",
        "Zürich 東京 🚀: ok = ja",
        "registry.local:5000/rancher/shell:v0.2.9@sha256:00ff, getty@tty1.service, https://[fd00::1]:6443/x@y",
        "instancesV2.zoneAndRegionEnabled: false, fe:54:00:12:34:56:78:9a",
    ] {
        assert_eq!(text(kept), kept);
    }
}

#[test]
fn nothing_that_we_write_ourselves_is_taken_for_a_secret() {
    for code in crate::catalog::Code::ALL {
        let entry = code.entry();
        let commands = entry.commands.iter().map(|command| command.text.as_ref());
        for own in [entry.title, entry.impact]
            .into_iter()
            .chain(entry.fix.iter().copied())
            .chain(commands)
        {
            assert_eq!(text(own), own, "{}", entry.name);
        }
    }
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in [
        "systemd/harvester-node-agent.service",
        "systemd/harvester-node-agent-gate.service",
        "packaging/config.d/10-defaults.toml",
    ] {
        let own = std::fs::read_to_string(directory.join(file)).unwrap();
        assert_eq!(text(&own), own, "{file}");
    }
}

#[test]
fn the_short_end_of_broken_lines_goes_with_them() {
    let key = base64(
        "canary: 0 a key of which the last line is so short that nobody could tell it from a word",
    );
    for width in WIDTHS {
        for (line_end, indentation) in [("\n", ""), ("\r\n", ""), ("\n", "      ")] {
            let characters: Vec<char> = key.chars().collect();
            let lines = characters.chunks(width).map(|line| line.iter().collect());
            let lines: Vec<String> = lines.collect();
            let between = format!("{line_end}{indentation}");
            let whole = format!("it is{between}{}{line_end}next: 1", lines.join(&between));
            let scrubbed = text(&whole);
            for line in lines {
                assert!(!scrubbed.contains(&line), "{line} of {whole}: {scrubbed}");
            }
            assert!(scrubbed.starts_with("it is") && scrubbed.ends_with("next: 1"));
            assert_eq!(text(&scrubbed), scrubbed);
        }
    }
}

#[test]
fn a_large_text_takes_no_longer_than_its_length_asks() {
    // With quadratic time, the blanks alone took minutes.
    for piece in [
        " ",
        "\" ",
        "=",
        "://",
        "a://",
        "token:\"",
        "x token=\"a\" ",
        "token:\n ",
        "bearer ",
        "u:p@",
        "A",
        "\\/",
        "-----BEGIN ",
        "$",
        "?",
        "&a=",
        "?key=a&",
        "glpat-",
        "-u ",
        "a.",
        "abcdef.",
    ] {
        let _ = text(&piece.repeat(40_000 / piece.len()));
        // The result for a shorter text does not change in a second pass.
        let scrubbed = text(&piece.repeat(4_000 / piece.len()));
        assert_eq!(text(&scrubbed), scrubbed, "{piece:?}");
    }
}

#[test]
fn a_record_keeps_the_fields_that_are_known_and_loses_the_others() {
    let secret = &secrets()[0];
    let line = json!({
        "MESSAGE": format!("the token {secret} is refused"),
        "HNA_FINDING": "hostname-differs",
        "PRIORITY": "4",
        "_CMDLINE": "program --password plain",
        "_MACHINE_ID": "0123456789abcdef0123456789abcdef",
        "F_SECRET": "plain",
    });
    let record = record(&line.to_string()).unwrap();
    assert_eq!(
        record,
        json!({"MESSAGE": "the token [removed] is refused", "HNA_FINDING": "hostname-differs", "PRIORITY": "4"})
    );
    let bytes = json!({"MESSAGE": "password: \u{1b}x".as_bytes()});
    let kept = super::record(&bytes.to_string()).unwrap();
    assert_eq!(kept["MESSAGE"], "password: [removed]");
    for odd in ["", "text", "[1]", "{\"MESSAGE\":", "null"] {
        assert_eq!(super::record(odd), None, "{odd}");
    }
}

#[test]
fn a_document_keeps_its_shape() {
    let secret = &secrets()[0];
    let mut document = json!({
        "findings": [{"code": "hostname-differs", "seen": format!("`{secret}`")}],
        "token": {"nested": "plain"},
        secret.as_str(): 1,
        "hasToken": true,
        "count": 3,
    });
    value(&mut document);
    assert_eq!(
        document,
        json!({
            "findings": [{"code": "hostname-differs", "seen": "`[removed]`"}],
            "token": "[removed]",
            "[removed]": 1,
            "hasToken": true,
            "count": 3,
        })
    );
}

#[test]
fn whatever_the_text_a_second_pass_changes_nothing() {
    let odd = "é=\"'\\:-----BEGIN =://@password: |\n\t\\u00";
    for (from, _) in odd.char_indices() {
        for (to, _) in odd.char_indices().filter(|(to, _)| *to >= from) {
            let once = text(&odd[from..to].repeat(3));
            assert_eq!(text(&once), once, "{from}..{to}");
        }
    }
}
