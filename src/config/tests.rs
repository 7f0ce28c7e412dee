// SPDX-License-Identifier: Apache-2.0
//! Tests of the whole configuration: from files in a tree to settings or errors.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harvester_lab::expected::cases_are_expected;
use serde_json::json;

use super::leaves::DEFAULTS;
use super::*;
use crate::access::testing::{tree, write};
use crate::facts::placement::Source;

const DEFAULTS_FILE: &str = include_str!("../../packaging/config.d/10-defaults.toml");

const VENDOR: &str = "/usr/lib/harvester-node-agent/config.d";
const RUNTIME: &str = "/run/harvester-node-agent/config.d";
const ADMIN: &str = "/etc/harvester-node-agent/config.d";
const ADMIN_FILE: &str = "/etc/harvester-node-agent/config.toml";

/// Returns what is read of these files.
fn load_all(files: &[(&str, &str)]) -> Result<LoadedConfig, ConfigErrors> {
    let (_dir, root) = tree();
    for (path, text) in files {
        write(&root, path, text);
    }
    load(&root, None)
}

/// Returns what is read of one file with this content.
fn load_one(content: &str) -> Result<LoadedConfig, ConfigErrors> {
    load_all(&[(ADMIN_FILE, content)])
}

/// Returns the settings of one file with this content.
fn settings(content: &str) -> Settings {
    load_one(content).unwrap().settings
}

/// Returns the errors of one file with this content, without its path.
fn errors(content: &str) -> Vec<String> {
    let errors = load_one(content).unwrap_err();
    let text = errors.to_string().replace(&format!("{ADMIN_FILE}:"), "");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), errors.problems.len(), "one line for each");
    lines
}

/// Returns the shipped file with every setting uncommented; comments have a space after their `#`.
fn uncommented_defaults() -> String {
    let lines = DEFAULTS_FILE.lines().map(|line| {
        let setting = line.strip_prefix('#').filter(|text| !text.starts_with(' '));
        format!("{}\n", setting.unwrap_or(line))
    });
    lines.collect()
}

#[test]
fn the_shipped_file_states_every_key_with_its_default_and_changes_nothing() {
    let loaded = load_all(&[(&format!("{VENDOR}/10-defaults.toml"), DEFAULTS_FILE)]).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.values.iter().all(|value| value.origin.is_none()));

    let active = uncommented_defaults();
    let loaded = load_one(&active).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.values.len(), DEFAULTS.len());
    for value in &loaded.values {
        assert!(value.is_default, "{}", value.key);
        let part = match value.origin {
            Some(_) => format!(" = {}\n", show::toml(&value.value)),
            None => format!("\n[{}]\n", value.key),
        };
        assert!(active.contains(&part), "{}", value.key);
    }
}

/// Returns the settings of one file with only this key, or its errors.
fn one_key(key: &str, value: &str) -> Result<LoadedConfig, ConfigErrors> {
    load_one(&format!("{key} = {value}"))
}

/// Values of all types, in the form in which they are shown. Each key takes at least one of these, or one that its error allows.
const VALUES: [&str; 15] = [
    "true",
    "false",
    "1",
    "99999999999999999999",
    "1.5",
    "2020-01-01",
    "[]",
    "{ x = \"x\" }",
    "{ x = { zone = \"x\" } }",
    "\"node-1\"",
    "\"ns/zones\"",
    "\"0s\"",
    "\"25h\"",
    "\"/srv/a.prom\"",
    "\"127.0.0.1:9879\"",
];

#[test]
fn every_key_takes_what_its_errors_allow_and_sets_only_itself() {
    for path in DEFAULTS.keys() {
        let key = leaves::dotted(path);
        let mut values = VALUES.map(str::to_owned).to_vec();
        for value in VALUES {
            // What is allowed is in double quotes.
            let errors = one_key(&key, value).err();
            let errors = errors.map_or_else(String::new, |errors| errors.to_string());
            let allowed = errors.split('"').skip(1).step_by(2);
            values.extend(allowed.map(|allowed| format!("\"{allowed}\"")));
        }
        let mut count = 0;
        for value in values {
            let Ok(loaded) = one_key(&key, &value) else {
                assert!(VALUES.contains(&value.as_str()), "{key} refuses {value}");
                continue;
            };
            let mut changed = leaves::values(&loaded.settings);
            changed.retain(|path, value| DEFAULTS.get(path) != Some(value));
            count += usize::from(!changed.is_empty());
            for (at, found) in changed {
                assert!(at.starts_with(path), "{key} = {value}: {at:?}");
                let found = show::toml(&found);
                match at == *path {
                    true => assert_eq!(found, value, "{key}"),
                    false => assert!(value.contains(&found), "{key} = {value}: {found}"),
                }
            }
        }
        assert!(count > 0, "no value changes {key}");
    }
}

