// SPDX-License-Identifier: Apache-2.0
use std::cell::Cell;

use super::*;

thread_local! {
    /// The number of bytes that the JSON parser was given.
    pub(super) static PARSED: Cell<usize> = const { Cell::new(0) };
}

const NO_OBJECT: &str = "a request must be a JSON object";

fn requests(bytes: &[u8]) -> Vec<Request> {
    let mut input = Input::default();
    bytes.iter().filter_map(|byte| input.push(*byte)).collect()
}

/// Returns the `id` of each request, or the text of its error if it has none.
fn taken(bytes: &[u8]) -> Vec<Value> {
    let shown = |request: Request| match request.id {
        Some(id) => id,
        None => json!(request.command.unwrap_err().desc),
    };
    requests(bytes).into_iter().map(shown).collect()
}

fn is_finding(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with("JSON parse error, ") || text == NO_OBJECT)
}

fn parse(text: &str) -> Request {
    let [request] = <[Request; 1]>::try_from(requests(text.as_bytes())).unwrap();
    request
}

#[test]
fn a_value_is_whole_wherever_lines_are_cut() {
    let text = b"{\"id\":\n\"}\\\"\xc3\xa4\"}\n\n {\"id\":[1]}{\"id\":{}}\n";
    assert_eq!(taken(text), [json!("}\"ä"), json!([1]), json!({})]);
    let lines = format!("{{{}\"id\":1\n}}", "\n".repeat(1000));
    assert_eq!(taken(lines.as_bytes()), [json!(1)]);
}

#[test]
fn the_reset_byte_drops_half_a_value_and_keeps_whole_ones() {
    assert_eq!(
        taken(b"{\"id\":1}\n{\"b\":\"\xff{\"id\":3}"),
        [json!(1), json!(3)]
    );
    assert_eq!(taken(b"\xff\xff\xff{\"id\":1}\xff"), [json!(1)]);
}

#[test]
fn what_is_no_json_is_answered_once_and_dropped_to_the_end_of_its_line() {
    for broken in [
        &b"garbage and more"[..],
        b"}",
        b"\0",
        b"\"",
        b"nul",
        b"{\"a\":]",
        b"{\"a\":\n\n]",
        b"{\"a\":\"b",
        b"{\"a\":\"b\\",
        b"{\"a\" 1",
        b"{\"execute\":\"\xc3\x28\"}",
        b"{\"a\":\"\x01\"}",
        b"{'a':1}",
        b"{\"a\":1e999}",
    ] {
        let taken = taken(&[broken, b"\n{\"id\":2}\n"].concat());
        let shown = broken.escape_ascii();
        assert_eq!(taken.len(), 2, "{shown} {taken:?}");
        assert!(is_finding(&taken[0]), "{taken:?}");
        assert_eq!(taken[1], json!(2), "{shown}");
    }
}

#[test]
fn what_is_json_but_no_object_is_answered_once() {
    for other in ["[]", "[\n 1,\n 2\n]", "5", "-5", "\"x\"", "null", "true"] {
        let taken = taken(format!("{other}\n{{\"id\":2}}").as_bytes());
        assert_eq!(taken, [json!(NO_OBJECT), json!(2)], "{other}");
    }
    // The end of an array is known without the end of its line.
    assert_eq!(taken(b"[]{\"id\":2}"), [json!(NO_OBJECT), json!(2)]);
}

#[test]
fn half_a_request_costs_the_next_two_at_most() {
    let half = format!("{{\"id\":\n\"{}\",\n\"execute\":\n", "x".repeat(100));
    let whole = |id| format!("{{\"execute\":\"guest-ping\",\"id\":{id}}}\n");
    let taken = taken([half, whole(1), whole(2), whole(3)].concat().as_bytes());
    assert!(is_finding(&taken[0]), "{taken:?}");
    assert_eq!(taken[1..], [json!(3)]);
}

#[test]
fn the_reset_byte_ends_what_is_no_json_as_well() {
    let taken = taken(b"garbage \xff{\"id\":2}");
    assert!(is_finding(&taken[0]));
    assert_eq!(taken[1..], [json!(2)]);
}

#[test]
fn a_megabyte_without_an_end_is_one_complaint_and_no_more_memory() {
    for (fill, end) in [(b'x', b'\n'), (b'\\', RESET)] {
        let mut input = Input::default();
        let mut findings = 0;
        for byte in b"{\"a\":\"".iter().chain(&[fill; 1 << 20]) {
            if let Some(request) = input.push(*byte) {
                let problem = request.command.unwrap_err().desc;
                assert_eq!(problem, "JSON value is longer than 65536 bytes");
                findings += 1;
            }
            assert!(input.value.capacity() <= 2 * INPUT_MAX);
        }
        assert_eq!(findings, 1);
        assert!(input.push(end).is_none());
        assert!(b"{}".iter().any(|byte| input.push(*byte).is_some()));
    }
}

#[test]
fn the_largest_value_that_is_allowed_passes() {
    let text = format!("{{\"id\":\"{}\"}}", "x".repeat(INPUT_MAX - 9));
    assert_eq!(text.len(), INPUT_MAX);
    assert!(parse(&text).id.is_some());
}

#[test]
fn deep_nesting_is_refused_before_it_costs_anything() {
    let deep = b"{\"a\":[".repeat(100_000);
    let taken = taken(&[deep, b"\n{\"id\":2}".to_vec()].concat());
    assert!(is_finding(&taken[0]));
    assert_eq!(taken[1..], [json!(2)]);
}

