// SPDX-License-Identifier: Apache-2.0
//! Tests of the whole configuration: from files in a tree to settings or errors.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leaves::DEFAULTS;
use super::*;
use crate::facts::names::{ConfigMapName, HostName, VmName};
use crate::facts::placement::Source;
use crate::facts::topology::LabelValue;

const DEFAULTS_FILE: &str = include_str!("../../packaging/config.d/10-defaults.toml");

const VENDOR: &str = "/usr/lib/harvester-node-agent/config.d";
const RUNTIME: &str = "/run/harvester-node-agent/config.d";
const ADMIN: &str = "/etc/harvester-node-agent/config.d";
const ADMIN_FILE: &str = "/etc/harvester-node-agent/config.toml";

struct Tree {
    _dir: tempfile::TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        Self { _dir: dir, root }
    }

    fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let real = self.root.join(path);
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        std::fs::write(real, content).unwrap();
        self
    }

    fn link(self, path: &str, target: &str) -> Self {
        let real = self.root.join(path);
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        symlink(target, real).unwrap();
        self
    }

    fn load(&self) -> LoadedConfig {
        load(&self.root, None).unwrap()
    }

    fn errors(&self) -> Vec<String> {
        let errors = load(&self.root, None).unwrap_err();
        let lines: Vec<String> = errors.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            lines.len(),
            errors.problems.len(),
            "one line for each problem"
        );
        lines
    }
}

/// Returns the settings of one file with this content.
fn settings(content: &str) -> Settings {
    Tree::new().file(ADMIN_FILE, content).load().settings
}

/// Returns the errors of one file with this content, without its path.
fn errors(content: &str) -> Vec<String> {
    let prefix = format!("{ADMIN_FILE}:");
    Tree::new()
        .file(ADMIN_FILE, content)
        .errors()
        .iter()
        .map(|line| line.strip_prefix(&prefix).unwrap().to_owned())
        .collect()
}

/// Returns the shipped file with every setting uncommented; comments have a space after their `#`.
fn uncommented_defaults() -> String {
    let lines = DEFAULTS_FILE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
            _ => line,
        });
    lines.map(|line| format!("{line}\n")).collect()
}

fn files(loaded: &LoadedConfig) -> Vec<&str> {
    loaded
        .files
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect()
}

#[test]
fn no_configuration_at_all_is_the_defaults() {
    let loaded = Tree::new().load();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.files.is_empty());
    assert!(loaded.warnings.is_empty());
    assert!(
        loaded
            .values
            .iter()
            .all(|value| value.origin.is_none() && value.is_default)
    );
}

#[test]
fn the_shipped_file_states_every_key_with_its_default_and_changes_nothing() {
    let shipped = Tree::new().file(&format!("{VENDOR}/10-defaults.toml"), DEFAULTS_FILE);
    let loaded = shipped.load();
    assert_eq!(loaded.settings, Settings::default());
    assert!(
        loaded
            .values
            .iter()
            .all(|value| value.origin.is_none() && value.is_default)
    );

    let active = uncommented_defaults();
    let loaded = Tree::new().file(ADMIN_FILE, &active).load();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(loaded.values.len(), DEFAULTS.len());
    for value in &loaded.values {
        assert!(value.is_default, "{}", value.key);
        match value.origin {
            Some(_) => assert!(active.contains(&format!(" = {}\n", show::toml(&value.value)))),
            None => {
                let table = format!("\n[{}]\n", value.key);
                assert!(active.contains(&table), "{}", value.key);
            }
        }
    }
}

/// Returns the settings of one file with only this key, or its errors.
fn one_key(key: &str, value: &str) -> Result<LoadedConfig, ConfigErrors> {
    let tree = Tree::new().file(ADMIN_FILE, format!("{key} = {value}"));
    load(&tree.root, None)
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
            let lines = errors(&format!("{key} = {value}"));
            assert_eq!(
                lines,
                [format!("1: `{key}`: the value is not {kind}")],
                "{value}"
            );
        }
    }
}