#[test]
fn every_key_refuses_values_of_another_type() {
    for (path, default) in DEFAULTS.iter() {
        let (kind, is_kind): (_, fn(&str) -> bool) = match default {
            serde_json::Value::Bool(_) => ("a boolean", |value| ["true", "false"].contains(&value)),
            serde_json::Value::Array(_) => ("an array", |value| value.starts_with('[')),
            serde_json::Value::Object(_) => ("a table", |value| value.starts_with('{')),
            _ => ("a string", |value| value.starts_with('"')),
        };
        let key = leaves::dotted(path);
        for value in VALUES.into_iter().filter(|value| !is_kind(value)) {
            let expected = format!("1: `{key}`: the value is not {kind}");
            assert_eq!(errors(&format!("{key} = {value}")), [expected], "{value}");
        }
    }
}

#[test]
fn values_become_what_they_mean() {
    let mut expected = Settings::default();
    expected.topology.host_label = None;
    expected.topology.sources = vec![Source::HostNode, Source::ConfigMap];
    expected.metrics.textfile = MetricsFile::Path("/srv/a.prom".into());
    expected.timing.poll = Duration::from_secs(86_400);
    expected.timing.hostname_debounce = Duration::from_millis(250);
    expected.timing.settle = Duration::from_secs(60);
    let content = "topology.host_label = 'off'\ntopology.sources = ['host-node', 'configmap']\n\
                   metrics.textfile = '/srv/a.prom'\ntiming.poll_interval = '24h'\n\
                   timing.hostname_debounce = '250ms'\ntiming.annotation_grace_period = '60s'";
    assert_eq!(settings(content), expected);
}

/// The file has each mistake, and below it all errors or warnings with their lines. Without any, it is none.
#[test]
fn every_mistake_is_reported_with_its_line_and_what_is_allowed() {
    cases_are_expected("src/config/mistakes.txt", |content| {
        let (errors, warnings) = match load_one(content) {
            Ok(loaded) => (String::new(), loaded.warnings),
            Err(errors) => (format!("{errors}\n"), errors.warnings),
        };
        (errors + &warnings.join("\n")).replace(&format!("{ADMIN_FILE}:"), "")
    });
}

/// Writes the files of a case: each path, and below it its lines after `| `. Returns the other lines.
pub(crate) fn write_files<'c>(root: &Root, case: &'c str) -> Vec<&'c str> {
    let mut files: Vec<(&str, String)> = Vec::new();
    let mut others = Vec::new();
    for line in case.lines() {
        if let Some(text) = line.strip_prefix("| ") {
            files.last_mut().unwrap().1 += &format!("{text}\n");
        } else if line.starts_with('/') && !line.contains(" -> ") {
            files.push((line, String::new()));
        } else {
            others.push(line);
        }
    }
    for (path, text) in files {
        write(root, path, &text);
    }
    others
}

/// The file has trees: files with their lines after `| `, links, and the option `--config`. Below each are its errors, or the files that
/// are read in their order, the values that are not the default with their origins, and the warnings.
#[test]
fn each_tree_has_the_expected_settings() {
    cases_are_expected("src/config/trees.txt", |case| {
        let ((_dir, root), mut only) = (tree(), None);
        for line in write_files(&root, case) {
            if let Some((path, target)) = line.split_once(" -> ") {
                let place = root.join(path);
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                symlink(target, place).unwrap();
            } else if !line.starts_with('#') {
                only = Some(Path::new(line.strip_prefix("--config=").unwrap()));
            }
        }
        let mut loaded = match load(&root, only) {
            Ok(loaded) => loaded,
            Err(errors) => return errors.to_string(),
        };
        loaded.values.retain(|value| !value.is_default);
        let files = loaded.files.iter();
        let files = files.map(|path| format!("reads {}\n", path.display()));
        let warnings = loaded.warnings.iter();
        let warnings = warnings.map(|text| format!("warning: {text}\n"));
        files.collect::<String>() + &show::text(&loaded.values) + &warnings.collect::<String>()
    });
}

#[test]
fn no_more_extra_labels_are_allowed_than_the_agent_can_own() {
    let extra = |count: usize| -> String {
        let keys = (0..count).map(|number| format!("k{number:03} = 'x'\n"));
        format!("[labels.extra]\n{}", keys.collect::<String>())
    };
    assert_eq!(settings(&extra(EXTRA_MAX)).labels.extra.len(), EXTRA_MAX);
    let text = "130: `labels.extra.k128`: the key is one of 130 in `[labels.extra]`; at most 128 are allowed";
    assert_eq!(errors(&extra(EXTRA_MAX + 2)), [text]);
}

