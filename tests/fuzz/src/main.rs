// SPDX-License-Identifier: Apache-2.0
//! Runs parsers and decisions of the agent on mutated inputs: `harvester-fuzz TARGET|all [SECONDS [SEED [RUNS]]]`. A finding is an input for
//! which the target's check fails, that takes too long or that panics; it is written beside the build.

mod allocation;
mod coverage;
mod engine;
mod targets;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use engine::Engine;
use targets::{TARGETS, Target};

/// What takes longer is a finding. The machine may be busy with other things.
const SLOW: Duration = Duration::from_secs(5);

/// Seconds for each target.
const SECONDS: u64 = 20;

/// The inputs that each target begins with, one folder for each.
fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("all", String::as_str);
    let number = |at: usize, default| {
        arguments
            .get(at)
            .map_or(Some(default), |text| text.parse().ok())
    };
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| name == "all" || name == target.name)
        .collect();
    let (Some(seconds), Some(seed), Some(runs), false) = (
        number(1, SECONDS),
        number(2, 1),
        number(3, u64::MAX),
        chosen.is_empty(),
    ) else {
        println!("usage: harvester-fuzz TARGET|all [SECONDS [SEED [RUNS]]]; targets:");
        TARGETS
            .iter()
            .for_each(|target| println!("  {}", target.name));
        return ExitCode::from(2);
    };
    let mut findings = 0;
    println!(
        "{:<16} {:>6} {:>6} {:>9} {:>9}",
        "target", "corpus", "added", "per s", "findings"
    );
    for target in chosen {
        let mut engine = Engine::new(target, seed);
        engine.slow = SLOW;
        engine.start(corpus(target).into_iter().map(|(_, bytes)| bytes));
        engine.run(Duration::from_secs(seconds), runs);
        println!("{}", engine.summary());
        for finding in &engine.findings {
            let path = finding.write(target);
            println!("  {}: {}", path.display(), finding.message);
        }
        let outcome = if engine.findings.is_empty() {
            "ok"
        } else {
            "FAILED"
        };
        println!("test fuzz::{} ... {outcome}", target.name);
        findings += engine.findings.len();
    }
    if !coverage::is_measured() {
        println!("without coverage: this is not the build of tests/fuzz/run");
    }
    ExitCode::from(u8::from(findings > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpora_passes() {
        for target in TARGETS {
            let inputs = corpus(target);
            assert!(!inputs.is_empty(), "{} has no corpus", target.name);
            for (path, bytes) in inputs {
                println!("{}", path.display());
                (target.run)(&bytes);
            }
        }
    }

    #[test]
    fn every_corpus_is_of_a_target() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(
                TARGETS.iter().any(|target| *target.name == *name),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_few_mutations_of_each_corpus_pass() {
        for target in TARGETS {
            let mut engine = Engine::new(target, 7);
            engine.start(corpus(target).into_iter().map(|(_, bytes)| bytes));
            for _ in 0..100 {
                engine.step();
            }
            assert!(
                engine.findings.is_empty(),
                "{}: {:?}",
                target.name,
                engine.findings
            );
        }
    }

    #[test]
    fn a_fault_is_found_and_its_input_made_small() {
        let target = Target {
            name: "planted",
            run: |bytes| {
                let words = bytes.windows(3).filter(|window| window == b"bad").count();
                assert!(words < 2, "planted");
            },
            words: &["bad", "good"],
        };
        let mut engine = Engine::new(&target, 1);
        engine.start([b"good morning".to_vec()]);
        for _ in 0..20_000 {
            engine.step();
        }
        let [finding] = &engine.findings[..] else {
            panic!("{}", engine.summary());
        };
        assert!(finding.message.contains("planted"));
        assert_eq!(finding.input, b"badbad");
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

    /// What the corpora have is short.
    #[test]
    fn the_largest_objects_and_entries_hold_no_more_for_their_size() {
        let targets = |name| TARGETS.iter().find(|target| target.name == name).unwrap();
        let objects = targets("api_objects").run;
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
            objects(&filled(name, place, piece));
        }
        for long in ["labels", "annotations", "uid"] {
            let text = "x".repeat(2_000_000);
            let value = match long {
                "uid" => format!("{text:?}"),
                _ => format!("{{\"a\":{text:?}}}"),
            };
            objects(format!("{{\"metadata\":{{\"name\":\"n\",\"{long}\":{value}}}}}").as_bytes());
        }
        // Aliases of one scalar: 200 MB if they were expanded.
        let scalar = "x".repeat(12_000);
        let aliases = format!("a: &a \"{scalar}\"\nb: [{}]\n", "*a,".repeat(17_000));
        for entry in [aliases, "[".repeat(60_000), "[".repeat(900_000)] {
            (targets("configmap_entry").run)(entry.as_bytes());
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
