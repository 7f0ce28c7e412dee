// SPDX-License-Identifier: Apache-2.0
//! The list of `src/cold.ld`: a name that fits nothing any more would cost the service memory, and nobody would see it.

use std::collections::BTreeSet;

use super::{read, top};

/// The patterns for sections of code, each as the pieces between its stars.
fn patterns(script: &str) -> Vec<Vec<&str>> {
    let patterns = script
        .split([' ', '(', ')', '\n'])
        .filter_map(|word| word.strip_prefix(".text.*"));
    patterns
        .map(|pattern| {
            pattern
                .split('*')
                .filter(|piece| !piece.is_empty())
                .collect()
        })
        .collect()
}

/// Whether a name holds all pieces, one after the other.
fn fits(name: &str, pieces: &[&str]) -> bool {
    let mut rest = Some(name);
    for piece in pieces {
        rest = rest
            .and_then(|text| text.split_once(piece))
            .map(|(_, after)| after);
    }
    rest.is_some()
}

#[test]
fn every_name_of_the_linkers_list_fits_code_that_there_is() {
    let script = read("src/cold.ld");
    let patterns = patterns(&script);
    assert!(patterns.len() > 20, "{patterns:?}");
    // The names of all functions stand in the table of symbols of a program that is not stripped.
    let program = std::fs::read(env!("CARGO_BIN_EXE_harvester-node-agent")).unwrap();
    let symbols: BTreeSet<&str> = program
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| name.starts_with("_ZN") || name.starts_with("_R"))
        .collect();
    assert!(symbols.len() > 1000, "{} has no symbols", top().display());
    let idle: Vec<String> = patterns
        .iter()
        .filter(|pieces| !symbols.iter().any(|name| fits(name, pieces)))
        .map(|pieces| pieces.join("*"))
        .collect();
    assert!(
        idle.is_empty(),
        "src/cold.ld names what is not there: {}",
        idle.join(" ")
    );
}