/// Errors get into the journal and into the archive of `doctor --bundle`.
#[test]
fn no_value_is_in_an_error() {
    const SECRET: &str = "K1.S::cret/=";
    let token = "K10".to_owned() + &"secret0a".repeat(8);
    let pasted = "apiVersion: v1\\nusers: [{user: {token: secret}}]".repeat(3);
    let values = [
        format!("'{SECRET}'"),
        format!("\"/{SECRET}\\u001b\""),
        format!("['{SECRET}', 'configmap']"),
        format!("{{ zone = '{SECRET}', x = ['{SECRET}'] }}"),
        format!("\"{SECRET}"),
        SECRET.to_owned(),
        format!("\"{token}\""),
        format!("[\"{token}\"]"),
        format!("\"{}{pasted}\"", "x".repeat(60)),
    ];
    for (path, _) in DEFAULTS.iter() {
        let key = path.join(".");
        let beside = format!("{}.timeout", path[0]);
        for value in &values {
            for key in [&key, &format!("{key}.x"), &beside] {
                let Err(errors) = one_key(key, value) else {
                    continue;
                };
                let text = errors.to_string();
                assert!(!text.contains("cret"), "{text}");
                assert_eq!(text.lines().count(), errors.problems.len(), "{text}");
            }
        }
    }
    let long = one_key("harvester.kubeconfig", &values[8]).unwrap_err();
    assert_eq!(long.problems.len(), 1);
}

#[test]
fn a_file_that_is_too_large_or_no_text_is_an_error_that_names_it() {
    let big = "#".repeat(256 * 1024);
    assert_eq!(settings(&big), Settings::default());
    let path = format!("{VENDOR}/10-big.toml");
    let (_dir, root) = tree();
    write(&root, &path, &(big + "#"));
    write(&root, ADMIN_FILE, "");
    std::fs::write(root.join(ADMIN_FILE), [0xff, 0xfe]).unwrap();
    let errors = load(&root, None).unwrap_err().to_string();
    let (first, second) = errors.split_once('\n').unwrap();
    assert!(first.contains(&format!("`{path}`")), "{errors}");
    assert_eq!(second, format!("`{ADMIN_FILE}` is not valid UTF-8"));
}

#[test]
fn what_is_shown_as_text_loads_to_the_same_settings() {
    let content = "topology.remove_stale = true\nlabels.extra.'a.b/c' = 'd'\nmetrics.textfile = '/srv/a \"b\\c.prom'\n\
                   hosts.'hv.b'.zone = 'z'\ntopology.host_label = 'off'\ntopology.sources = [\n 'hosts-table', # why\n]";
    let loaded = load_one(content).unwrap();
    let shown = show::text(&loaded.values);
    assert!(loaded.settings != Settings::default());
    assert_eq!(settings(&shown), loaded.settings, "{shown}");
    let unchanged = show::text(&load_all(&[]).unwrap().values);
    assert_eq!(settings(&unchanged), Settings::default());
}

#[test]
fn json_names_the_origin_of_each_value() {
    let loaded = load_one("\n[topology]\nsources = ['configmap']").unwrap();
    let json = show::json(&loaded.values);
    let file = json!({ "file": ADMIN_FILE, "line": 3 });
    for row in [
        json!({"key": "topology.sources", "value": ["configmap"], "origin": file}),
        json!({"key": "topology.remove_stale", "value": false, "origin": null}),
        json!({"key": "labels.extra", "value": {}, "origin": null}),
    ] {
        assert!(json.as_array().unwrap().contains(&row), "{json:#}");
    }
    let level = "log.level                      = \"info\"                          # default\n";
    assert!(show::text(&loaded.values).contains(level));
}

#[test]
fn the_watched_paths_are_those_that_are_read() {
    let expected = [VENDOR, RUNTIME, ADMIN_FILE, ADMIN].map(PathBuf::from);
    assert_eq!(watched_paths(), expected);
}

#[test]
fn hostile_files_end_in_errors() {
    let many: String = (0..30_000).map(|number| format!("k{number}=1\n")).collect();
    assert_eq!(errors(&many).len(), 30_000);
    let long = format!("topology.sources = [{}]", "1,".repeat(20_000));
    assert_eq!(errors(&long).len(), 20_000);
    let below = format!("[hosts.{}]\n{many}", "a".repeat(100_000));
    let leaves = leaves::parse(Path::new(ADMIN_FILE), &below, &mut Vec::new());
    let length = |leaf: &Leaf<'_>| leaf.path.concat().len().max(leaf.names.concat().len());
    let small = leaves.iter().filter(|leaf| length(leaf) < 1000);
    assert_eq!(small.count(), 30_000);
    for deep in [
        format!("topology.sources = {}", "[".repeat(100_000)),
        format!("labels.extra.a{} = 1", ".a".repeat(100_000)),
        format!("[hosts.a{}]", ".a".repeat(100_000)),
        format!("{} = 1", "\u{202e}".repeat(50_000)),
    ] {
        let lines = errors(&deep);
        assert!(!lines.is_empty());
        assert!(lines.iter().all(|line| line.len() < 1000), "{lines:?}");
    }
}
