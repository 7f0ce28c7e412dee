// SPDX-License-Identifier: Apache-2.0
//! Documents: YAML and JSON, the entry of a ConfigMap, our configuration, that of a distribution.

use std::path::Path;

use harvester_node_agent::config::{self, show};
use harvester_node_agent::facts::placement::HostLabels;
use harvester_node_agent::observe::configmap;
use harvester_node_agent::observe::distribution::read_distribution;
use harvester_node_agent::observe::environment_file::{flags, variables};
use harvester_node_agent::sys::document::DocumentError;
use harvester_node_agent::sys::document::yaml::{YamlValue, parse};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

use super::{BASE, with_tree};
use crate::allocation::bounded;

/// What a tree may cost beside its text, and the parser: it keeps the tokens of up to 1024 characters, some 700 bytes for each, until it
/// knows whether they are a key.
const YAML_BASE: usize = 16 * BASE;

/// Reports whether a text has a character that JSON allows in a string as it is and YAML does not (`c-printable`). Kubernetes' own parser
/// refuses these, too.
fn is_unprintable(bytes: &[u8]) -> bool {
    let is_one = |one: char| matches!(one, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    String::from_utf8_lossy(bytes).contains(is_one)
}

/// A text of this size is never too large in memory, whatever it says.
const SHORT: usize = 1024;

/// The document of a YAML or JSON text. The order of its keys is lost.
pub(super) fn yaml(text: &[u8]) -> Result<Value, DocumentError> {
    parse(text).map(json_of)
}

fn json_of(value: YamlValue) -> Value {
    match value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => json!(value),
        // YAML numbers that are invalid in JSON become strings.
        YamlValue::Number(text) => serde_json::from_str(&text).unwrap_or_else(|_| json!(text)),
        YamlValue::Text(text) => json!(text.as_str()),
        YamlValue::List(list) => list.into_iter().map(json_of).collect(),
        YamlValue::Map(entries) => entries
            .into_iter()
            .map(|(key, value)| (key, json_of(value)))
            .collect(),
    }
}

/// JSON is read as `serde_json` reads it, within memory.
pub fn yaml_document(bytes: &[u8]) {
    bounded(bytes, YAML_BASE, || parse(bytes).is_ok());
    let read = yaml(bytes);
    let Ok(json) = serde_json::from_slice::<Strict>(bytes) else {
        return;
    };
    if is_unprintable(bytes) {
        return;
    }
    match read {
        Ok(read) => assert_eq!(read, json.value, "another document than JSON's"),
        Err(DocumentError::DuplicateKey { .. }) => {
            assert!(json.has_twice, "no key is there twice")
        }
        Err(DocumentError::TooDeep) => assert!(json.depth > 64, "only {} deep", json.depth),
        Err(DocumentError::TooLarge { .. }) => assert!(bytes.len() > SHORT, "not large"),
        Err(DocumentError::Unsupported { .. }) => assert!(json.has_merge, "nothing but JSON"),
        Err(error) => panic!("JSON {error}"),
    }
}

/// A JSON value, with what our reader refuses.
struct Strict {
    value: Value,
    has_twice: bool,
    /// Whether a key is that of YAML 1.1 for merging.
    has_merge: bool,
    depth: usize,
}

impl Strict {
    fn new(value: Value) -> Self {
        Self {
            value,
            has_twice: false,
            has_merge: false,
            depth: 0,
        }
    }

    fn holds(&mut self, inner: &Self) {
        self.has_twice |= inner.has_twice;
        self.has_merge |= inner.has_merge;
        self.depth = self.depth.max(inner.depth + 1);
    }
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict::new(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict::new(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict::new(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict::new(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict::new(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict::new(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut list = Strict {
            depth: 1,
            ..Strict::new(Value::Null)
        };
        let mut values = Vec::new();
        while let Some(item) = items.next_element::<Strict>()? {
            list.holds(&item);
            values.push(item.value);
        }
        list.value = values.into();
        Ok(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Strict, A::Error> {
        let mut map = Strict {
            depth: 1,
            ..Strict::new(Value::Null)
        };
        let mut values = serde_json::Map::new();
        while let Some((key, entry)) = entries.next_entry::<String, Strict>()? {
            map.holds(&entry);
            map.has_merge |= key == "<<";
            map.has_twice |= values.insert(key, entry.value).is_some();
        }
        map.value = values.into();
        Ok(map)
    }
}

/// An object of strings in JSON is read as it is.
pub fn configmap_entry(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let read = bounded(bytes, YAML_BASE, || configmap::labels(text));
    let Ok(Strict {
        value: Value::Object(entries),
        has_twice: false,
        has_merge: false,
        ..
    }) = serde_json::from_str(text)
    else {
        return;
    };
    let strings: Option<Vec<(String, String)>> = entries
        .into_iter()
        .map(|(key, value)| Some((key, value.as_str()?.to_owned())))
        .collect();
    let is_read = bytes.len() < SHORT && !is_unprintable(bytes);
    let Some(strings) = strings.filter(|_| is_read) else {
        return;
    };
    assert_eq!(read.unwrap(), HostLabels::from_iter(strings));
}

/// What is shown of a configuration is the same configuration.
pub fn config_toml(bytes: &[u8]) {
    let path = "/etc/harvester-node-agent/config.toml";
    let load = |text: &[u8]| {
        with_tree(&[(path, text)], |root| {
            config::load(root, Some(Path::new(path)))
        })
    };
    match load(bytes) {
        Ok(loaded) => {
            let shown = show::text(&loaded.values);
            let again = load(shown.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{shown}"));
            assert_eq!(
                format!("{:?}", loaded.settings),
                format!("{:?}", again.settings),
                "{shown}"
            );
            let values = |values: &[config::Effective]| {
                let pairs = values
                    .iter()
                    .map(|value| (value.key.clone(), value.value.clone()));
                pairs.collect::<Vec<_>>()
            };
            assert_eq!(values(&loaded.values), values(&again.values));
        }
        Err(errors) => {
            assert!(!errors.problems.is_empty(), "a refusal without a reason");
            for problem in &errors.problems {
                one_line(&problem.to_string());
            }
        }
    }
}

/// No message breaks its line or hides a part of it.
fn one_line(text: &str) {
    let is_plain = |character| harvester_node_agent::sys::escape::is_plain(character);
    assert!(text.chars().all(is_plain), "{text:?}");
}

const RKE2: &str = "/etc/rancher/rke2/config.yaml";

/// The files of a distribution.
pub fn distribution(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (name, value) in variables(&text) {
        assert!(
            !name.contains('=') && name.len() + value.len() <= 2 * text.len(),
            "{name}"
        );
    }
    for (name, _) in flags(&text) {
        assert!(!name.contains('='), "{name}");
    }
    // A quoted word is the word that it was.
    if let Some(line) = text
        .lines()
        .next()
        .filter(|line| !line.contains(['\0', '\'']))
    {
        let flags = flags(&format!("--name='{line}'"));
        assert_eq!(flags, [("name".to_owned(), line.to_owned())]);
    }
    let read = |text: &[u8]| with_tree(&[(RKE2, text)], read_distribution);
    let (_, problems) = read(bytes);
    for problem in &problems {
        one_line(&problem.to_string());
    }
}
