// SPDX-License-Identifier: Apache-2.0
//! `tests/run` counts what the tests say: a lost line, a dead process or silence is no success.

use std::io::Write;
use std::process::{Command, Stdio};

use super::top;

/// What `tests/outcomes` makes of a text, for a run that ended with this status.
fn outcomes(status: u8, log: &str) -> Vec<String> {
    let mut awk = Command::new(top().join("tests/outcomes"))
        .args([
            "-v",
            "run=these",
            "-v",
            &format!("status={status}"),
            "/dev/stdin",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    awk.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = awk.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut lines: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// A process of tests that ended well.
const WELL: &str = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... ignored, needs root\n\nsuccesses:\n\n\
    ---- a::b stdout ----\nSKIP b: no server\n\n\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";

#[test]
fn a_test_counts_once_and_one_that_skipped_has_not_passed() {
    assert_eq!(
        outcomes(0, WELL),
        ["passed c - should panic", "skipped a::b", "skipped d"]
    );
    assert_eq!(
        outcomes(0, "SKIP image: no root\n"),
        ["skipped image: no root"]
    );
    assert_eq!(
        outcomes(1, "test a ... ok\ntest b ... FAILED\n"),
        ["failed b", "passed a"]
    );
}

#[test]
fn a_process_that_dies_without_a_word_has_failed() {
    let died = format!("{WELL}running 2 tests\ntest e ... ok\n");
    let told = outcomes(101, &died);
    assert!(told.contains(&"passed e".to_owned()), "{told:?}");
    assert!(
        told.contains(&"failed these: a process of 2 tests ended without its result".to_owned()),
        "{told:?}"
    );
    let between = format!("running 2 tests\ntest e ... FAILED\n{WELL}");
    assert_eq!(
        outcomes(101, &between)[..2],
        [
            "failed e",
            "failed these: a process of 2 tests ended without its result"
        ]
    );
}

#[test]
fn silence_lost_lines_and_a_runner_that_was_killed_have_failed() {
    assert_eq!(outcomes(0, ""), ["failed these: told nothing"]);
    assert_eq!(
        outcomes(137, "test a ... ok\n"),
        ["failed these: ended with status 137", "passed a"]
    );
    let garbled = WELL.replace(
        "test c - should panic ... ok",
        "test c - should panic ... a child says: ok",
    );
    assert_eq!(
        outcomes(0, &garbled)[0],
        "failed these: of 3 tests only 2 were told"
    );
}