#[test]
fn blank_input_is_nothing_and_is_not_kept() {
    let mut input = Input::default();
    for _ in 0..100_000 {
        assert!(input.push(b'\n').is_none());
    }
    assert!(input.value.is_empty());
}

/// Bytes arrive alone, and each is examined alone: only the parser sees one again.
#[test]
fn the_parser_gets_ten_bytes_at_most_for_each_that_arrives() {
    for text in [
        b"{\"a\":1}\n".repeat(30_000),
        [b"{\"a\":[", &b"1,\n".repeat(30_000)[..]].concat(),
        [b"{\"a\":[", &b"{},".repeat(30_000)[..]].concat(),
        b"{}".repeat(30_000),
        b"x\n".repeat(30_000),
    ] {
        PARSED.set(0);
        requests(&text);
        let parsed = PARSED.get();
        assert!(0 < parsed && parsed <= 10 * text.len(), "{parsed}");
    }
}

/// Returns the class and the message of the error, and the ID, as in the reply.
fn refused(text: &str) -> (String, String, Option<Value>) {
    let request = parse(text);
    let refusal = request.command.clone().unwrap_err();
    let line = request.reply(Err(refusal));
    let reply: Value = serde_json::from_slice(&line).unwrap();
    let word = |key: &str| reply["error"][key].as_str().unwrap().to_owned();
    (word("class"), word("desc"), reply.get("id").cloned())
}

#[test]
fn every_name_is_understood_and_wants_only_its_own_arguments() {
    for name in QgaCommand::NAMES {
        let arguments = if name.contains("sync") && name.starts_with("guest") {
            r#"{"id":-7}"#
        } else {
            "{}"
        };
        let text = format!(r#"{{"execute":"{name}","arguments":{arguments}}}"#);
        parse(&text).command.unwrap();
        let text = format!(r#"{{"execute":"{name}","arguments":{{"id":1,"more":2}}}}"#);
        let refused = parse(&text).command;
        assert!(
            refused.is_err_and(|refusal| refusal.class == "GenericError"),
            "{name}"
        );
    }
}

#[test]
fn a_refusal_has_the_class_of_qemu_ga_and_names_the_problem() {
    for (text, class, words) in [
        (
            r#"{"execute":"nope"}"#,
            "CommandNotFound",
            "The command nope has not been found",
        ),
        ("{}", "GenericError", "`execute`"),
        ("[]", "GenericError", "must be a JSON object"),
        ("5", "GenericError", "must be a JSON object"),
        (r#"{"execute":5}"#, "GenericError", "expected a string"),
        (
            r#"{"execute":"guest-ping","arguments":[]}"#,
            "GenericError",
            "expected a map",
        ),
        (
            r#"{"execute":"guest-ping","bogus":1}"#,
            "GenericError",
            "`bogus`",
        ),
        (
            r#"{"execute":"guest-ping","arguments":{"x":2}}"#,
            "GenericError",
            "`x`",
        ),
        (
            r#"{"execute":"guest-ping","arguments":{"id":2}}"#,
            "GenericError",
            "unknown field `id`",
        ),
        (
            r#"{"execute":"guest-sync"}"#,
            "GenericError",
            "missing field `id`",
        ),
        (
            r#"{"execute":"guest-sync","arguments":{"id":"x"}}"#,
            "GenericError",
            "expected i64",
        ),
        (
            r#"{"execute":"guest-sync","arguments":{"id":1.0}}"#,
            "GenericError",
            "expected i64",
        ),
        (
            r#"{"execute":"guest-sync","arguments":{"id":18446744073709551615}}"#,
            "GenericError",
            "expected i64",
        ),
    ] {
        let (found, said, id) = refused(text);
        assert_eq!((found.as_str(), id), (class, None), "{text}");
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn the_id_comes_back_whatever_it_is_with_an_error_as_well() {
    for id in ["null", "0", "-1.5", "\"x\"", "[1,{}]", r#"{"a":[null]}"#] {
        let expected: Value = serde_json::from_str(id).unwrap();
        let line = parse(&format!(r#"{{"id":{id},"execute":"guest-ping"}}"#)).reply(Ok(json!({})));
        assert_eq!(
            serde_json::from_slice::<Value>(&line).unwrap(),
            json!({"return": {}, "id": expected.clone()})
        );
        assert_eq!(refused(&format!(r#"{{"id":{id}}}"#)).2, Some(expected));
    }
}

#[test]
fn a_reply_is_one_line_and_only_the_delimited_one_has_a_mark() {
    let sync = parse(r#"{"execute":"guest-sync","arguments":{"id":9}}"#);
    assert_eq!(sync.reply(Ok(json!(9))), b"{\"return\":9}\n");
    let sync = parse(r#"{"execute":"guest-sync-delimited","arguments":{"id":9},"id":"\n"}"#);
    assert_eq!(
        sync.reply(Ok(json!(9))),
        b"\xff{\"id\":\"\\n\",\"return\":9}\n"
    );
}

#[test]
fn a_hostile_name_comes_back_harmless_and_short() {
    let name = format!("\\u0000\\u001b[31m\\u202e{}", "x".repeat(10_000));
    let (_, words, _) = refused(&format!(r#"{{"execute":"{name}"}}"#));
    assert!(words.contains("\\x00\\x1b[31m\\u{202e}xxx"), "{words}");
    assert!(words.len() < 300, "{}", words.len());
}
