// SPDX-License-Identifier: Apache-2.0
//! Which rules meet which requests, and what the spoilt bodies are.

use super::*;

const GET: Seen<'static> = Seen {
    method: "GET",
    path: "/api/v1/nodes/a",
    query: "",
    user_agent: "agent/1",
    verb: "get",
};

#[test]
fn a_rule_ends_after_its_count_and_meets_only_what_it_names() {
    let faults = Faults::default();
    let rule = faults.inject(
        Matcher::path("/nodes/").verb("get").times(2),
        Fault::NeverAnswer,
    );
    assert!(
        faults
            .of_request(&Seen {
                verb: "patch",
                ..GET
            })
            .is_empty()
    );
    assert_eq!(faults.of_request(&GET), [Fault::NeverAnswer]);
    assert_eq!(faults.of_request(&GET), [Fault::NeverAnswer]);
    assert!(faults.of_request(&GET).is_empty());
    assert_eq!(rule.hits(), 2);
}

#[test]
fn delays_add_up_and_come_before_the_one_other_fault() {
    let faults = Faults::default();
    let delay = Fault::DelayHeaders(Duration::from_millis(1));
    faults.inject(Matcher::any(), Fault::Gzip);
    let unused = faults.inject(Matcher::any(), Fault::TruncatedBody);
    faults.inject(Matcher::any(), delay.clone());
    faults.inject(Matcher::any(), Fault::WatchAbort);
    assert_eq!(faults.of_request(&GET), [delay, Fault::Gzip]);
    assert_eq!(unused.hits(), 0);
    assert_eq!(faults.of_watch_event(&GET), Some(Fault::WatchAbort));
}

#[test]
fn a_duplicated_label_comes_first_with_another_value() {
    let body = r#"{"metadata":{"labels":{"a":"1"}}}"#;
    assert_eq!(
        duplicate_key(body),
        r#"{"metadata":{"labels":{"a":"duplicate","a":"1"}}}"#
    );
    assert_eq!(
        duplicate_key(r#"{"kind":"X"}"#),
        r#"{"kind":"duplicate","kind":"X"}"#
    );
}

#[test]
fn a_deep_field_leaves_the_rest_as_it_was() {
    let deep = deepen(r#"{"kind":"X"}"#, 3);
    let value: Value = serde_json::from_str(&deep).unwrap();
    assert_eq!(value, serde_json::json!({"deep": [[[]]], "kind": "X"}));
}

#[test]
fn gzip_is_what_gunzip_understands() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let body = "harvester".repeat(20_000);
    let mut gunzip = Command::new("gzip")
        .args(["-dc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = gunzip.stdin.take().unwrap();
    let packed = gzip(body.as_bytes());
    let writer = std::thread::spawn(move || input.write_all(&packed).unwrap());
    let output = gunzip.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, body.as_bytes());
}