#[test]
fn values_become_what_they_mean() {
    type Change = fn(&mut Settings);
    let cases: &[(&str, Change)] = &[
        ("harvester.vm = 'node.1'", |s| {
            s.harvester.vm = Some(VmName::parse("node.1").unwrap());
        }),
        ("topology.on_change = 'report'", |s| {
            s.topology.on_change = OnChange::Report;
        }),
        ("topology.host_label = 'off'", |s| {
            s.topology.host_label = None;
        }),
        ("topology.sources = ['host-node', 'configmap']", |s| {
            s.topology.sources = vec![Source::HostNode, Source::ConfigMap];
        }),
        ("topology.configmap = 'ns/zones.v1'", |s| {
            s.topology.configmap = ConfigMapName::parse("ns/zones.v1").unwrap();
        }),
        ("pod_info.path = 'off'", |s| s.pod_info.path = None),
        ("labels.extra.'example.com/rack' = 'rack'", |s| {
            let rack = |text| LabelKey::parse(text).unwrap();
            s.labels
                .extra
                .insert(rack("example.com/rack"), rack("rack"));
        }),
        ("hosts.hv-b.region = 'r1'\nhosts.hv-b.zone = 'z1'", |s| {
            let place = HostPlace {
                region: Some(LabelValue::parse("r1").unwrap()),
                zone: Some(LabelValue::parse("z1").unwrap()),
            };
            s.hosts.insert(HostName::parse("hv-b").unwrap(), place);
        }),
        ("metrics.textfile = 'off'", |s| {
            s.metrics.textfile = MetricsFile::Off;
        }),
        ("metrics.textfile = '/srv/a.prom'", |s| {
            s.metrics.textfile = MetricsFile::Path("/srv/a.prom".into());
        }),
        ("timing.poll_interval = '24h'", |s| {
            s.timing.poll = Duration::from_secs(86_400);
        }),
        ("timing.hostname_debounce = '250ms'", |s| {
            s.timing.hostname_debounce = Duration::from_millis(250);
        }),
        ("timing.annotation_grace_period = '60s'", |s| {
            s.timing.settle = Duration::from_secs(60);
        }),
    ];
    for (content, change) in cases {
        let mut expected = Settings::default();
        change(&mut expected);
        assert_ne!(expected, Settings::default(), "{content}");
        assert_eq!(settings(content), expected, "{content}");
    }
}

/// The file has each mistake, and below it all errors or warnings with their lines. Without any, it is none.
#[test]
fn every_mistake_is_reported_with_its_line_and_what_is_allowed() {
    const FILE: &str = "src/config/mistakes.txt";
    let report = |case: &str| {
        let content = case.lines().filter(|line| !line.starts_with(">>> "));
        let content = content.collect::<Vec<_>>().join("\n");
        let tree = Tree::new().file(ADMIN_FILE, &content);
        let said = match load(&tree.root, None) {
            Ok(loaded) => loaded.warnings.join("\n"),
            Err(errors) => errors.to_string(),
        };
        let said = said.replace(&format!("{ADMIN_FILE}:"), "");
        let said = said.lines().map(|line| format!("\n>>> {line}"));
        format!("{content}{}\n", said.collect::<String>())
    };
    let cases = std::fs::read_to_string(FILE).unwrap();
    let reports: Vec<String> = cases.split("\n\n").map(report).collect();
    harvester_lab::expected::is_expected(FILE, &reports.join("\n"), str::to_owned);
}

