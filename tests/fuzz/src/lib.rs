// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets for `cargo fuzz`: parsers and decisions of the agent, run on any bytes. Each has a program in `fuzz_targets`, inputs to
//! begin with in `corpus`, and a dictionary in `dict`. Without libFuzzer, tests run the inputs of the corpora.

#[expect(unsafe_code, reason = "an allocator that counts")]
mod allocation;
mod targets;

pub use targets::*;

/// The program of a target. It does something only where `cargo fuzz` or `tests/fuzz/run` builds it: for other builds there is no libFuzzer.
#[macro_export]
macro_rules! program {
    ($target:ident) => {
        #[cfg(fuzzing)]
        ::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::$target(bytes));
        #[cfg(not(fuzzing))]
        fn main() {}
    };
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use harvester_node_agent::sys::document::json::MAXIMUM_KEYS;

    use super::*;

    type Target = fn(&[u8]);

    const TARGETS: &[(&str, Target)] = &[
        ("api_objects", api_objects),
        ("config_toml", config_toml),
        ("configmap_entry", configmap_entry),
        ("distribution", distribution),
        ("escape", escape),
        ("host_metrics", host_metrics),
        ("http_request", http_request),
        ("kubeconfig", kubeconfig),
        ("netlink", netlink),
        ("operator_channel", operator_channel),
        ("token", token),
        ("watch_stream", watch_stream),
        ("x509_pem", x509_pem),
        ("yaml_document", yaml_document),
    ];

    /// The sorted files of a folder of this package.
    fn files(folder: &str) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }

    #[test]
    fn every_input_of_the_corpora_passes_and_what_it_begins_with() {
        for (name, run) in TARGETS {
            let inputs = files(&format!("corpus/{name}"));
            assert!(!inputs.is_empty(), "{name} has no corpus");
            for path in inputs {
                println!("{}", path.display());
                let bytes = std::fs::read(&path).unwrap();
                run(&bytes);
                for length in (0..bytes.len()).step_by(16) {
                    run(&bytes[..length]);
                }
            }
        }
    }

    #[test]
    fn every_target_has_a_program_a_corpus_and_a_dictionary() {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        for folder in ["fuzz_targets", "corpus", "dict"] {
            let files = files(folder);
            let found = files.iter().map(|path| path.file_stem().unwrap());
            assert_eq!(found.collect::<Vec<_>>(), names, "{folder}");
        }
    }

    /// A text as large as an object may be, in which the list or map at a place of a corpus' object is full of a piece.
    fn filled(name: &str, place: &str, piece: &str) -> Vec<u8> {
        const OBJECT: usize = 2 << 20;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/api_objects");
        let text = std::fs::read(path.join(name)).unwrap();
        let mut object: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let (parent, key) = place.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = "HERE".into();
        let pieces: Vec<String> = (0..OBJECT / (piece.len() + 1))
            .map(|number| piece.replace('N', &number.to_string()))
            .collect();
        let pieces = pieces.join(",");
        let whole = match piece.starts_with("\"N") {
            true => format!("{{{pieces}}}"),
            false => format!("[{pieces}]"),
        };
        object.to_string().replace("\"HERE\"", &whole).into_bytes()
    }

    /// The shortest keys that fill a map, in the order that leaves the nodes of a tree as empty as possible.
    fn short_keys() -> Vec<String> {
        let one = || ('!'..='~').filter(|one| !['"', '\\'].contains(one));
        let pairs = one().flat_map(|first| one().map(move |last| format!("{first}{last}")));
        let of_two_bytes = ('\u{a1}'..='\u{7ff}').map(String::from);
        pairs.chain(of_two_bytes).take(MAXIMUM_KEYS).collect()
    }

    /// What the corpora have is short.
    #[test]
    fn the_largest_objects_and_entries_hold_no_more_for_their_size() {
        for (name, place, piece) in [
            ("node.json", "/x", "[]"),
            ("node.json", "/x", "{}"),
            ("node.json", "/metadata/managedFields", "{}"),
            (
                "node.json",
                "/metadata/managedFields",
                r#"{"manager":"m","fieldsV1":{"f:metadata":{"f:labels":{"f:a":{}}}}}"#,
            ),
            ("node.json", "/metadata/annotations", r#""N":"""#),
            ("node.json", "/metadata/labels", r#""N":"""#),
            ("node.json", "/spec/taints", "{}"),
            ("node.json", "/status/addresses", "{}"),
            ("node.json", "/status/conditions", r#"{"type":""}"#),
            ("vmi.json", "/x", "[]"),
            (
                "vmi.json",
                "/status/interfaces",
                r#"{"ipAddresses":["::"]}"#,
            ),
            (
                "vmi.json",
                "/status/conditions",
                r#"{"type":"LiveMigratable"}"#,
            ),
            ("pod.json", "/spec/containers", r#"{"image":"a"}"#),
        ] {
            println!("{place} of {name} with {piece}");
            api_objects(&filled(name, place, piece));
        }
        for (place, value) in [
            ("metadata", r#"{"name":"n","uid":"u","labels":MAP}"#),
            ("metadata", r#"{"name":"n","uid":"u","annotations":MAP}"#),
            ("status", r#"{"activePods":MAP}"#),
            ("data", "MAP"),
        ] {
            let mut keys = short_keys();
            assert_eq!(keys.len(), MAXIMUM_KEYS);
            for _ in 0..2 {
                for (count, of_each) in [
                    (1000, ""),
                    (4000, ""),
                    (MAXIMUM_KEYS, ""),
                    (MAXIMUM_KEYS, "h"),
                ] {
                    println!("{count} keys of {value} in {place}");
                    let entries = keys.iter().take(count);
                    let entries = entries.map(|key| format!(r#""{key}":"{of_each}""#));
                    let entries: Vec<String> = entries.collect();
                    let map = format!("{{{}}}", entries.join(","));
                    let value = value.replace("MAP", &map);
                    api_objects(format!(r#"{{"{place}":{value}}}"#).as_bytes());
                }
                keys.reverse();
            }
        }
        for long in ["labels", "annotations", "uid"] {
            let text = "x".repeat(2_000_000);
            let value = match long {
                "uid" => format!("{text:?}"),
                _ => format!("{{\"a\":{text:?}}}"),
            };
            api_objects(
                format!("{{\"metadata\":{{\"name\":\"n\",\"{long}\":{value}}}}}").as_bytes(),
            );
        }
        // Aliases of one scalar: 200 MB if they were expanded.
        let scalar = "x".repeat(12_000);
        let aliases = format!("a: &a \"{scalar}\"\nb: [{}]\n", "*a,".repeat(17_000));
        for entry in [aliases, "[".repeat(60_000), "[".repeat(900_000)] {
            configmap_entry(entry.as_bytes());
        }
    }

    #[test]
    fn what_is_allocated_is_counted_at_its_peak() {
        let (length, peak) = allocation::peak(|| {
            drop(vec![0_u8; 30_000]);
            vec![0_u8; 20_000].len()
        });
        assert_eq!(length, 20_000);
        assert!((30_000..31_000).contains(&peak), "{peak}");
    }
}
