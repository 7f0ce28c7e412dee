// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::fmt::Write;

fn text(value: Option<&YamlValue>) -> String {
    match value {
        Some(YamlValue::Text(text)) => text.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn json_is_read_with_its_own_escapes_and_with_tabs() {
    let value =
        parse(b"{\n\t\"a\": \"\\ud83d\\ude00\\/\\u0041\",\n\t\"b\":[1,null,true]\n}\n").unwrap();
    assert_eq!(text(value.get("a")), "\u{1f600}/A");
    assert!(matches!(value.get("b"), Some(YamlValue::List(list)) if list.len() == 3));
    let value = parse(br#"{"kind":"Config","users":[{"name":"a","user":{"token":"t"}}]}"#).unwrap();
    assert_eq!(text(value.get("kind")), "Config");
}

#[test]
fn a_mapping_in_braces_that_is_yaml_and_not_json_is_read() {
    assert_eq!(text(parse(b"{a: b}").unwrap().get("a")), "b");
}

#[test]
fn an_exponential_alias_bomb_is_refused_at_once() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let alias = format!("*a{}", level - 1);
        let list = vec![alias; 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
    }
    let (what, line) = ("an alias", 2);
    let error = DocumentError::Unsupported { what, line };
    for text in [bomb.as_str(), "a: &a one\nb: *a"] {
        assert_eq!(parse(text.as_bytes()).unwrap_err(), error, "{text}");
    }
}

#[test]
fn an_alias_of_itself_and_endless_nesting_end() {
    let error = parse(b"a: &a [*a]").unwrap_err();
    assert!(
        matches!(error, DocumentError::Unsupported { .. }),
        "{error}"
    );
    for piece in [
        "[",
        "{a: ",
        "- ",
        "? ",
        "a:\n ",
        "!a ",
        "&a ",
        "'",
        "\"",
        "[]",
        "[a,",
        "{",
        "|\n",
        "a: b\n",
        "- a\n",
        "&a a: b\n",
        "*a ",
        "#\n",
        "%a\n",
        "---\n",
        "\t",
        " ",
        "x:",
        "? a\n: b\n",
        "\u{feff}",
        "a\n\n\n",
    ] {
        // With quadratic time, this would take hours.
        drop(parse(piece.repeat((1 << 20) / piece.len()).as_bytes()));
    }
    for nested in ["[", "{a: ", "- "] {
        let error = parse(nested.repeat(1000).as_bytes()).unwrap_err();
        assert_eq!(error, DocumentError::TooDeep, "{nested}");
    }
    for (depth, fits) in [(64, true), (65, false)] {
        let nested = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(parse(nested.as_bytes()).is_ok(), fits, "{depth}");
    }
}

/// Returns the memory of a tree, including its own structure.
fn memory(value: &YamlValue) -> usize {
    match value {
        YamlValue::Null | YamlValue::Bool(_) => 0,
        YamlValue::Number(text) => text.capacity(),
        YamlValue::Text(text) => text.capacity(),
        YamlValue::List(list) => {
            list.capacity() * size_of::<YamlValue>() + list.iter().map(memory).sum::<usize>()
        }
        YamlValue::Map(entries) => {
            let inside = |(key, value): &(String, YamlValue)| key.capacity() + memory(value);
            entries.capacity() * size_of::<(String, YamlValue)>()
                + entries.iter().map(inside).sum::<usize>()
        }
    }
}

#[test]
fn a_tree_takes_at_most_eight_times_its_text() {
    for piece in [
        "a,",
        "'',",
        "[],",
        "{},",
        "~,",
        "{a: b},",
        "1,",
        "aaaaaaaaaaaaaaaa,",
        "{a: [b,c]},",
    ] {
        for length in [1 << 12, 1 << 16, 1 << 20] {
            let text = format!("[{}]", piece.repeat(length / piece.len()));
            match parse(text.as_bytes()) {
                Ok(value) => {
                    let most = 8 * text.len() + 2 * TREE_BASE;
                    assert!(
                        memory(&value) <= most,
                        "{piece} {length}: {}",
                        memory(&value)
                    );
                }
                Err(error) => {
                    assert!(matches!(error, DocumentError::TooLarge { .. }), "{error}");
                }
            }
        }
    }
}

#[test]
fn kinds_of_plain_values_are_those_of_yaml_1_2_and_numbers_stay_as_written() {
    for (written, kind) in [
        ("~", "nothing"),
        ("", "nothing"),
        ("Null", "nothing"),
        ("true", "a boolean"),
        ("FALSE", "a boolean"),
        ("yes", "text"),
        ("off", "text"),
        ("12", "a number"),
        ("-0.5", "a number"),
        ("1e3", "a number"),
        ("0640", "a number"),
        ("0x1F", "a number"),
        ("1_000", "a number"),
        (".inf", "a number"),
        ("1.2.3", "text"),
        ("0xg", "text"),
        ("-", "text"),
        ("inf", "text"),
        ("'12'", "text"),
        ("!!str 12", "text"),
        ("!!int '12'", "a number"),
    ] {
        let value = parse(format!("a: {written}").as_bytes());
        let value = match written {
            "-" => parse(b"a: '-'"),
            _ => value,
        };
        assert_eq!(value.unwrap().get("a").unwrap().kind(), kind, "{written}");
    }
    let value = parse(b"a: 0640").unwrap();
    assert!(matches!(value.get("a"), Some(YamlValue::Number(number)) if number == "0640"));
}

#[test]
fn broken_texts_are_distinguished_without_a_quotation_of_a_value() {
    let syntax = |line, column| DocumentError::Syntax { line, column };
    let unsupported = |what, line| DocumentError::Unsupported { what, line };
    for (text, error) in [
        ("", DocumentError::Empty),
        (" \n", DocumentError::Empty),
        ("# CANARY\n", DocumentError::Empty),
        (
            "a: &a {b: c}\nd:\n  <<: *a",
            unsupported("the merge key `<<`", 3),
        ),
        (
            "a: CANARY\n? [b]\n: c",
            unsupported("a key that is not a string", 2),
        ),
        ("a: CANARY\nb: !CANARY c", unsupported("a tag", 2)),
        ("a: CANARY\n---\nc: d", DocumentError::NotOneDocument),
        ("a: *CANARY", syntax(1, 4)),
    ] {
        let found = parse(text.as_bytes()).unwrap_err();
        assert_eq!(found, error, "{text}");
        assert!(!format!("{found} {found:?}").contains("CANARY"));
    }
    for text in [
        "a: [CANARY",
        "{\"a\": \"CANARY",
        "a: 'CANARY",
        "a: CANARY: b",
        "CANARY\nb: c",
        "a: \"\\CANARY\"",
    ] {
        let found = parse(text.as_bytes()).unwrap_err();
        assert!(
            matches!(found, DocumentError::Syntax { .. }),
            "{text}: {found}"
        );
        assert!(!format!("{found} {found:?}").contains("CANARY"), "{found}");
    }
    assert_eq!(parse(b"a: \xff").unwrap_err(), DocumentError::NotText);
}

#[test]
fn a_key_that_comes_twice_is_named() {
    for text in [
        "zone: CANARY\nzone: CANARY",
        "{\"z\\u006fne\": 1, zone: 2}",
        "a: {b: 1, zone: 1, c: 2, zone: 1}",
    ] {
        let error = parse(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "has the duplicate key `zone` in a mapping",
            "{text}"
        );
    }
    let error = parse(b"\"a\\e\": 1\n\"a\\e\": 2").unwrap_err().to_string();
    assert!(error.contains(r"`a\x1b`"), "{error}");
}

#[test]
fn no_value_prints_itself() {
    let value = parse(b"token: CANARY").unwrap();
    assert!(!format!("{value:?} {:?}", value.get("token")).contains("CANARY"));
}

/// The tree is the same as that of an independent parser.
#[test]
fn real_configurations_are_read_as_another_parser_reads_them() {
    fn same(ours: &YamlValue, theirs: &yaml_serde::Value) -> bool {
        match (ours, theirs) {
            (YamlValue::Null, yaml_serde::Value::Null) => true,
            (YamlValue::Bool(ours), yaml_serde::Value::Bool(theirs)) => ours == theirs,
            (YamlValue::Number(ours), yaml_serde::Value::Number(theirs)) => {
                *ours == theirs.to_string()
            }
            (YamlValue::Text(ours), yaml_serde::Value::String(theirs)) => ours.as_str() == theirs,
            (YamlValue::List(ours), yaml_serde::Value::Sequence(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(a, b))
            }
            (YamlValue::Map(ours), yaml_serde::Value::Mapping(theirs)) => {
                ours.len() == theirs.len()
                    && ours.iter().all(|(key, value)| {
                        theirs
                            .get(key.as_str())
                            .is_some_and(|theirs| same(value, theirs))
                    })
            }
            _ => false,
        }
    }
    for document in [
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: LS0t\n    server: https://127.0.0.1:6443\n  name: local\ncontexts:\n- context: {cluster: local, namespace: default, user: user}\n  name: Default\ncurrent-context: Default\nkind: Config\npreferences: {}\nusers:\n- name: user\n  user:\n    client-certificate: /a/b.crt\n    client-key: /a/b.key\n",
        "token: K10abc::server:def\nserver: https://192.0.2.1:9345\nnode-label:\n  - \"a=b\"\n  - c=d # why\nkubelet-arg+:\n- node-labels=a=b\ntls-san: [a, b]\nwith-node-id: true\nnode-name: >-\n  worker\n  one\nwrite-kubeconfig-mode: \"0640\"\netcd-snapshot-retention: 5\n",
        "{\n  \"node-label\": [\n    \"cattle.io/os=linux\"\n  ],\n  \"server\": \"https://x:9345\",\n  \"protect-kernel-defaults\": false\n}\n",
        "mirrors:\n  \"*\":\n  docker.io:\n    endpoint:\n      - \"https://m\"\n    rewrite:\n      \"^rancher/(.*)\": \"a/$1\"\nconfigs:\n  \"m:5000\":\n    auth:\n      username: u # user\n      password: |\n        p\n         q\n    tls: {ca_file: }\n",
        "%YAML 1.2\n---\na: 'it''s'\nb: \"x\\ty\"\nc: plain text\n   goes on\nd:\n\n  - - 1\n    - 2\n  -\n    e: f\n...\n",
    ] {
        let ours = parse(document.as_bytes()).unwrap();
        let theirs: yaml_serde::Value = yaml_serde::from_str(document).unwrap();
        assert!(same(&ours, &theirs), "{document}\n{theirs:?}");
    }
}