#[test]
fn all_problems_of_all_files_are_reported_in_order() {
    let lines = Tree::new()
        .file(
            &format!("{ADMIN}/20-b.toml"),
            "[timing]\npoll_interval = '1s'\nannotation_grace_period = 5\n",
        )
        .file(&format!("{ADMIN}/10-a.toml"), "watch = \n")
        .file(
            &format!("{VENDOR}/50-v.toml"),
            "[log]\nlevel = 'x'\nfoo = 1\n[timing]\npoll_interval = 'x'\n",
        )
        .file(ADMIN_FILE, [0xff, 0xfe])
        .errors();
    let starts = [
        format!("`{ADMIN_FILE}` is not valid UTF-8"),
        format!("{VENDOR}/50-v.toml:2: `log.level`"),
        format!("{VENDOR}/50-v.toml:3: unknown key `log.foo`"),
        format!("{VENDOR}/50-v.toml:5: `timing.poll_interval`"),
        format!("{ADMIN}/10-a.toml:1:"),
        format!("{ADMIN}/20-b.toml:2: `timing.poll_interval`"),
        format!("{ADMIN}/20-b.toml:3: `timing.annotation_grace_period`"),
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(&starts) {
        assert!(line.starts_with(start.as_str()), "{line} / {start}");
    }
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
fn drop_ins_are_read_by_name_below_and_above_the_administrators_file() {
    let level = |level: &str| format!("log.level = '{level}'");
    let tree = Tree::new()
        .file(&format!("{ADMIN}/10-z.toml"), level("debug"))
        .file(&format!("{ADMIN}/05-y.toml"), "")
        .file(ADMIN_FILE, level("warn"))
        .file(&format!("{RUNTIME}/20-b.toml"), level("error"))
        .file(&format!("{VENDOR}/30-c.toml"), level("info"))
        .file(&format!("{VENDOR}/10-a.toml"), level("info"));
    let loaded = tree.load();
    assert_eq!(
        files(&loaded),
        [
            format!("{VENDOR}/10-a.toml"),
            format!("{RUNTIME}/20-b.toml"),
            format!("{VENDOR}/30-c.toml"),
            ADMIN_FILE.to_owned(),
            format!("{ADMIN}/05-y.toml"),
            format!("{ADMIN}/10-z.toml"),
        ]
    );
    assert_eq!(loaded.settings.log.level, LogLevel::Debug);
    let origin = loaded
        .values
        .iter()
        .find(|value| value.key == "log.level")
        .unwrap();
    let path = PathBuf::from(format!("{ADMIN}/10-z.toml"));
    assert_eq!(origin.origin, Some(FileLine { path, line: 1 }));
}

/// Each pair of adjacent files in the order, without others.
#[test]
fn the_higher_of_two_files_wins() {
    for (lower, higher) in [
        (
            format!("{RUNTIME}/10-a.toml"),
            format!("{VENDOR}/20-b.toml"),
        ),
        (
            format!("{VENDOR}/10-a.toml"),
            format!("{RUNTIME}/20-b.toml"),
        ),
        (format!("{VENDOR}/99-a.toml"), ADMIN_FILE.to_owned()),
        (format!("{RUNTIME}/99-a.toml"), ADMIN_FILE.to_owned()),
        (ADMIN_FILE.to_owned(), format!("{ADMIN}/00-a.toml")),
        (format!("{VENDOR}/99-a.toml"), format!("{ADMIN}/00-a.toml")),
        (format!("{ADMIN}/1.toml"), format!("{ADMIN}/2.toml")),
    ] {
        let tree = Tree::new()
            .file(&lower, "log.level = 'warn'\ntopology.remove_stale = true")
            .file(&higher, "log.level = 'debug'");
        let settings = tree.load().settings;
        assert_eq!(settings.log.level, LogLevel::Debug, "{lower} < {higher}");
        assert!(settings.topology.remove_stale, "other keys of {lower} stay");
    }
}

#[test]
fn a_later_directory_masks_files_of_the_same_name() {
    for (masked, masking) in [(VENDOR, RUNTIME), (VENDOR, ADMIN), (RUNTIME, ADMIN)] {
        let broken = format!("{masked}/10-a.toml");
        let other = format!("{masking}/10-a.toml");
        // A masked file is not read: it would be invalid TOML.
        let tree = Tree::new()
            .file(&broken, "watch = ")
            .file(&other, "topology.remove_stale = true");
        let loaded = tree.load();
        assert_eq!(files(&loaded), [other.as_str()]);
        assert!(loaded.settings.topology.remove_stale);

        let disabled = Tree::new()
            .file(&broken, "watch = ")
            .link(&other, "/dev/null")
            .load();
        assert_eq!(disabled.settings, Settings::default());
        assert!(disabled.files.is_empty());

        let emptied = Tree::new()
            .file(&broken, "watch = ")
            .file(&other, "")
            .load();
        assert_eq!(emptied.settings, Settings::default());
    }
}

#[test]
fn links_to_null_count_however_they_get_there() {
    let relative = "../../../../dev/null";
    let tree = Tree::new()
        .file(
            &format!("{VENDOR}/10-a.toml"),
            "topology.remove_stale = true",
        )
        .file(&format!("{VENDOR}/20-b.toml"), "log.level = 'debug'")
        .link(&format!("{RUNTIME}/10-a.toml"), relative)
        .link("/etc/nothing", "/dev/null")
        .link(&format!("{ADMIN}/20-b.toml"), "/etc/nothing")
        .link(ADMIN_FILE, "/dev/null");
    assert_eq!(tree.load().settings, Settings::default());
}

#[test]
fn unreadable_things_are_errors_that_name_the_path() {
    let big = "#".repeat(256 * 1024 + 1);
    let lines = Tree::new()
        .file(&format!("{VENDOR}/10-big.toml"), big)
        .file(&format!("{VENDOR}/20-dir.toml/x"), "")
        .link(&format!("{VENDOR}/30-gone.toml"), "/nowhere")
        .file(ADMIN, "a file instead of a directory")
        .errors();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for path in [
        format!("{VENDOR}/10-big.toml"),
        format!("{VENDOR}/20-dir.toml"),
        format!("{VENDOR}/30-gone.toml"),
        ADMIN.to_owned(),
    ] {
        let quoted = format!("`{path}`");
        assert!(
            lines.iter().any(|line| line.contains(&quoted)),
            "{path}: {lines:?}"
        );
    }
    let fits = "#".repeat(256 * 1024);
    assert_eq!(settings(&fits), Settings::default());
}

#[test]
fn other_endings_and_hidden_files_are_not_read() {
    let broken = "watch = ";
    let loaded = Tree::new()
        .file(&format!("{ADMIN}/10-a.toml~"), broken)
        .file(&format!("{ADMIN}/10-a.toml.rpmsave"), broken)
        .file(&format!("{ADMIN}/.10-a.toml"), broken)
        .file(&format!("{ADMIN}/README"), broken)
        .file(&format!("{ADMIN}/20-b.conf"), broken)
        .file(&format!("{ADMIN}/30-c.TOML"), broken)
        .load();
    assert!(loaded.files.is_empty());
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("20-b.conf: ignored"));
    assert!(loaded.warnings[1].contains("30-c.TOML: ignored"));
}

#[test]
fn a_named_file_replaces_all_others() {
    let tree = Tree::new()
        .file(&format!("{VENDOR}/10-a.toml"), "watch = ")
        .file(ADMIN_FILE, "log.level = 'debug'")
        .file("/srv/only.toml", "log.level = 'warn'");
    let loaded = load(&tree.root, Some(Path::new("/srv/only.toml"))).unwrap();
    let mut expected = Settings::default();
    expected.log.level = LogLevel::Warn;
    assert_eq!(loaded.settings, expected);
    assert_eq!(files(&loaded), ["/srv/only.toml"]);

    let loaded = load(&tree.root, Some(Path::new("/dev/null"))).unwrap();
    assert_eq!(loaded.settings, Settings::default());

    let absent = load(&tree.root, Some(Path::new("/srv/other.toml"))).unwrap_err();
    assert_eq!(absent.to_string(), "`/srv/other.toml` does not exist");
    let relative = load(&tree.root, Some(Path::new("srv/only.toml"))).unwrap_err();
    assert_eq!(
        relative.to_string(),
        "`srv/only.toml` is not an absolute path"
    );
}

#[test]
fn open_tables_gain_keys_and_arrays_are_replaced() {
    let loaded = Tree::new()
        .file(
            &format!("{VENDOR}/10-a.toml"),
            "topology.sources = ['configmap']\nhosts.a.zone = 'z1'\nhosts.a.region = 'r'\nlabels.extra.x = 'x'",
        )
        .file(ADMIN_FILE, "topology.sources = ['hosts-table']\nhosts.a.zone = 'z2'\nlabels.extra.y = 'y'")
        .load();
    let settings = loaded.settings;
    assert_eq!(settings.labels.extra.len(), 2);
    let place = settings.hosts.get(&HostName::parse("a").unwrap()).unwrap();
    assert_eq!(place.zone.as_ref().unwrap().as_str(), "z2");
    assert_eq!(place.region.as_ref().unwrap().as_str(), "r");
    assert_eq!(settings.topology.sources, [Source::HostsTable]);
}

#[test]
fn what_is_shown_as_text_loads_to_the_same_settings() {
    let content = "topology.remove_stale = true\nlabels.extra.'a.b/c' = 'd'\nmetrics.textfile = '/srv/a \"b\\c.prom'\n\
                   hosts.'hv.b'.zone = 'z'\ntopology.host_label = 'off'\ntopology.sources = [\n 'hosts-table', # why\n]";
    let loaded = Tree::new().file(ADMIN_FILE, content).load();
    let shown = show::text(&loaded.values);
    assert!(loaded.settings != Settings::default());
    assert_eq!(settings(&shown), loaded.settings, "{shown}");
    assert_eq!(
        settings(&show::text(&Tree::new().load().values)),
        Settings::default()
    );
}

#[test]
fn text_and_json_name_the_origin_of_each_value() {
    let loaded = Tree::new()
        .file(ADMIN_FILE, "\n[topology]\nsources = ['configmap']")
        .load();
    let text = show::text(&loaded.values);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("log.level ").ends_with("  # default"));
    assert!(line("topology.sources ").ends_with(&format!("  # {ADMIN_FILE}:3")));
    let equals: BTreeSet<usize> = text.lines().map(|line| line.find(" = ").unwrap()).collect();
    assert_eq!(equals.len(), 1, "{text}");

    let json = show::json(&loaded.values);
    let find = |key: &str| {
        let rows = json.as_array().unwrap();
        rows.iter().find(|row| row["key"] == key).unwrap()
    };
    let sources = find("topology.sources");
    assert_eq!(sources["value"], serde_json::json!(["configmap"]));
    assert_eq!(
        sources["origin"],
        serde_json::json!({ "file": ADMIN_FILE, "line": 3 })
    );
    assert_eq!(find("topology.remove_stale")["value"], false);
    assert_eq!(find("log.level")["origin"], serde_json::Value::Null);
    assert_eq!(find("labels.extra")["value"], serde_json::json!({}));
}

#[test]
fn only_values_that_differ_from_the_default_are_changed() {
    let content = "topology.remove_stale = false\ntiming.watch_delay = '60s'\ntopology.on_change = 'hold'\nhosts.'hv-a'.zone = 'z'\n\
                   topology.sources = ['host-node', 'vmi-annotations', 'launcher-pod', 'configmap', 'hosts-table', 'pod-info']";
    let loaded = Tree::new().file(ADMIN_FILE, content).load();
    let changed = loaded.values.iter().filter(|value| !value.is_default);
    let keys: Vec<&str> = changed.map(|value| value.key.as_str()).collect();
    assert_eq!(keys, ["hosts.hv-a.zone", "topology.on_change"]);
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
    let is_small = |leaf: &Leaf<'_>| {
        [&leaf.path, &leaf.names]
            .iter()
            .all(|names| names.concat().len() < 1000)
    };
    assert_eq!(leaves.iter().filter(|leaf| is_small(leaf)).count(), 30_000);
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
